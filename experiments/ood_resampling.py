"""How much does Mahalanobis depend on how the out-of-distribution images were resized?

    python experiments/ood_resampling.py WEIGHTS.safetensors --root DATA

The same 4,000 patches of 64x64 pixels out of scikit-learn's two photographs are reduced to 32x32 in three ways:
bicubic with Pillow, the mean of 2x2 pixels, and every second pixel. The content is equal, so any difference comes
from the resampling. The layers' weights are fitted on the first 500 images of each side and tested on all but the
first 1,000, without perturbation. Patches overlap, so each row is optimistic; compare the rows with each other only.
TinyImageNet is shown for reference.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from confrank.confidence import max_probability
from confrank.data import load_images
from confrank.metrics.separation import detection
from confrank.ood import Mahalanobis
from confrank.ood.features import features_of
from confrank.ood.images import Images, LabelledBatches, over
from confrank.ood.tuning import fit_weights
from confrank.runs.trained import load_run

NUM_PATCHES, STRIDE, SIZE = 4000, 7, 64
NUM_FIT, NUM_TUNING = 500, 1000
Pixels = NDArray[np.uint8]


def patches() -> list[Pixels]:
    """Patches of both photographs, in random order."""
    pieces = [
        photo[top : top + SIZE, left : left + SIZE]
        for photo in load_sample_images().images
        for top in range(0, photo.shape[0] - SIZE, STRIDE)
        for left in range(0, photo.shape[1] - SIZE, STRIDE)
    ]
    return [pieces[number] for number in np.random.default_rng(0).permutation(len(pieces))[:NUM_PATCHES]]


def reduced(pieces: list[Pixels], how: Image.Resampling) -> Pixels:
    half = SIZE // 2, SIZE // 2
    return np.stack([np.asarray(Image.fromarray(patch).resize(half, how)) for patch in pieces])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    arguments = parser.parse_args()
    trained = load_run(arguments.weights, root=arguments.root)
    model = trained.network.eval()
    device = next(model.parameters()).device

    def images(pixels: Pixels) -> Images:
        return Images(pixels, trained.provenance.mean, trained.provenance.std, device)

    train = trained.data.train
    detector = Mahalanobis(model, std=trained.provenance.std).fit(LabelledBatches(images(train.images), train.labels))

    @torch.no_grad()
    def scores_of(batch: Tensor) -> Tensor:
        logits, features = features_of(model, batch, detector.layers)
        distances = (
            detector.fitted[name].score(values) for name, values in zip(detector.layers, features, strict=True)
        )
        return torch.stack([max_probability(logits).double(), *distances], dim=1)

    def scores(pixels: Pixels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Maximum probability [n] and the layers' scores [n, L], from one pass."""
        both = over(images(pixels), scores_of)
        return both[:, 0], both[:, 1:]

    photos = patches()
    out_sets = {
        "patches, bicubic": reduced(photos, Image.Resampling.BICUBIC),
        "patches, mean of 2x2": reduced(photos, Image.Resampling.BOX),
        "patches, every 2nd pixel": np.stack([patch[::2, ::2] for patch in photos]),
        "tinyimagenet": load_images("tinyimagenet", arguments.root),
    }
    inside = scores(trained.data.test.images)
    layers = " | ".join(f"{name} AUROC %" for name in detector.layers)
    print(f"| {arguments.weights.stem} | max-probability FPR-95% / AUROC % | {layers} | joined FPR-95% / AUROC % |")
    print("|---" * (len(detector.layers) + 3) + "|")
    for name, pixels in out_sets.items():
        outside = scores(pixels)
        weights = fit_weights(inside[1][:NUM_FIT], outside[1][:NUM_FIT])
        joined = [values[1][NUM_TUNING:] @ np.array(weights.weight) for values in (inside, outside)]
        single = [
            detection(inside[1][:, number], outside[1][:, number]).metrics["auroc"]
            for number in range(len(detector.layers))
        ]
        pairs = [detection(inside[0], outside[0]).metrics, detection(joined[0], joined[1]).metrics]
        first, last = (f"{100 * pair['fpr95']:.1f} / {100 * pair['auroc']:.1f}" for pair in pairs)
        print(f"| {name} | {first} | {' | '.join(f'{100 * value:.1f}' for value in single)} | {last} |", flush=True)


if __name__ == "__main__":
    main()
