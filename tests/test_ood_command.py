"""`confrank ood` from run folders or weights to table, JSON and figures; and what it says to wrong use."""

import io
import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from confrank.data import load
from confrank.metrics.separation import detection
from confrank.ood import results
from confrank.ood.results import Group, OodResult
from confrank.report.detection_plots import detection_figures
from confrank.runs.checkpoint import saved
from confrank.runs.folder import RunFolder
from confrank.runs.trained import save_weights_file

FAST = ("--device", "cpu", "--tuning-images", "60", "--neighbours", "5")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory, command):
    """Two short runs on digits, and both kinds of out-of-distribution images: a folder of pictures and an .npz."""
    folder = tmp_path_factory.mktemp("ood")
    for seed in "01":
        flags = ["--epochs", "1", "--method", "baseline", "--device", "cpu", "--seed", seed]
        command("train", *flags, "--out", folder / f"run{seed}")
    rng = np.random.default_rng(0)
    write_pictures(folder / "noise", rng.integers(0, 256, (120, 8, 8), dtype=np.uint8))
    np.savez(folder / "upside.npz", images=load("digits").test.images[:150, ::-1])
    return folder


def write_pictures(folder, images):
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:05d}.png")


@pytest.fixture(scope="module")
def ood(command):
    return partial(command, "ood")


def test_runs_to_table_json_and_figures(place, capsys, ood):
    out = place / "result.json", place / "figures"
    upside = place / "upside.npz"
    command = (place / "run0", place / "run1", "--against", upside, *FAST, "--json", out[0], "--figures", out[1])
    ood(*command)
    printed = capsys.readouterr().out
    tuning = "tuning: 60 in-distribution and 60 out-of-distribution images of each out-set, all left out of the test"
    assert tuning in printed
    result = json.loads(out[0].read_text())
    assert result["protocol"]["uses_out_of_distribution_images"] is True
    assert result["environment"]["torch"] == torch.__version__
    assert [run["name"] for run in result["runs"]] == ["run0", "run1"]  # not the folders of this machine
    first, second = ([one["metrics"]["auroc"] for one in run["outcomes"]] for run in result["runs"])
    assert len(first) == 7
    assert {(one["num_in"], one["num_out"]) for one in result["runs"][0]["outcomes"]} == {(837, 90)}
    (energy,) = [
        row["ours"]
        for row in result["summary"]
        if row["method"] == "baseline-1epochs/energy" and row["metric"] == "auroc"
    ]
    assert energy["mean"] == pytest.approx((first[4] + second[4]) / 2)
    assert energy["std"] == pytest.approx(abs(first[4] - second[4]) / 2**0.5)
    assert f"{100 * energy['mean']:.2f}±{100 * energy['std']:.2f}" in printed
    names = sorted(path.name for path in out[1].iterdir())
    assert len(names) == 4
    assert sum(name.startswith("roc-digits-small-baseline-1epochs") for name in names) == 2
    assert all(path.stat().st_size > 5000 for path in out[1].iterdir())


def test_a_stopped_command_leaves_the_results_so_far(place, tmp_path, monkeypatch, capsys, ood):
    """Ctrl-C, at a moment that is the same every time: when the third result is computed."""
    judged = []

    def stopping(*scores, **options):
        judged.append(scores)
        if len(judged) == 3:
            raise KeyboardInterrupt
        return detection(*scores, **options)

    monkeypatch.setattr(results, "detection", stopping)
    flags = ("--tuning", "none", "--detectors", "energy,max-logit", "--device", "cpu", "--json", tmp_path / "o.json")
    ood(place / "run0", place / "run1", "--against", place / "noise", *flags, code=130)
    runs = json.loads((tmp_path / "o.json").read_text())["runs"]
    assert [(run["name"], [one["detector"] for one in run["outcomes"]]) for run in runs] == [
        ("run0", ["energy", "max-logit"])
    ]


def test_the_same_seed_gives_the_same_table(place, capsys, ood):
    command = (place / "run0", "--against", place / "noise", place / "upside.npz", *FAST, "--format", "markdown")
    texts = []
    for seed, *some in (("0", "odin", "energy"), ("0", "odin,energy"), ("1", "odin,", "energy")):
        ood(*command, "--detectors", *some, "--seed", seed)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("| data set | network | method | out-set | runs |")


