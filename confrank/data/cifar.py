"""CIFAR-10 and CIFAR-100 from their published binary files (https://www.cs.toronto.edu/~kriz/cifar.html).

A record is one label byte (CIFAR-100: the coarse, then the fine label) and 3,072 pixel bytes: 32 rows of 32 for
red, then green, then blue. The pickled form of these files is never read.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.data.published import locate, read_files
from confrank.data.sets import DataSet, Split, split_of

PIXELS = 3 * 32 * 32

CIFAR10_CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())  # noqa: SIM905
CIFAR100_CLASSES = tuple(  # in the order of the labels, which is alphabetical
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905
)


def load_cifar10(root: Path | None, num_records: int = 10_000) -> DataSet:
    """The `cifar10` data set: five training files and one test file of `num_records` each."""
    train = [f"data_batch_{k}.bin" for k in range(1, 6)]
    sizes = dict.fromkeys([*train, "test_batch.bin"], num_records * (1 + PIXELS))
    (source,) = locate("cifar10", root)
    contents = read_files(source, "cifar-10-batches-bin", sizes)
    return DataSet(
        name="cifar10",
        train=_split(source, (contents.pop(name) for name in train), 1, 10),
        test=_split(source, [contents["test_batch.bin"]], 1, 10),
        class_names=CIFAR10_CLASSES,
        mean=(0.491, 0.482, 0.447),
        std=(0.247, 0.243, 0.262),
        padding=4,
        flip=True,
    )


def load_cifar100(root: Path | None, num_train: int = 50_000, num_test: int = 10_000) -> DataSet:
    """The `cifar100` data set, with its 100 fine labels."""
    sizes = {"train.bin": num_train * (2 + PIXELS), "test.bin": num_test * (2 + PIXELS)}
    (source,) = locate("cifar100", root)
    contents = read_files(source, "cifar-100-binary", sizes)
    return DataSet(
        name="cifar100",
        train=_split(source, [contents["train.bin"]], 2, 100),
        test=_split(source, [contents["test.bin"]], 2, 100),
        class_names=CIFAR100_CLASSES,
        mean=(0.507, 0.487, 0.441),
        std=(0.267, 0.256, 0.276),
        padding=4,
        flip=True,
    )


def read_records(content: bytes, num_label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images [n, 32, 32, 3] and their last label byte [n].

    >>> images, labels = read_records(bytes([7]) + bytes(3072), num_label_bytes=1)
    >>> images.shape, labels.tolist()
    ((1, 32, 32, 3), [7])
    """
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, num_label_bytes + PIXELS)
    planes = records[:, num_label_bytes:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, num_label_bytes - 1]


def _split(source: Path, contents: Iterable[bytes], num_label_bytes: int, num_classes: int) -> Split:
    images, labels = zip(*(read_records(content, num_label_bytes) for content in contents), strict=True)
    label = np.concatenate(labels).astype(np.int64)
    if label.size and label.max() >= num_classes:
        row = int(np.argmax(label >= num_classes))
        raise ValueError(
            f"expected labels within 0..{num_classes - 1} in {source}, but got {label[row]} in record {row}"
        )
    return split_of(np.concatenate(images), label)
