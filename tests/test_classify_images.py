"""A trained network on new pictures: what it answers, and what happens to pictures that do not fit."""

import csv
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

from confrank.classify_images import answer
from confrank.config import RunConfig
from confrank.data import load
from confrank.data.sets import DataSet, split_of
from confrank.decisions.policy_file import policy_text
from confrank.runs.folder import RunFolder
from confrank.runs.trained import predict, save_weights_file
from confrank.training import train

CPU = torch.device("cpu")
NUM_PICTURES = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(RunConfig(epochs=8, batch_size=90), out, device=CPU)
    return out


@pytest.fixture
def pictures(tmp_path):
    """The first test images of digits, without classes, under names whose numbers are their places."""
    folder = tmp_path / "new"
    folder.mkdir()
    for place, image in enumerate(load("digits").test.images[:NUM_PICTURES]):
        Image.fromarray(image[:, :, 0]).save(folder / f"{place}.png")
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_answers_are_those_of_the_split_in_the_order_of_numbers(run, pictures, tmp_path, capsys, command):
    out, expected = tmp_path / "answers.csv", predict(run, "test", device=CPU)
    command("predict", run, "--images", pictures, "--out", out, "--threshold", 0.5, "--device", "cpu")
    rows = rows_of(out)
    assert [row["path"] for row in rows] == [f"{place}.png" for place in range(NUM_PICTURES)]
    assert [int(row["prediction"]) for row in rows] == expected.logits.argmax(1)[:NUM_PICTURES].tolist()
    confidence = np.array([float(row["confidence"]) for row in rows])
    assert np.allclose(confidence, expected.confidence[:NUM_PICTURES], rtol=0, atol=1e-6)
    sure = (confidence >= 0.5).sum()
    assert 0 < sure < NUM_PICTURES
    assert [row["accepted"] for row in rows] == ["true" if value >= 0.5 else "false" for value in confidence]
    assert capsys.readouterr().out == f"classified 12 images, {sure} of them accepted: {out}\n"
    command("predict", run, "--images", pictures, "--out", out, "--device", "cpu")
    assert [*rows_of(out)[0]] == ["path", "prediction", "confidence"]
    answers = answer(run, pictures, device=CPU)
    # numpy and torch round a softmax differently: a threshold accepts the confidence it was taken from.
    above = np.nextafter(answers.confidence, 2)
    assert all(answers.accepted(above[row])[row] for row in range(NUM_PICTURES))


def test_pictures_are_brought_to_the_form_of_the_runs(run, pictures, tmp_path, capsys, command):
    with Image.open(pictures / "3.png") as opened:
        Image.merge("RGB", [opened] * 3).save(pictures / "3.png")
        wide = Image.new("L", (24, 16))
        wide.paste(opened.resize((16, 16), Image.Resampling.NEAREST), (4, 0))
    wide.save(pictures / "12.png")
    wide.crop((4, 0, 20, 16)).save(pictures / "13.png")
    out = tmp_path / "answers.csv"
    command("predict", run, "--images", pictures, "--out", out, "--device", "cpu")
    told = capsys.readouterr().out
    assert "2 of 14 images scaled to 8x8, the input size of the run\n" in told
    assert "1 of 14 images is not square: cropped to its central square\n" in told
    assert "1 of 14 images turned grey: the run was trained on grey images\n" in told
    rows = rows_of(out)
    cut, whole = (float(rows[place]["confidence"]) for place in (12, 13))
    assert cut == pytest.approx(whole, rel=0.02)
    expected = predict(run, "test", device=CPU).confidence[3]
    assert float(rows[3]["confidence"]) == pytest.approx(expected, abs=1e-6)


def test_coloured_runs_of_another_shape_need_no_data(tmp_path, pictures):
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (12, 8, 12, 3), dtype=np.uint8), np.arange(12) % 2
    split = split_of(images, labels)
    data = DataSet("pets", split, split, ("cat", "dog"), (0.5,) * 3, (0.25,) * 3)
    train(RunConfig(dataset="pets", epochs=1, method="mcdropout"), tmp_path / "run", data=data, device=CPU)
    save_weights_file(tmp_path / "run", tmp_path / "weights.safetensors")
    answers, again = (answer(tmp_path / "run", pictures) for _ in range(2))
    halved = answer(tmp_path / "weights.safetensors", pictures)
    assert np.allclose(halved.confidence, answers.confidence, atol=1e-3)
    assert {*answers.predictions} <= {"cat", "dog"}
    assert np.array_equal(answers.confidence, again.confidence)
    RunFolder(tmp_path / "run").predictions("test").unlink()
    assert answer(tmp_path / "run", pictures).predictions == answers.predictions
    assert answers.notes[1] == "12 of 12 images are not in the proportion 12 wide by 8 high: cropped to that"


