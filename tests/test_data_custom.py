"""Custom data and sets of images: folders, archives and npz files, intact and damaged."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from confrank.config import RunConfig
from confrank.data import hold_out, load, load_images
from confrank.data.custom import channel_statistics
from confrank.data.pictures import decode, picture_files
from confrank.report.runs import share_of_chance
from confrank.runs.outputs import keep_out_of_data


def pixels(seed, height=8, width=8, channels=3):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **({"lossless": True} if path.suffix == ".webp" else {}))


def encoded(array, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def pets(folder, channels=3):
    """Two classes, four training and three test pictures in lossless formats (WebP knows no grey)."""
    last = "train/dog/x.webp" if channels == 3 else "train/dog/x.png"
    names = ["train/cat/b.png", "train/cat/a.bmp", last, "train/dog/more/deep.png"]
    names += ["test/dog/1.png", "test/cat/2.PNG", "test/dog/0.png"]
    arrays = {name: pixels(seed, channels=channels) for seed, name in enumerate(names)}
    for name, array in arrays.items():
        save(folder / name, array)
    (folder / "train" / "cat" / ".DS_Store").write_bytes(b"hidden")
    (folder / "train" / "cat" / "notes.txt").write_text("no picture")
    return arrays


def test_a_folder_of_class_folders(tmp_path):
    arrays = pets(tmp_path / "pets")
    data = load(str(tmp_path / "pets"))
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog")
    train = ["train/cat/a.bmp", "train/cat/b.png", "train/dog/more/deep.png", "train/dog/x.webp"]
    test = ["test/cat/2.PNG", "test/dog/0.png", "test/dog/1.png"]
    assert np.array_equal(data.train.images, np.stack([arrays[name] for name in train]))
    assert np.array_equal(data.test.images, np.stack([arrays[name] for name in test]))
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 1, 1]
    assert data.train.path.tolist() == [name.encode() for name in train]
    assert data.test.select(np.array([2, 0])).path.tolist() == [b"test/dog/1.png", b"test/cat/2.PNG"]
    assert (data.padding, data.flip) == (4, True)
    scaled = data.train.images.reshape(-1, 3) / 255
    assert np.allclose(data.mean, scaled.mean(0))
    assert np.allclose(data.std, scaled.std(0))
    assert np.array_equal(load_images(str(tmp_path / "pets")), data.test.images)


def test_grey_pictures_keep_one_channel_unless_mixed(tmp_path):
    arrays = pets(tmp_path, channels=1)
    data = load(str(tmp_path))
    assert data.test.images.shape == (3, 8, 8, 1)
    assert np.array_equal(data.test.images[0, :, :, 0], arrays["test/cat/2.PNG"])
    assert (data.padding, data.flip, len(data.mean)) == (0, False, 1)
    save(tmp_path / "test" / "dog" / "2.png", pixels(9))
    mixed = load(str(tmp_path))
    assert mixed.train.images.shape == (4, 8, 8, 3)
    assert np.array_equal(mixed.test.images[0], np.repeat(arrays["test/cat/2.PNG"][:, :, None], 3, axis=2))


def test_sizes_that_differ_need_an_image_size(tmp_path):
    arrays = pets(tmp_path)
    save(tmp_path / "train" / "dog" / "wide.png", np.full((10, 20, 3), 77, dtype=np.uint8))
    with pytest.raises(
        ValueError, match=r"one size, but got 8x8 in .*a.bmp and 20x10 in .*wide.png; set `image_size` to scale them$"
    ):
        load(str(tmp_path))
    data = load(str(tmp_path), image_size=6)
    assert data.train.images.shape == (5, 6, 6, 3)
    assert (data.train.images[3] == 77).all()
    assert np.array_equal(load(str(tmp_path), image_size=8).train.images[0], arrays["train/cat/a.bmp"])
    for size in (0, -3, 10_000):
        with pytest.raises(ValueError, match=f"image size within 1..4096, but got {size}"):
            load(str(tmp_path), image_size=size)


def test_wide_pictures_are_cut_to_their_middle():
    stripes = np.zeros((10, 30, 3), dtype=np.uint8)
    stripes[:, 10:20] = 200
    assert (decode(encoded(stripes), "stripes", size=10) == 200).all()


def test_pictures_of_many_modes():
    grey, colour = pixels(0, channels=1), pixels(1)
    assert decode(encoded(grey), "grey").shape == (8, 8, 1)
    assert np.array_equal(decode(encoded(np.dstack([colour, pixels(2, channels=1)])), "alpha"), colour)
    palette = Image.fromarray(colour).quantize(4)
    stream = io.BytesIO()
    palette.save(stream, "PNG", transparency=bytes([0, 255, 255, 255]))
    assert np.array_equal(decode(stream.getvalue(), "palette"), np.asarray(palette.convert("RGB")))
    smooth = np.full((8, 8, 3), 120, dtype=np.uint8)
    assert np.abs(decode(encoded(smooth, "JPEG"), "jpeg").astype(int) - 120).max() <= 2
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    assert np.array_equal(decode(encoded(colour, exif=exif), "turned"), np.rot90(colour, -1))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not an image of these formats"),
        (b"GIF89a" + bytes(20), "not an image of these formats"),
        (encoded(pixels(0, 64, 64))[:1000], ""),
        (encoded(pixels(0, 64, 64), "JPEG")[:700], ""),
        (encoded(np.zeros((4, 4), dtype=np.uint16)), "not 8-bit"),
    ],
)
def test_what_is_no_picture_is_named(content, why):
    with pytest.raises(ValueError, match=f"8-bit PNG, JPEG, WebP or BMP image, but over/there.png: .*{why}"):
        decode(content, "over/there.png")


def test_a_large_picture_is_read_without_a_warning(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "PNG")
    assert decode(file.getvalue(), "large.png").shape == (8, 8, 1)


def without(folder, *names):
    for name in names:
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: (folder / "test").rename(folder / "other"),
            "train/CLASS/ and test/CLASS/ .* but it has no test; give .*train itself to test on a fifth of it",
        ),
        (
            lambda folder: save(folder / "test/cow/1.png", pixels(0)),
            "classes of .*train in test too, but got cow there",
        ),
        (lambda folder: (folder / "train/eel").mkdir(), "expected images in .*eel, but there are none"),
        (lambda folder: (folder / "train/cat/old.gif").write_bytes(b"GIF89a"), "but got .*old.gif; convert them"),
        (lambda folder: (folder / "train/cat/bad.png").write_bytes(b"\x89PNG"), "but .*bad.png"),
        (
            lambda folder: without(folder, "test/dog/1.png", "test/cat/2.PNG", "test/dog/0.png"),
            "in .*test, but there",
        ),
    ],
)
def test_folders_that_are_no_data_set(tmp_path, change, message):
    pets(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path))


def arrays_of(**changed):
    rng = np.random.default_rng(0)
    arrays = {
        "train_images": rng.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_images": rng.integers(0, 256, (3, 5, 4, 3), dtype=np.uint8),
        "test_labels": np.array([2, 1, 0], dtype=np.uint8),
    }
    return {key: value for key, value in (arrays | changed).items() if value is not None}


def test_npz(tmp_path):
    path, arrays = tmp_path / "mine.npz", arrays_of(class_names=np.array(["ant", "bee", "cow"]))
    np.savez(path, **arrays)
    data = load(str(path))
    assert data.name == "mine"
    assert data.class_names == ("ant", "bee", "cow")
    assert np.array_equal(data.train.images, arrays["train_images"])
    assert data.test.labels.tolist() == [2, 1, 0]
    assert data.test.labels.dtype == np.int64
    assert (data.padding, data.flip) == (4, True)
    assert np.array_equal(load_images(str(path)), arrays["test_images"])
    grey = arrays_of(train_images=arrays["train_images"][..., 0], test_images=arrays["test_images"][..., 0])
    np.savez_compressed(path, **grey)
    assert load(str(path)).train.images.shape == (6, 5, 4, 1)
    assert load(str(path)).class_names == ("0", "1", "2")
    np.savez(path, images=arrays["test_images"])
    assert np.array_equal(load_images(str(path)), arrays["test_images"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test_labels": None}, "train_labels, test_images: test_labels missing"),
        ({"train_images": np.zeros((6, 5, 4, 3))}, "train_images in .* uint8 .*, but got float64 of shape"),
        ({"train_labels": np.zeros(6)}, "train_labels in .* 6 whole numbers, but got float64"),
        ({"train_labels": np.zeros(5, dtype=int)}, r"6 whole numbers, but got int64 of shape \[5\]"),
        ({"test_labels": np.array([0, -1, 1])}, "0 or more, but got -1"),
        ({"test_labels": np.array([0, 3, 1]), "class_names": np.array(["a", "b", "c"])}, "within 0..2 .* but got 3"),
        ({"test_images": np.zeros((3, 5, 5, 3), np.uint8)}, r"one shape in .* but got \[5, 4, 3\] and \[5, 5, 3\]"),
        ({"train_images": np.zeros((0, 5, 4, 3), np.uint8), "train_labels": np.zeros(0, int)}, "shape .0, 5, 4, 3."),
        ({"train_labels": np.zeros(6, int), "test_labels": np.zeros(3, int)}, "at least two classes"),
        ({"train_labels": np.array([object()] * 6)}, "plain arrays"),
    ],
)
def test_npz_that_is_no_data_set(tmp_path, changed, message):
    np.savez(tmp_path / "mine.npz", **arrays_of(**changed))
    with pytest.raises(ValueError, match=message) as caught:
        load(str(tmp_path / "mine.npz"))
    assert "mine.npz" in str(caught.value)


def test_statistics_are_those_of_all_pixels():
    images = np.random.default_rng(0).integers(0, 256, (5000, 3, 2, 3), dtype=np.uint8)
    images[..., 1] = 51
    mean, std = channel_statistics(images)
    assert np.allclose(mean, (images / 255).mean((0, 1, 2)), rtol=1e-12)
    assert np.allclose(std, [(images[..., 0] / 255).std(), 1.0, (images[..., 2] / 255).std()], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "folder"), [("tinyimagenet", "Imagenet_resize"), ("lsun", "LSUN_resize"), ("isun", "iSUN")]
)
@pytest.mark.parametrize("parent", ["root", "name"])
def test_image_sets(tmp_path, name, folder, parent):
    root = tmp_path / name if parent == "name" else tmp_path
    arrays = {f"{folder}/{folder}/{k:03d}.png": pixels(k, 32, 32) for k in (2, 0, 1)}
    for path, array in arrays.items():
        save(root / path, array)
    expected = np.stack([arrays[path] for path in sorted(arrays)])
    assert np.array_equal(load_images(name, tmp_path), expected)
    assert np.array_equal(load_images(str(root / folder)), expected)
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / f"{folder}.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(f"{folder}/._000.png"))
        for path, array in arrays.items():
            content = encoded(array)
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert np.array_equal(load_images(name, packed), expected)
    with pytest.raises(ValueError, match=f"labels among digits, .* but got '{name}', which has only test images"):
        load(name, tmp_path)


def test_image_sets_that_are_not_as_published(tmp_path):
    (tmp_path / "LSUN_resize").mkdir()
    with pytest.raises(ValueError, match="images in .*LSUN_resize, but there are none"):
        load_images("lsun", tmp_path)
    save(tmp_path / "LSUN_resize" / "0.png", pixels(0, 36, 36))
    with pytest.raises(ValueError, match=r"32x32 in .*LSUN_resize, but got .* \[36, 36, 3\]; set `image_size` to 32"):
        load_images("lsun", tmp_path)
    assert load_images("lsun", tmp_path, image_size=32).shape == (1, 32, 32, 3)
    with pytest.raises(ValueError, match=r"among digits, .*isun, or the path .* but got 'lsum'"):
        load_images("lsum", tmp_path)


def test_a_known_name_is_never_a_path(tmp_path, monkeypatch):
    pets(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert load("digits").num_classes == 10
    assert load_images("digits").shape == (897, 8, 8, 1)
    assert load("./digits").class_names == ("cat", "dog")


def test_training_on_a_custom_folder(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    pets(tmp_path / "pets")
    save(tmp_path / "pets" / "train" / "dog" / "wide.png", pixels(9, 10, 20))
    flags = ["--dataset", "pets/", "--epochs", 1, "--device", "cpu", "--image-size", 8]
    command("train", *flags)
    run = tmp_path / "runs" / "pets-convnet-baseline-adamw-seed0"
    assert (run / "metrics.json").exists()
    printed = capsys.readouterr().out
    assert "1 of 8 images is not square: cropped to its central square\n" in printed
    assert "training shifts and mirrors colour images at random (settings padding and flip)\n" in printed
    command("train", *flags, "--flip", "false", "--out", "still")
    assert "mirrors" not in capsys.readouterr().out
    command("predict", run, "--split", "train", "--device", "cpu")
    assert "wrote 5 predictions, 2 classes, logits, confidence, identified by path" in capsys.readouterr().out
    assert RunConfig(dataset="a/b/my.npz").run_name == "my-small-crl-softmax-seed0"


@pytest.mark.parametrize("learnable", [True, False])
def test_a_network_that_has_learned_little_is_pointed_out(tmp_path, capsys, command, learnable):
    rng = np.random.default_rng(0)
    label = np.arange(200) % 2
    images = rng.integers(0, 100, (200, 8, 8), dtype=np.uint8)
    if learnable:
        images += (100 * label[:, None, None]).astype(np.uint8)
    parts = {"train": slice(100), "test": slice(100, 200)}
    arrays = {f"{part}_images": images[rows] for part, rows in parts.items()}
    np.savez(tmp_path / "a.npz", **arrays, **{f"{part}_labels": label[rows] for part, rows in parts.items()})
    flags = ("--model", "small", "--epochs", 4, "--batch-size", 20, "--optimizer", "sgd", "--device", "cpu")
    command("train", "--dataset", tmp_path / "a.npz", *flags, "--out", tmp_path / "run")
    printed = capsys.readouterr().out
    assert "\n4 epochs with sgd, initial learning rate 0.1\n" in printed
    accuracy = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["acc"]
    assert accuracy > 0.9 if learnable else accuracy < 0.58  # 0.5 + 1.645 x sqrt(0.25 / 100) is 0.582
    assert ("is not clearly above the share of the most frequent class, 50.0%; try" in printed) != learnable


def test_a_network_that_fits_its_training_images_alone_needs_more_of_them(tmp_path, capsys, command):
    rng = np.random.default_rng(0)
    images, label = rng.integers(0, 256, (150, 8, 8), dtype=np.uint8), np.arange(150) % 2  # noise: nothing to learn
    arrays = {"train_images": images[:50], "train_labels": label[:50]}
    np.savez(tmp_path / "a.npz", **arrays, test_images=images[50:], test_labels=label[50:])
    flags = ("--model", "mlp", "--epochs", 20, "--device", "cpu", "--out", tmp_path / "run")
    command("train", "--dataset", tmp_path / "a.npz", *flags)
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["acc"] == 1
    assert (
        "; try more training data, since the network fits those it has (accuracy 100.0%)\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("right", "labels", "warned"),
    [
        (2, [0, 1], False),  # 100%: chance reaches it in a quarter of all cases, but no accuracy could be clearer
        (1, [0, 1], True),
        (3, [0, 0, 0], False),
        (2, [0, 0, 0], True),
        (15, [0] * 10 + [1] * 10, False),  # P(X >= 15) = 0.021 for a fair coin
        (13, [0] * 10 + [1] * 10, True),  # 0.132
        (0, [0] * 10, True),
    ],
)
def test_the_accuracy_of_a_small_test_set(right, labels, warned):
    assert (share_of_chance(right / len(labels), np.array(labels)) is not None) == warned


def test_all_pictures_that_cannot_be_read_are_listed(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    pets(Path("pets"))
    save(Path("pets/train/dog/wide.png"), pixels(9, 10, 20))
    command("data", "check", "pets", "--image-size", 8)
    printed = capsys.readouterr().out
    assert "pets: images of 8x8x3 from pets\n" in printed
    assert "1 of 8 images is not square: cropped to its central square\n" in printed
    Path("pets/train/cat/b.png").write_bytes(b"no picture")
    Path("pets/test/dog/0.png").write_bytes(Path("pets/test/dog/0.png").read_bytes()[:60])
    command("train", "--dataset", "pets", "--image-size", 8, "--epochs", 1, code=2)
    error = capsys.readouterr().err
    assert "but pets/train/cat/b.png: not an image of these formats (and 1 more); confrank data check pets" in error
    command("data", "check", "pets", "--image-size", 8, code=2)
    printed = capsys.readouterr()
    assert "but pets/train/cat/b.png: not an image of these formats\n" in printed.out
    assert "but pets/test/dog/0.png: " in printed.out
    assert "expected readable images in pets, but 2 of 8 cannot be read (listed above)" in printed.err
    command("data", "check", "digits", "--image-size", 8, code=2)
    assert (
        "expected an image size only for a folder of images, but got 8 with digits; leave out --image-size"
        in capsys.readouterr().err
    )


def test_pictures_that_are_read_are_not_drawn_over(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    pets(tmp_path / "pets")
    command("train", "--dataset", "pets", "--epochs", "1", "--device", "cpu", "--out", "run")
    before = {path: path.read_bytes() for path in sorted(Path("pets").rglob("*")) if path.is_file()}
    picture = next(path for path in before if path.parts[1] == "train" and path.suffix == ".png")
    capsys.readouterr()
    for arguments in (
        ["report", "events", "run", "--out", picture],
        ["evaluate", "run", "--figure", "pets/test/new.png"],
        ["evaluate", "run", "--figures", "pets/test"],
        ["ood", "run", "--against", "pets/test/cat", "--tuning", "none", "--figures", "pets/test/cat/figures"],
    ):
        command(*arguments, code=2)
        assert "expected a path outside pets/t" in (said := capsys.readouterr().err), said
        assert "whose images this command reads, but got" in said
    assert {path: path.read_bytes() for path in sorted(Path("pets").rglob("*")) if path.is_file()} == before
    command("report", "events", "run", "--out", "pets/events.png")


def test_folders_behind_links_are_gone_into_but_not_in_circles(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "pictures"
    folder.mkdir()
    for path in (folder / "a.png", elsewhere / "b.png"):
        Image.new("L", (4, 4)).save(path)
    (folder / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(folder)
    (folder / "up").symlink_to(tmp_path)
    (folder / "again").symlink_to(elsewhere)
    (folder / ".hidden").mkdir()
    Image.new("L", (4, 4)).save(folder / ".hidden" / "c.png")
    (folder / "real").mkdir()
    Image.new("L", (4, 4)).save(folder / "real" / "d.png")
    (folder / "latest").symlink_to(folder / "real")
    (folder / "itself.png").symlink_to("itself.png")
    (folder / "through").symlink_to("a.png/b")
    names = [path.relative_to(folder).as_posix() for path in picture_files(folder)]
    assert names == ["a.png", "again/b.png", "real/d.png"]
    with pytest.raises(ValueError, match="whose images this command reads"):
        keep_out_of_data([folder], elsewhere / "sheet.png")


def write_classes(folder, counts):
    """Images of noise in one folder per class."""
    draw = np.random.default_rng(0)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / name / f"{number}.png")


def test_a_folder_of_class_folders_is_divided(tmp_path):
    write_classes(tmp_path / "photos", {"cat": 20, "dog": 10, "runs": 0})
    data, again = load(str(tmp_path / "photos")), load(str(tmp_path / "photos"))
    assert data.class_names == ("cat", "dog") and data.digest() == again.digest()
    assert np.bincount(data.train.labels).tolist() == [16, 8] and np.bincount(data.test.labels).tolist() == [4, 2]
    assert not {*data.train.path.tolist()} & {*data.test.path.tolist()}
    assert "no folders train and test: 6 of 30 images, drawn from each class, are tested" in data.notes
    write_classes(tmp_path / "alone", {"cat": 5, "runs": 0})
    with pytest.raises(ValueError, match="expected two folders of images or more in .*, but got cat"):
        load(str(tmp_path / "alone"))
    write_classes(tmp_path / "few", {"cat": 1, "dog": 1})
    with pytest.raises(ValueError, match="leaves samples on both sides, but got 0.2 of 2 samples"):
        load(str(tmp_path / "few"))
    write_classes(tmp_path / "one", {"cat": 4, **{f"class{number}": 1 for number in range(9)}})
    data = load(str(tmp_path / "one"))  # single images are trained on
    assert np.bincount(data.train.labels).tolist() == [3] + 9 * [1] and data.test.labels.tolist() == [0]
    assert "no test samples of class0, class1, class2, class3, class4 and 4 more" in data.notes


def test_copies_are_on_the_same_side_of_a_split(tmp_path):
    write_classes(tmp_path / "photos", {"cat": 40, "dog": 40})
    for path in [*(tmp_path / "photos").rglob("*.png")]:
        if int(path.stem) % 2:
            path.with_name(f"{path.stem} (1).png").write_bytes(path.read_bytes())
    data = load(str(tmp_path / "photos"))
    used, held = hold_out(data, 0.3)
    names = [{path.decode().replace(" (1)", "") for path in part.path} for part in (used.train, held, data.test)]
    assert sum(map(len, names)) == len(set.union(*names)) == 80
    assert len(used.train) + len(held) + len(data.test) == 120 and min(len(held), len(data.test)) >= 15
    assert not any("occur in training" in note for note in data.notes)
    for path in (tmp_path / "photos").rglob("*.png"):  # one image per class: a copy is tested, and a note says so
        path.write_bytes((tmp_path / "photos" / path.parent.name / "0.png").read_bytes())
    notes = load(str(tmp_path / "photos")).notes
    assert "24 of 24 test images also occur in training" in notes


def test_a_run_on_class_folders_is_used_like_any_other(tmp_path, command, capsys):
    flat, new, run = tmp_path / "flat", tmp_path / "new", tmp_path / "runs" / "flat-small-baseline-seed0"
    write_classes(flat, {"cat": 10, "dog": 10})
    write_classes(new, {"owl": 6})
    cells = ("--models", "small", "--methods", "baseline", "--seeds", 0, "--epochs", 1)
    folders = ("--out", run.parent, "--results", tmp_path / "results", "--device", "cpu")
    command("study", "table-clf-perf", "--datasets", flat, *cells, *folders, "--shift")
    result = json.loads((tmp_path / "results" / f"{run.name}.json").read_text())
    assert result["shift"] and result["mirrored"]
    command("predict", run, "--split", "train", "--device", "cpu")
    assert "16 predictions, 2 classes" in capsys.readouterr().out
    command("ood", run, "--against", new, "--detectors", "energy", "--device", "cpu")
    command("report", "events", run, "--out", tmp_path / "events.png")
    assert (tmp_path / "events.png").exists()
    (flat / "cat" / "0.png").unlink()
    for arguments in (("predict", run, "--split", "train", "--device", "cpu"), ("report", "events", run)):
        command(*arguments, code=2)
        assert "images, labels or classes have changed since" in capsys.readouterr().err


def test_the_folders_of_a_pool_are_no_classes(tmp_path, command, capsys):
    pool, run = tmp_path / "pool", tmp_path / "run"
    write_classes(pool, {"monday": 10, "tuesday": 10})
    names = [f"{day}/{number}.png" for day in ("monday", "tuesday") for number in range(10)]
    # The labels say what the folders say: the digests alone could not tell them apart.
    labelled = "".join(f"{name},{name.partition('/')[0]}\n" for name in names)
    (tmp_path / "labelled.csv").write_text(f"path,label\n{labelled}")
    flags = ("--model", "small", "--method", "baseline", "--epochs", 1, "--device", "cpu", "--out", run)
    command("active", "train", "--pool", pool, "--labelled", tmp_path / "labelled.csv", *flags)
    capsys.readouterr()
    command("predict", run, "--device", "cpu", code=2)
    assert f"expected the data of {run} with labels, but {pool} has none; a run that" in capsys.readouterr().err
    command("evaluate", run, "--report", tmp_path / "page.html")
    assert "no images of mistakes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("training", "testing"), ("TRAIN", "eval"), ("train", "Dev"), ("Training_Set", "test_set")],
)
def test_splits_have_many_names(tmp_path, train, test):
    write_classes(tmp_path / train, {"cat": 3, "dog": 2})
    write_classes(tmp_path / test, {"cat": 1, "dog": 1})
    data = load(str(tmp_path))
    assert data.class_names == ("cat", "dog") and (len(data.train), len(data.test)) == (5, 2)
    assert np.array_equal(load_images(str(tmp_path)), data.test.images)
    other = () if test.lower().startswith("test") else (f"no folder test: {tmp_path / test} is the test split",)
    assert data.notes[: len(other) + 1] == (*other, "2 classes: cat, dog")


def test_splits_that_are_not_used_are_named(tmp_path):
    for name in ("train", "Valid", "test", "dev"):
        write_classes(tmp_path / name, {"cat": 3, "dog": 3})
    assert load(str(tmp_path)).notes[0] == "the images of Valid, dev are not used"
    (tmp_path / "test").rename(tmp_path / "val")
    notes = load(str(tmp_path)).notes
    assert notes[0] == f"no folder test: {tmp_path / 'val'} is the test split; the images of Valid, dev are not used"


def test_a_plain_name_of_a_split_comes_before_one_with_an_ending(tmp_path):
    for number, name in enumerate(("train", "train_images", "test", "test_set"), start=2):
        write_classes(tmp_path / name, {"cat": number, "dog": number})
    data = load(str(tmp_path))
    assert (len(data.train), len(data.test)) == (4, 8)
    assert data.notes[0] == "the images of train_images, test_set are not used"


def test_a_folder_around_the_data_is_named(tmp_path):
    write_classes(tmp_path / "unpacked", {"cat": 3, "dog": 3})
    with pytest.raises(ValueError, match=f"but got unpacked; did you mean {tmp_path}/unpacked\\?"):
        load(str(tmp_path))


@pytest.mark.parametrize("names", [("eval", "Dev"), ("Testing", "validation")])
def test_splits_are_not_taken_for_classes(tmp_path, names):
    for name in names:
        write_classes(tmp_path / name, {"cat": 3, "dog": 3})
    with pytest.raises(ValueError, match=r"expected one folder per class in .*; rename them to train and test if"):
        load(str(tmp_path))


def test_classes_may_hold_folders_and_have_the_name_of_a_split(tmp_path):
    write_classes(tmp_path / "cat", {"images": 5})
    write_classes(tmp_path / "dog", {"images": 5})
    assert load(str(tmp_path)).class_names == ("cat", "dog")
    write_classes(tmp_path / "cat", {"2025": 3})
    write_classes(tmp_path / "dog", {"2025": 3})
    assert len(load(str(tmp_path)).train) + len(load(str(tmp_path)).test) == 16
    write_classes(tmp_path, {"Train": 5})
    assert load(str(tmp_path)).class_names == ("Train", "cat", "dog")


def test_test_images_that_are_trained_on_are_counted(tmp_path, command, capsys):
    for part, counts in {"train": {"cat": 6, "dog": 4}, "test": {"cat": 3, "dog": 1}}.items():
        write_classes(tmp_path / part, counts)  # the same noise in the same order: the cats of test are train's
    train, test = ([*(tmp_path / part).rglob("*.png")] for part in ("train", "test"))
    trained = {np.array(Image.open(path)).tobytes() for path in train}
    repeated = sum(np.array(Image.open(path)).tobytes() in trained for path in test)
    assert repeated >= 3
    command("data", "check", tmp_path)
    assert f"{repeated} of 4 test images also occur in training\n" in capsys.readouterr().out
    flags = ("--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    command("train", "--dataset", tmp_path, *flags)
    assert f"{repeated} of 4 test images also occur in training\n" in capsys.readouterr().out