def test_without_tuning_and_from_plain_weights(place, capsys, ood):
    weights = place / "weights.safetensors"
    (newest,) = saved(RunFolder(place / "run0").checkpoint)[-1:]
    save_file(load_file(newest / "weights.safetensors"), weights)
    common = ("--against", place / "noise", "--device", "cpu", "--tuning", "none", "--format", "csv")
    ood(place / "run0", *common)
    run = capsys.readouterr()
    assert "tuning: none, nothing out-of-distribution was used before the test (ODIN T = 1000" in run.err
    ood(weights, "--model", "small", "--dataset", "digits", *common)
    assert capsys.readouterr().out.replace("baseline/", "baseline-1epochs/") == run.out
    ood(weights, *common, code=2)
    error = capsys.readouterr().err
    assert "but there is none; `confrank ood` takes its --model and --dataset; in Python, give `config`" in error
    ood(weights, "--model", "small", *common, code=2)
    assert "expected --model and --dataset together with a .safetensors file" in capsys.readouterr().err
    save_weights_file(place / "run0", place / "half.safetensors")
    ood(place / "half.safetensors", *common)
    assert "baseline-1epochs/max-probability" in capsys.readouterr().out
    ood(place / "half.safetensors", "--model", "small", "--dataset", "digits", *common)
    assert "baseline-1epochs/max-probability" in capsys.readouterr().out  # as the file tells
    told = ("--model", "small", "--dataset", "digits", "--method", "crl-softmax")
    ood(place / "half.safetensors", *told, *common, code=2)
    assert "expected method baseline, which" in capsys.readouterr().err
    ood(weights, "--model", "resnet18", "--dataset", "digits", *common, code=2)
    assert "expected weights of its network in" in capsys.readouterr().err
    ood(place / "none.safetensors", *common, code=2)
    assert "none.safetensors does not exist" in capsys.readouterr().err


def test_published_sets_by_their_folders(place, tmp_path, capsys, ood):
    rng = np.random.default_rng(0)
    for name in ("LSUN_resize/LSUN_resize", "iSUN/iSUN_patches"):
        write_pictures(tmp_path / name, rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8))
    images, labels = rng.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8), np.arange(16) % 2
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    from confrank.models import create

    save_file(create("small", 2).state_dict(), tmp_path / "w.safetensors")
    command = (tmp_path / "w.safetensors", "--model", "small", "--dataset", tmp_path / "own.npz", "--tuning", "none")
    more = ("--against", "lsun", "isun", "--root", tmp_path, "--neighbours", 3, "--device", "cpu", "--format", "csv")
    ood(*command, *more)
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [sum(f",{name}," in row for row in rows) for name in ("lsun", "isun")] == [35, 35]


def test_wrong_use_is_one_line_that_names_what_is_wrong(place, tmp_path, capsys, ood):
    (tmp_path / "empty").mkdir()
    write_pictures(tmp_path / "colour", np.zeros((3, 8, 8, 3), dtype=np.uint8))
    write_pictures(tmp_path / "large", np.zeros((3, 9, 9), dtype=np.uint8))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "none.npz", images=np.zeros((0, 8, 8), dtype=np.uint8))
    run = place / "run0"
    save_weights_file(run, place / "weights.safetensors")
    for arguments, message in [
        (["--against", tmp_path / "empty"], f"images in {tmp_path / 'empty'}, but there are none"),
        (
            ["--against", tmp_path / "colour"],
            "images of 8x8x1 (height x width x channels) as in training, but got 8x8x3 in",
        ),
        (["--against", tmp_path / "large"], "but got 9x9x1 in"),
        (["--against", "nowhere"], "but got 'nowhere'"),
        (["--against", "digits"], "expected out-sets other than the network's own data, but got digits"),
        (
            ["--against", place / "noise", "--tuning", "paper"],
            "expected an even number of tuning images below the 897 in the test split",
        ),
        (["--against", place / "noise", "--tuning-images", "200"], "images below the 120 in"),
        (
            ["--against", place / "noise", "--tuning-images", "21"],
            "but got 21; set --tuning-images to an even",
        ),
        (
            ["--against", tmp_path / "other.npz"],
            f"expected images (or test_images) in {tmp_path / 'other.npz'}, but got x",
        ),
        (["--against", tmp_path / "none.npz"], f"expected images in images of {tmp_path / 'none.npz'}, but got none"),
        (["--against", place / "noise", place / "noise"], "expected each out-set once"),
        (
            ["--against", place / "noise", "--tuning", "none", "--layers", "blocks.7"],
            "'blocks.7'; did you mean",
        ),
        (["--against", place / "noise", "--detectors", "oden"], "but got 'oden'"),
        (["--against", place / "noise", "--json", tmp_path], f"expected a file to write, but {tmp_path} is a folder"),
        (["--against", place / "noise", "--figures", place / "upside.npz"], "expected a folder to write in, but"),
        ([place / "." / "run0" / ".." / "run0", "--against", place / "noise"], "expected each run once, but got"),
        ([place / "weights.safetensors", "--against", place / "noise"], "have the same settings and seed"),
        (["--against", place / "noise", f"{place / 'noise'}/"], "expected each out-set once"),
        (["typo", "--against", place / "noise"], "or a .safetensors file, but typo does not exist"),
        (
            ["--against", place / "noise", "--tuning", "none", "--neighbours", "901"],
            "but got 901; lower --neighbours",
        ),
        (["--against", place / "noise", "--batch-size", "0"], "expected --batch-size to be at least 1, but got 0"),
    ]:
        ood(run, *arguments, "--device", "cpu", code=2)
        errors = capsys.readouterr().err
        assert message in errors
        assert errors.count("\n") == 1


