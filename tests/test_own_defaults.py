"""The defaults of training on your own images: what they are, when they apply, and that they learn."""

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from confrank.cli.app import parsed as parsed_words
from confrank.cli.train import Settings, config_of
from confrank.config import RunConfig
from confrank.data.extent import image_files, num_training_images, usual_image_size
from confrank.data.pictures import read_picture, size_of
from confrank.runs.folder import load_config

OWN = {"model": "convnet", "method": "baseline", "optimizer": "adamw", "lr": 0.001, "batch_size": 32}
PAPER = {name: getattr(RunConfig, name) for name in OWN}


def write_images(folder, number=10, size=(8, 8), classes=("cat", "dog"), first=0):
    """Random colour images of (height, width) in one folder per class."""
    random = np.random.default_rng(first)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place in range(first, first + number):
            pixels = random.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")


def parsed(*flags):
    given = parsed_words(["train", *map(str, flags)]).keywords
    return config_of(given.get("settings", Settings()), given.get("config", ()), given.get("root"))


def chosen(*flags):
    arguments = parsed(*flags)
    return {name: getattr(arguments, name) for name in OWN}


def test_a_folder_of_images_has_its_own_defaults(tmp_path):
    write_images(tmp_path / "pets")
    assert chosen("--dataset", tmp_path / "pets") == OWN
    assert chosen("--dataset", "moved/pets", "--root", tmp_path) == OWN
    assert parsed("--dataset", tmp_path / "pets").epochs == 600  # 16 images to train on: one batch


def test_an_npz_file_of_images_has_its_own_defaults(tmp_path):
    images, labels = np.zeros((640, 8, 8), np.uint8), np.arange(640) % 2
    parts = {"train_images": images, "train_labels": labels, "test_images": images[:9], "test_labels": labels[:9]}
    np.savez(tmp_path / "mine.npz", **parts)
    assert num_training_images(tmp_path / "mine.npz") == 640
    assert chosen("--dataset", tmp_path / "mine.npz") == OWN
    arguments = parsed("--dataset", tmp_path / "mine.npz")
    assert (arguments.epochs, arguments.image_size) == (60, None)
    assert parsed("--dataset", tmp_path / "mine.npz", "--holdout", 0.75).epochs == 120  # 160 in five batches


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (("--model", "small"), {"model": "small"}),
        (("--method", "crl-softmax"), {"method": "crl-softmax"}),
        (("--lr", 0.01, "--batch-size", 64), {"lr": 0.01, "batch_size": 64}),
        (("--optimizer", "sgd"), {"optimizer": "sgd", "lr": 0.1, "batch_size": 128}),
        (("--optimizer", "adamw"), {}),
        (("--recipe", "paper"), PAPER),
        (("--recipe", "best"), {**PAPER, "method": "baseline"}),
    ],
)
def test_what_is_given_wins(tmp_path, flags, changed):
    write_images(tmp_path / "pets")
    assert chosen("--dataset", tmp_path / "pets", *flags) == {**OWN, **changed}


def test_named_and_missing_data_have_the_defaults_of_the_paper(tmp_path, monkeypatch):
    write_images(tmp_path / "pets")
    monkeypatch.chdir(tmp_path / "pets")  # a folder of class folders, which nobody has named
    for flags in ((), ("--dataset", "digits"), ("--dataset", "cifar10"), ("--dataset", "nowhere")):
        assert chosen(*flags) == PAPER and parsed(*flags).epochs == 300


def test_a_config_keeps_what_it_says(tmp_path, command):
    write_images(tmp_path / "pets", size=(8, 8))
    settings = ("--model", "small", "--epochs", 1, "--recipe", "paper", "--device", "cpu", "--out", tmp_path / "run")
    command("train", "--dataset", tmp_path / "pets", *settings)
    stored = load_config(tmp_path / "run")
    assert (stored.optimizer, stored.lr, stored.batch_size) == ("sgd", 0.1, 128)
    again = parsed("--config", tmp_path / "run" / "config.yaml")
    assert {name: getattr(again, name) for name in OWN} == {name: getattr(stored, name) for name in OWN}
    assert again.epochs == 1 and again.image_size is None
    write_images(tmp_path / "pets", 1, size=(9, 8), first=50)
    assert parsed("--dataset", tmp_path / "pets").image_size == 32
    assert parsed("--config", tmp_path / "run" / "config.yaml").image_size is None


@pytest.mark.parametrize(
    ("first", "second", "size"),
    [((8, 8), (8, 8), None), ((64, 40), (64, 40), None), ((8, 8), (8, 9), 32), ((65, 40), (65, 40), 32)],
)
def test_images_are_scaled_if_they_are_large_or_of_several_sizes(tmp_path, command, capsys, first, second, size):
    write_images(tmp_path / "pets", 3, first)
    write_images(tmp_path / "pets", 3, second, first=3)
    assert parsed("--dataset", tmp_path / "pets").image_size == size
    assert parsed("--dataset", tmp_path / "pets", "--recipe", "paper").image_size == size
    assert parsed("--dataset", tmp_path / "pets", "--image-size", 16).image_size == 16
    command("data", "check", tmp_path / "pets")
    shape = (size, size) if size else first
    assert f"images of {shape[0]}x{shape[1]}x3 " in capsys.readouterr().out


