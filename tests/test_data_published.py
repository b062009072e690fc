"""The readers of published files: on small files in the published layout, on damaged ones, and on the real sets."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from confrank.data import load
from confrank.data.cifar import CIFAR100_CLASSES, load_cifar10, load_cifar100
from confrank.data.published import default_root
from confrank.data.survey import check, known_sets
from confrank.data.svhn import load_svhn, read_digits, svhn_test_images

REAL = os.environ.get("CONFRANK_TEST_DATA")
real_sets = pytest.mark.skipif(REAL is None, reason="CONFRANK_TEST_DATA names no folder with the real sets")


def records(seed, num_records, num_classes, num_label_bytes=1):
    """Random images [n, 32, 32, 3] and labels [n], and the same as CIFAR's records, written by a plain loop."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_records, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, num_classes, num_records)
    content = bytearray()
    for image, label in zip(images, labels, strict=True):
        content += bytes([19] * (num_label_bytes - 1) + [label])
        for channel in range(3):
            content += image[:, :, channel].tobytes()
    return images, labels, bytes(content)


def cifar10_files(num_records=7):
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    return {name: records(seed, num_records, 10) for seed, name in enumerate(names)}


def write_folder(folder, contents):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def write_archive(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("place", ["", "cifar10"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_in_every_folder_and_archive(tmp_path, place, packed):
    files = cifar10_files()
    contents = {name: content for name, (_, _, content) in files.items()}
    if packed:
        members = {f"cifar-10-batches-bin/{name}": content for name, content in contents.items()}
        junk = {"cifar-10-batches-bin/batches.meta.txt": b"x", "cifar-10-batches-bin/._test_batch.bin": b"resource"}
        write_archive(tmp_path / place / "cifar-10-binary.tar.gz", junk | dict(reversed(members.items())))
    else:
        write_folder(tmp_path / place / "cifar-10-batches-bin", contents)
    before = sorted(tmp_path.rglob("*"))
    data = load_cifar10(tmp_path, num_records=7)
    *train, test = files.values()
    assert np.array_equal(data.train.images, np.concatenate([images for images, _, _ in train]))
    assert np.array_equal(data.train.labels, np.concatenate([labels for _, labels, _ in train]))
    assert np.array_equal(data.test.images, test[0])
    assert np.array_equal(data.test.labels, test[1])
    assert data.train.labels.dtype == np.int64
    assert data.train.images.flags.c_contiguous
    assert (data.mean, data.std) == ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
    assert (data.padding, data.flip, data.num_classes) == (4, True, 10)
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked to disk


def test_cifar100_takes_the_fine_label(tmp_path):
    train, test = records(0, 9, 100, num_label_bytes=2), records(1, 4, 100, num_label_bytes=2)
    write_folder(tmp_path / "cifar-100-binary", {"train.bin": train[2], "test.bin": test[2]})
    data = load_cifar100(tmp_path, num_train=9, num_test=4)
    assert np.array_equal(data.train.images, train[0])
    assert np.array_equal(data.train.labels, train[1])
    assert np.array_equal(data.test.images, test[0])
    assert np.array_equal(data.test.labels, test[1])
    assert (data.mean, data.std) == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
    assert (data.padding, data.flip, data.num_classes) == (4, True, 100)
    assert list(CIFAR100_CLASSES) == sorted(set(CIFAR100_CLASSES))


def digits_file(path, num_images, seed=0, **changed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (num_images, 32, 32, 3), dtype=np.uint8)
    labels = rng.permutation(np.resize(np.arange(1, 11, dtype=np.uint8), num_images))
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": labels[:, None]} | changed)
    return images, labels


def test_svhn_writes_the_digit_0_as_10(tmp_path):
    (tmp_path / "svhn").mkdir()
    train = digits_file(tmp_path / "svhn" / "train_32x32.mat", 30)
    test = digits_file(tmp_path / "svhn" / "test_32x32.mat", 12, seed=1)
    data = load_svhn(tmp_path, num_train=30, num_test=12)
    assert np.array_equal(data.train.images, train[0])
    assert np.array_equal(data.train.labels, np.where(train[1] == 10, 0, train[1]))
    assert np.bincount(data.train.labels).tolist() == [3] * 10
    assert np.array_equal(data.test.images, test[0])
    assert data.class_names[0] == "0"
    assert (data.mean, data.std, data.padding, data.flip) == ((0.5,) * 3, (0.5,) * 3, 4, True)


def test_svhn_test_images_need_the_test_file_only(tmp_path):
    images, _ = digits_file(tmp_path / "test_32x32.mat", 12, seed=1)
    assert np.array_equal(svhn_test_images(tmp_path, num_test=12), images)
    with pytest.raises(ValueError, match="expected train_32x32.mat and test_32x32.mat in"):
        svhn_test_images(tmp_path / "elsewhere")


def test_a_set_of_the_right_size_needs_no_parameters(tmp_path, monkeypatch):
    rows = np.zeros((10_000, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(10_000) % 10
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    write_folder(tmp_path / "cifar-10-batches-bin", dict.fromkeys(names, rows.tobytes()))
    monkeypatch.setenv("CONFRANK_DATA", str(tmp_path))
    checked = check("cifar10")
    assert (checked.train, checked.test, checked.image_shape) == ((5000,) * 10, (1000,) * 10, (32, 32, 3))
    rows[0, 0] = 9
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows.tobytes())
    with pytest.raises(ValueError, match="expected 1,000 test images of class 0 in cifar10, but got 999"):
        check("cifar10")


def test_where_data_are_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("CONFRANK_DATA", str(tmp_path / "shelf"))
    assert default_root() == tmp_path / "shelf"
    with pytest.raises(ValueError, match=r"cifar-100-binary in .*shelf or .*; run: confrank data fetch cifar100$"):
        load("cifar100")
    monkeypatch.delenv("CONFRANK_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_root().name == "confrank"
    with pytest.raises(
        ValueError,
        match=r"test_32x32.mat in .*; run: confrank data fetch svhn, with the same `root`$",
    ):
        load("svhn", tmp_path)
    (tmp_path / "lsun" / "LSUN_resize").mkdir(parents=True)
    where = {item.name: item.paths for item in known_sets(tmp_path)}
    assert where["lsun"] == (tmp_path / "lsun" / "LSUN_resize",)
    assert where["isun"] == ()


def damaged_cifar10(tmp_path, change):
    contents = {name: content for name, (_, _, content) in cifar10_files().items()}
    change(contents)
    write_folder(tmp_path / "cifar-10-batches-bin", contents)
    load_cifar10(tmp_path, num_records=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda files: files.update({"data_batch_3.bin": files["data_batch_3.bin"][:-1]}),
            "21,511 bytes in .*3.bin.*21,510",
        ),
        (lambda files: files.update({"test_batch.bin": b""}), "expected 21,511 bytes in .*test_batch.bin, but got 0"),
        (lambda files: files.pop("data_batch_5.bin"), "expected the file .*data_batch_5.bin, but there is none"),
        (
            lambda files: files.update({"data_batch_1.bin": b"\x0a" + files["data_batch_1.bin"][1:]}),
            "expected labels within 0..9 in .*, but got 10 in record 0",
        ),
    ],
)
def test_damaged_records(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        damaged_cifar10(tmp_path, change)


def test_damaged_archives(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    contents = {f"cifar-10-batches-bin/{name}": file[2] for name, file in cifar10_files().items()}
    write_archive(path, contents)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (whole[: len(whole) // 2], whole[:-4], b"no archive at all", b"", bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"intact .tar.gz archive, but .*cifar-10-binary.tar.gz cannot be read"):
            load_cifar10(tmp_path, num_records=7)
    write_archive(path, {name: content for name, content in contents.items() if "batch_2" not in name})
    with pytest.raises(ValueError, match="expected data_batch_2.bin in .*tar.gz, but there is none"):
        load_cifar10(tmp_path, num_records=7)
    write_archive(path, contents | {"cifar-10-batches-bin/test_batch.bin": b"short"})
    with pytest.raises(ValueError, match="expected 21,511 bytes in test_batch.bin in .*, but got 5"):
        load_cifar10(tmp_path, num_records=7)


def test_damaged_mat_files(tmp_path):
    path = tmp_path / "train_32x32.mat"
    digits_file(path, 20)
    whole = path.read_bytes()
    for damaged in (b"", b"garbage " * 100, whole[:200], whole[:-1000], whole[:128] + b"\xff" * 1000):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="train_32x32.mat"):
            read_digits(path, 20)
    digits_file(path, 20)
    with pytest.raises(ValueError, match=r"X uint8 \[32, 32, 3, 21\] .* but got X uint8 \[32, 32, 3, 20\]"):
        read_digits(path, 21)
    digits_file(path, 20, y=np.zeros((20, 1), dtype=np.uint8))
    with pytest.raises(ValueError, match="labels within 1..10 in .*, but got 0 in row 0"):
        read_digits(path, 20)
    savemat(path, {"Z": np.zeros(3)})
    with pytest.raises(ValueError, match="but got neither"):
        read_digits(path, 20)


def test_random_damage_to_a_mat_file_is_a_value_error_or_harmless(tmp_path):
    path, rng = tmp_path / "test_32x32.mat", np.random.default_rng(0)
    digits_file(path, 2)
    whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    for _ in range(200):
        damaged = whole.copy()
        damaged[rng.integers(0, 400, 3)] = rng.integers(0, 256, 3)
        path.write_bytes(damaged[: rng.integers(100, len(whole) + 1)].tobytes())
        try:
            message, rows = "", len(read_digits(path, 2))
        except ValueError as error:
            message, rows = str(error), 0
        assert "test_32x32.mat" in message or rows == 2


@real_sets
@pytest.mark.parametrize(
    ("name", "num_train", "num_test"),
    [("cifar10", 50_000, 10_000), ("cifar100", 50_000, 10_000), ("svhn", 73_257, 26_032)],
)
def test_real_sets(name, num_train, num_test):
    data = load(name, REAL)
    assert data.train.images.shape == (num_train, 32, 32, 3)
    assert data.test.images.shape == (num_test, 32, 32, 3)
    train, test = np.bincount(data.train.labels), np.bincount(data.test.labels)
    if name == "svhn":
        assert (train[0], test[0]) == (4948, 1744)  # what the files call 10
        assert (train[1], test[1]) == (13861, 5099)
        assert len(train) == len(test) == 10
    else:
        assert set(train) == {num_train // data.num_classes}
        assert set(test) == {num_test // data.num_classes}
        # The published normalisation is that of these very pixels.
        pixels = data.train.images.reshape(-1, 3) / np.float32(255)
        assert np.allclose(pixels.mean(0, dtype=np.float64), data.mean, atol=6e-4)
        assert np.allclose(pixels.std(0, dtype=np.float64), data.std, atol=6e-4)


@real_sets
def test_real_image_set():
    checked = check("tinyimagenet", Path(REAL))
    assert checked.image_shape == (32, 32, 3)
    assert checked.test == (10_000,)