def test_the_networks_own_pictures_are_no_out_set(tmp_path, capsys, ood, command):
    digits = load("digits").test
    for part in ("train", "test", "other"):
        for label in (0, 1):
            write_pictures(tmp_path / "own" / part / str(label), digits.images[digits.labels == label][:30, :, :, 0])
    flags = ("--dataset", tmp_path / "own", "--epochs", "1", "--method", "baseline", "--device", "cpu")
    command("train", *flags, "--out", tmp_path / "run")
    for part in ("test", "test/0"):
        ood(tmp_path / "run", "--against", tmp_path / "own" / part, "--device", "cpu", code=2)
        assert "expected out-sets other than the network's own data" in capsys.readouterr().err
    (tmp_path / "moved").mkdir()
    (tmp_path / "own").rename(tmp_path / "moved" / "own")
    root = ("--root", tmp_path / "moved")
    for part in (".", "test"):
        ood(tmp_path / "run", *root, "--against", tmp_path / "moved" / "own" / part, "--device", "cpu", code=2)
        assert "expected out-sets other than the network's own data" in capsys.readouterr().err
    ood(
        tmp_path / "run",
        *root,
        "--against",
        tmp_path / "moved" / "own" / "other",
        *FAST,
        "--tuning",
        "none",
        "--detectors",
        "energy",
    )


def test_a_folder_that_is_called_like_the_data_set_is_another(place, tmp_path, monkeypatch, ood):
    write_pictures(tmp_path / "digits" / "test", np.full((70, 8, 8), 128, dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    ood(place / "run0", "--against", "./digits/test", *FAST, "--tuning", "none", "--detectors", "energy")


def test_one_corrupt_picture_among_ten_thousand_is_named(place, capsys, tmp_path, ood):
    stream = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(stream, "BMP")
    content = stream.getvalue()
    for number in range(10_000):
        (tmp_path / f"{number:05d}.bmp").write_bytes(content if number != 1234 else content[:80])
    ood(place / "run0", "--against", tmp_path, "--device", "cpu", code=2)
    errors = capsys.readouterr().err
    assert f"image, but {tmp_path / '01234.bmp'}: " in errors
    assert errors.count("\n") == 1


def test_a_class_without_training_samples_is_named(tmp_path, capsys, ood):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (30, 8, 8, 1), dtype=np.uint8), np.arange(30) % 3
    kept = labels != 1
    arrays = {
        "train_images": images[kept],
        "train_labels": labels[kept],
        "test_images": images,
        "test_labels": labels,
    }
    np.savez(tmp_path / "own.npz", **arrays)
    np.savez(tmp_path / "out.npz", images=images)
    from confrank.models import create

    save_file(create("small", 3, in_channels=1).state_dict(), tmp_path / "w.safetensors")
    options = ("--model", "small", "--dataset", tmp_path / "own.npz", "--tuning", "none", "--neighbours", "3")
    ood(tmp_path / "w.safetensors", "--against", tmp_path / "out.npz", *options, "--device", "cpu", code=2)
    assert "layer 'blocks.0': expected training samples of every class, but got none of class 1" in (
        capsys.readouterr().err
    )


def test_figures_take_any_names_and_constant_scores(tmp_path):
    group, odd = Group("$a_{x$", "net", "<b>", "my/own pictures/"), OodResult.of_scores
    paths = detection_figures({group: [odd("_odd", "o", np.zeros(9), np.zeros(5))] * 2}, tmp_path / "deep")
    alike = {Group("d", "net", "m", out): [odd("m", "o", np.zeros(9), np.zeros(5))] for out in ("a/b", "a-b")}
    assert len({path.name for path in detection_figures(alike, tmp_path / "alike")}) == 8
    name = "a_-x-net-b-my-own-pictures"
    expected = {f"{kind}-{name}.{suffix}" for kind in ("roc", "scores") for suffix in ("png", "svg")}
    assert {path.name for path in paths} == expected
    assert all(path.exists() for path in paths)


def test_all_runs_are_checked_before_the_first_is_scored(tmp_path, capsys, ood, command):
    draw = np.random.default_rng(0)
    for side in (8, 9):
        labels = np.arange(40) % 2
        images = draw.integers(0, 256, (40, side, side, 1), dtype=np.uint8)
        arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
        np.savez(tmp_path / f"{side}.npz", **arrays)
        flags = ("--dataset", tmp_path / f"{side}.npz", "--epochs", 1, "--method", "baseline", "--device", "cpu")
        command("train", *flags, "--out", tmp_path / f"run{side}")
    np.savez(tmp_path / "out.npz", images=draw.integers(0, 256, (20, 8, 8, 1), dtype=np.uint8))
    capsys.readouterr()
    against = ("--against", tmp_path / "out.npz", "--device", "cpu")
    ood(tmp_path / "run8", tmp_path / "run9", *against, code=2)
    printed = capsys.readouterr()
    assert printed.out == "" and "run9: expected images of 9x9x1" in printed.err
    ood(tmp_path / "run8", *against, "--detectors", "knn")
    assert "run8: k of knn is 40, the number of training images (--neighbours)" in capsys.readouterr().out