def test_only_images_of_the_splits_count(tmp_path):
    write_images(tmp_path / "train", 5)
    write_images(tmp_path / "test", 2)
    write_images(tmp_path / "drafts", 1, (90, 90))
    assert num_training_images(tmp_path) == 10
    assert usual_image_size(image_files(tmp_path)) is None


@pytest.mark.parametrize(
    "damage",
    ["no shape", "no images", "deflated", "encrypted", "unknown method", "header", "cut", "no end", "empty"],
)
def test_training_reports_what_is_wrong_with_an_npz_file(tmp_path, command, capsys, damage):
    path = tmp_path / "mine.npz"
    images = np.uint8(3) if damage == "no shape" else np.zeros((40, 8, 8), np.uint8)
    np.savez_compressed(path, **{"labels" if damage == "no images" else "train_images": images})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    if damage == "deflated":
        content[60:90] = b"\xff" * 30
    elif damage == "encrypted":
        content[6] = content[entry + 8] = 1
    elif damage == "unknown method":
        content[8] = content[entry + 10] = 99
    path.write_bytes(content[: {"cut": 100, "no end": -30, "empty": 0}.get(damage, len(content))])
    if damage == "header":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("train_images.npy", b"\x93NUMPY\x01\x00\x20\x00{'descr': " + b"(" * 22)
    assert parsed("--dataset", path).epochs == RunConfig.epochs
    command("train", "--dataset", path, "--device", "cpu", "--out", tmp_path / "run", code=2)
    error = capsys.readouterr().err
    assert error.startswith("confrank: error: expected ") and "mine.npz" in error


def test_the_size_of_a_turned_image_is_that_of_its_pixels(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    assert size_of(tmp_path / "a.jpg") == read_picture(tmp_path / "a.jpg")[1] == (30, 20)
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="expected a readable image"):
        size_of(tmp_path / "b.png")
    assert usual_image_size([tmp_path / "b.png"]) is None


def test_training_says_what_it_chose(tmp_path, command, capsys):
    write_images(tmp_path / "pets", 10, (40, 50))
    write_images(tmp_path / "pets", 10, (50, 40), first=10)
    command("train", "--dataset", tmp_path / "pets", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    printed = " ".join(capsys.readouterr().out.split())
    assert "training pets-convnet-baseline-adamw-seed0 in" in printed
    assert (
        "defaults that suit your own images on a CPU (32 of 32x32 pixels): --model convnet, --method baseline,"
        " --optimizer adamw, --lr 0.001, --batch-size 32" in printed
    )
    assert "try a deeper --model, more --epochs or a lower --lr" in printed
    flags = ("--model", "small", "--method", "crl-softmax", "--optimizer", "sgd", "--epochs", 1, "--device", "cpu")
    command("train", "--dataset", tmp_path / "pets", *flags, "--out", tmp_path / "other")
    printed = " ".join(capsys.readouterr().out.split())
    assert "defaults that suit" not in printed
    assert "try --model convnet, more --epochs, a lower --lr or --method baseline" in printed
    flags = ("--model", "small", "--recipe", "best", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "best")
    command("train", "--dataset", tmp_path / "pets", *flags)
    assert "defaults that suit" not in capsys.readouterr().out


def test_labels_of_a_pool_train_with_these_defaults(tmp_path, command, monkeypatch):
    write_images(tmp_path / "pool", 20, (8, 9))
    write_images(tmp_path / "pool", 20, (9, 8), first=20)
    names = [f"{name}/{place}.png,{name}\n" for name in ("cat", "dog") for place in range(40)]
    (tmp_path / "labelled.csv").write_text("".join(["path,label\n", *names]))
    configs = []
    monkeypatch.setattr("confrank.training.train", lambda config, *_, **__: configs.append(config) or 1 / 0)
    flags = ("--pool", tmp_path / "pool", "--labelled", tmp_path / "labelled.csv", "--out", tmp_path / "run")
    for more in ((), ("--optimizer", "sgd", "--image-size", 8, "--epochs", 7, "--model", "resnet18")):
        with pytest.raises(ZeroDivisionError):
            command("active", "train", *flags, "--device", "cpu", *more)
    own, other = configs
    assert {name: getattr(own, name) for name in OWN} == OWN
    assert (own.epochs, own.image_size, own.lr_drops) == (300, 32, (0.6, 0.8))  # 64 of 80: two batches
    assert (other.model, other.method, other.epochs, other.image_size) == ("resnet18", "baseline", 7, 8)
    assert (other.optimizer, other.lr, other.batch_size) == ("sgd", 0.1, 128)


@pytest.mark.slow
def test_a_first_run_on_photos_of_several_sizes_learns_shapes(tmp_path, command):
    rows, columns = np.mgrid[:40, :48]
    random = np.random.default_rng(0)
    for number in range(240):
        ground, colour = random.integers(0, 256, (2, 3))
        y, x, radius = random.integers(14, 26), random.integers(16, 32), random.integers(8, 13)
        away = np.abs(rows - y), np.abs(columns - x)
        inside = (away[0] + away[1] < 1.3 * radius) if number % 2 else (np.maximum(*away) < radius)
        pixels = np.where(inside[..., None], colour, ground)[: 40 - number % 3]
        folder = tmp_path / "shapes" / ("diamond" if number % 2 else "square")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    command("train", "--dataset", tmp_path / "shapes", "--device", "cpu", "--out", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["acc"] > 0.9