def test_what_cannot_be_read_is_listed_and_the_rest_is_answered(run, pictures, tmp_path, capsys, command):
    (pictures / "1.png").write_bytes(b"no picture")
    (pictures / "4.png").write_bytes((pictures / "4.png").read_bytes()[:60])
    (pictures / "film.gif").write_bytes(b"GIF89a")
    (pictures / "link.png").symlink_to("nowhere.png")
    out = tmp_path / "answers.csv"
    command("predict", run, "--images", pictures, "--out", out, "--device", "cpu", code=2)
    told = capsys.readouterr()
    assert f"{pictures / '1.png'}: not an image of these formats" in told.out
    assert str(pictures / "4.png") in told.out
    assert f"{pictures / 'film.gif'}: not an image of these formats" in told.out
    assert f"{pictures / 'link.png'}: No such file" in told.out
    assert f"but 4 of 14 cannot be read (listed above); {out} has the others" in told.err
    assert len(rows_of(out)) == 10


def test_a_policy_answers_as_it_does_on_the_predictions(run, pictures, tmp_path, monkeypatch, capsys, command):
    """A split, single images and a file of predictions get the same answers."""
    monkeypatch.chdir(tmp_path)
    command("threshold", run, "--coverage", 0.5, "--policy", "p.json")
    assert json.loads((tmp_path / "p.json").read_text())["model"]["config"]["model"] == "small"
    command("apply", "p.json", run, "--out", "file.csv")
    command("predict", run, "--policy", "p.json", "--out", "split.csv")
    assert (tmp_path / "file.csv").read_text() == (tmp_path / "split.csv").read_text()
    capsys.readouterr()
    command("predict", run, "--images", pictures, "--policy", "p.json", "--out", "images.csv")
    expected, answers = rows_of(tmp_path / "file.csv")[:NUM_PICTURES], rows_of(tmp_path / "images.csv")
    assert list(answers[0]) == ["path", "prediction", "confidence", "accepted"]
    assert [row["path"] for row in answers] == [f"{place}.png" for place in range(NUM_PICTURES)]
    for row, other in zip(answers, expected, strict=True):
        assert (row["prediction"], row["accepted"]) == (other["prediction"], other["accepted"])
        assert float(row["confidence"]) == pytest.approx(float(other["confidence"]), abs=1e-6)
    accepted = sum(row["accepted"] == "true" for row in answers)
    assert 0 < accepted < NUM_PICTURES
    assert f"12 answers: {accepted} accepted, {12 - accepted} rejected" in capsys.readouterr().out
    command("predict", run, "--images", pictures, "--policy", "p.json", "--threshold", 0.5, code=2)
    assert "either --threshold or --policy" in capsys.readouterr().err
    command("predict", run, "--images", pictures, "--threshold", 50, code=2)
    assert "expected --threshold within 0..1, as confidences are, but got 50; did you mean 0.5?" in (
        capsys.readouterr().err
    )
    content = json.loads((tmp_path / "p.json").read_text())
    del content["checksum"]
    content["model"]["config"]["seed"] = 77
    (tmp_path / "p.json").write_text(policy_text(content))
    command("apply", "p.json", run, "--out", "file.csv")
    assert "made on predictions of another model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--images", "nowhere"], "expected a folder of images, but nowhere does not exist"),
        (["--images", ""], "expected a folder for --images, but got nothing"),
        (["--images", "empty"], "expected PNG, JPEG, WebP or BMP images in empty, but there are none"),
        (
            ["--images", "new", "--out", "answers.txt"],
            "expected --out to name a file ending in .csv, but got answers.txt",
        ),
        (
            ["--images", "new", "--out", "mine.csv"],
            "expected a new file, or one that this command wrote, but mine.csv",
        ),
        (
            ["--images", "new", "--out", "labelled.csv"],
            "expected a new file, or one that this command wrote, but labelled",
        ),
        (["--images", "new", "--split", "test"], "expected either --split or --images, but got both"),
        (["--threshold", "0.9"], "expected --threshold only with --images"),
    ],
)
def test_mistakes_are_explained(run, pictures, tmp_path, monkeypatch, capsys, command, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine.csv").write_text("path,label\na.png,cat\n")
    (tmp_path / "labelled.csv").write_text("path,prediction,confidence,label\na.png,cat,0.5,dog\n")
    command("predict", run, *arguments, code=2)
    assert message in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == "path,label\na.png,cat\n"


def test_names_in_any_encoding_stay_what_they_are(run, pictures, tmp_path, command):
    name = os.fsdecode(b"latin\xe9.png")
    (pictures / "1.png").rename(pictures / name)
    command("predict", run, "--images", pictures, "--out", tmp_path / "answers.csv")
    assert b"latin\xe9.png," in (tmp_path / "answers.csv").read_bytes()
