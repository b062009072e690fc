"""The built-in data set: scikit-learn's 8x8 digits, with enough noise that confidence has something to rank.

1,797 images of ten digits. A fixed permutation (seed 0) gives 900 for training and 897 for testing. Gaussian
pixel noise (standard deviation NOISE on the 0-1 scale) is added once, from a fixed seed. The result is stored in
bytes, with grey 0 at byte 64 and grey 1 at byte 192, so that little of the noise is clipped.
"""

import numpy as np

from confrank.data.sets import DataSet, split_of

NOISE = 0.5
NUM_TRAIN = 900


def load_digits(noise: float = NOISE) -> DataSet:
    """The `digits` data set. It needs no files."""
    from sklearn.datasets import load_digits as load_clean

    grey, labels = load_clean(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    noisy = grey / 16 + noise * rng.standard_normal(grey.shape)
    images = np.clip(np.round(64 + 128 * noisy), 0, 255).astype(np.uint8).reshape(-1, 8, 8, 1)
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    return DataSet(
        name="digits",
        train=split_of(images[train], labels[train]),
        test=split_of(images[test], labels[test]),
        class_names=tuple("0123456789"),
        mean=(0.4,),
        std=(0.25,),
    )
