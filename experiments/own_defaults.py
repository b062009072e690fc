"""Which network and settings suit your own images by default, on a CPU, and does CRL help with them?

    python experiments/own_defaults.py --fashion FOLDER --cifar FOLDER --out own_defaults.jsonl [--sets ...]
        [--forms sgd-0.1-128-60 ...] [--methods baseline crl-softmax] [--models convnet] [--seeds 0,1] [--split test]
    python experiments/own_defaults.py --table own_defaults.jsonl

A set is a kind of images and their number for training: drawn shapes (`own_images.py`), scikit-learn's digits scaled
to 32x32, Fashion-MNIST (the files of the Debian package dataset-fashion-mnist), and the first 5 or 10 classes of
CIFAR-100. A form is optimizer, learning rate, batch size and epochs. `validation` judges by other images of the
published training split, `test` by the published test split (for shapes and digits, by a third part of the images).
Every run adds a line to the file; runs that it has are skipped.
"""

import argparse
import gzip
import json
import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from own_images import draw
from PIL import Image
from sklearn.datasets import load_digits

from confrank.config import RunConfig
from confrank.data import DataSet, load, split_of
from confrank.data.custom import custom_data_set
from confrank.training import train

METRICS = {"acc": 100, "aurc": 1000, "ece": 100, "nll": 10}
SETS = (
    "shapes480",
    "digits600",
    "fashion300",
    "fashion1000",
    "fashion5000",
    "cifar5x100",
    "cifar10x100",
    "cifar10x400",
)
Images = tuple[np.ndarray, np.ndarray]


@cache
def shapes() -> Images:
    """1,680 images of three shapes in 32x32."""
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), 1680)
        data = load(folder, image_size=32)
    parts = data.train, data.test
    return np.concatenate([one.images for one in parts]), np.concatenate([one.labels for one in parts])


@cache
def digits() -> Images:
    """The 1,797 digits of scikit-learn, scaled from 8x8 to 32x32."""
    data = load_digits()
    small = (data.images * 255 / 16).astype(np.uint8)
    return np.stack([np.asarray(Image.fromarray(one).resize((32, 32), Image.BICUBIC)) for one in small])[
        ..., None
    ], data.target


def fashion(folder: Path, split: str) -> Images:
    with gzip.open(folder / f"{split}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(folder / f"{split}-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read(), np.uint8, offset=8)


def cifar(folder: Path, split: str, num_classes: int) -> Images:
    data = load("cifar100", folder)
    part = data.train if split == "train" else data.test
    rows = part.labels < num_classes
    return part.images[rows], part.labels[rows]


def data_set(name: str, split: str, arguments: argparse.Namespace) -> DataSet:
    """The training images of a set, and up to 1,000 to judge by in place of its test split."""
    kind, size = name.rstrip("0123456789x"), name[len(name.rstrip("0123456789x")) :]
    classes, each = map(int, size.split("x")) if "x" in size else (0, 0)
    number = classes * each or int(size)
    if kind in ("shapes", "digits"):
        images, labels = shapes() if kind == "shapes" else digits()
        tested = None
    elif kind == "fashion":
        images, labels = fashion(arguments.fashion, "train")
        tested = fashion(arguments.fashion, "t10k")
    else:
        images, labels = cifar(arguments.cifar, "train", classes)
        tested = cifar(arguments.cifar, "test", classes)
    order = np.random.default_rng(0).permutation(len(labels))
    used, others = order[:number], order[number:]
    if tested is None:
        half = (len(images) - number) // 2
        judged = others[:half] if split == "validation" else others[half:]
        judged_by = images[judged], labels[judged]
    elif split == "validation":
        judged_by = images[others[:1000]], labels[others[:1000]]
    else:
        judged_by = tested
    names = tuple(f"class {number}" for number in range(int(labels.max()) + 1))
    return custom_data_set(Path(name), split_of(images[used], labels[used]), split_of(*judged_by), names)


def settings_of(form: str) -> dict[str, object]:
    optimizer, lr, batch_size, epochs = form.split("-")
    return {"optimizer": optimizer, "lr": float(lr), "batch_size": int(batch_size), "epochs": int(epochs)}


def run(config: RunConfig, data: DataSet) -> dict[str, object]:
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, Path(folder) / "run", data=data, device="cpu", checkpoint_minutes=60)
        log = [json.loads(line) for line in result.folder.log.read_text().splitlines()]
    metrics = {name: result.evaluations["test"].metrics[name] for name in METRICS}
    return {**metrics, "train_acc": log[-1]["acc"], "seconds": round(time.process_time() - start, 1)}


def table(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in ("split", "set", "model", "form", "method")), []).append(row)
    print(f"| split | set | network | form | method | n | {' | '.join(METRICS)} | training accuracy | seconds |")
    print("|---" * (8 + len(METRICS)) + "|")
    for key in sorted(groups, key=lambda key: (key[0], SETS.index(key[1]), *key[2:])):
        runs = groups[key]
        cells = [_spread([by * (one[name] or 0.0) for one in runs]) for name, by in METRICS.items()]
        cells += [_spread([100 * one["train_acc"] for one in runs]), f"{mean(one['seconds'] for one in runs):.0f}"]
        print(f"| {' | '.join(key)} | {len(runs)} | {' | '.join(cells)} |")


def _spread(values: list[float]) -> str:
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--split", default="validation", choices=("validation", "test"))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--forms", nargs="+", default=["adamw-0.003-32-60"])
    parser.add_argument("--methods", nargs="+", default=["baseline", "crl-softmax"])
    parser.add_argument("--models", nargs="+", default=["convnet"])
    parser.add_argument("--seeds", default="0,1,2")
    arguments = parser.parse_args()
    if arguments.table:
        return table(arguments.table)
    torch.set_num_threads(1)
    keys = ("split", "set", "model", "form", "method", "seed")
    for seed in map(int, arguments.seeds.split(",")):
        for form in arguments.forms:
            for name in arguments.sets:
                for model in arguments.models:
                    for method in arguments.methods:
                        key = dict(zip(keys, (arguments.split, name, model, form, method, seed), strict=True))
                        lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
                        if any(key.items() <= json.loads(line).items() for line in lines):
                            continue
                        config = RunConfig(dataset=name, model=model, method=method, seed=seed, **settings_of(form))
                        row = {**key, **run(config, data_set(name, arguments.split, arguments))}
                        with arguments.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
