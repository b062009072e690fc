import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from confrank import compare, evaluate
from confrank.confidence import get
from confrank.config import RunConfig
from confrank.decisions import SelectiveClassifier, random_split
from confrank.metrics import KEYS, sample_values
from confrank.predictions import Predictions, load_predictions, pairing, save_predictions
from confrank.predictions.joining import UNORDERED, distinct_keys
from confrank.report.page import write_report
from confrank.runs.folder import RunFolder
from confrank.training import train


def table(seed=0, size=2000, num_classes=4, sharpness=2.0):
    """Logits that are `sharpness` times too sure, and labels drawn from the honest ones."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal((size, num_classes))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = (rng.random((size, 1)) > np.cumsum(honest, axis=1)[:, :-1]).sum(axis=1)
    return sharpness * logits, label


@pytest.fixture
def files(tmp_path):
    logits, label = table()
    noise = np.random.default_rng(1).standard_normal(logits.shape)
    np.savez(tmp_path / "a.npz", logits=logits, label=label)
    np.savez(tmp_path / "b.npz", logits=logits + 2 * noise, label=label)
    return tmp_path / "a.npz", tmp_path / "b.npz"


def test_json_has_intervals_differences_and_classes(files, tmp_path, capsys, command):
    command("evaluate", *files, "--json", tmp_path / "out.json", "--resamples", 200, "--seed", 3)
    first, second = json.loads((tmp_path / "out.json").read_text())
    for result, file in zip((first, second), files, strict=True):
        assert result["metrics"] == evaluate(**load_predictions(file).evaluation_inputs()).metrics
        assert set(result["intervals"]) == set(KEYS)
        assert all(low <= result["metrics"][key] <= high for key, (low, high) in result["intervals"].items())
        assert result["interval_methods"] == {
            "acc": "Wilson", **dict.fromkeys(("aurc", "e_aurc", "augrc"), "gamma"), "naurc": "log bootstrap",
            **dict.fromkeys(("aupr_error", "auroc"), "logit bootstrap"), "fpr95": "order statistics",
            "ece": "test inversion", **dict.fromkeys(("nll", "brier"), "square-root bootstrap"),
        }  # fmt: skip
        assert result["no_interval"] == {}
        assert result["num_resamples"] == 200
        assert sum(one["num_samples"] for one in result["classes"]) == 2000
    gap = second["difference_to_first"]["aurc"]
    assert gap["value"] == pytest.approx(second["metrics"]["aurc"] - first["metrics"]["aurc"])
    assert 0 < gap["low"] < gap["high"]
    assert gap["p"] < 0.02
    assert second["pairing"] == "the labels agree row by row"
    printed = capsys.readouterr().out
    assert "read 2,000 predictions, 4 classes, logits" in printed
    assert "from 200 resamples; ECE: interval by test inversion, since the estimate is biased upward" in printed
    assert "has more errors among the accepted than" in printed
    assert "separates right from wrong worse than" in printed


def test_the_command_says_how_overconfident_a_model_is(tmp_path, capsys, command):
    confidence, correct = np.linspace(0.6, 1, 50), np.arange(50) % 2 == 0
    np.savez(tmp_path / "a.npz", confidence=confidence, correct=correct)
    np.savez(tmp_path / "b.npz", confidence=-confidence, correct=confidence > 0.7)
    command("evaluate", tmp_path / "a.npz", "--resamples", 0, "--json", tmp_path / "a.json")
    assert "\nMean confidence is 80.0%: overconfident by 30.0 percentage points.\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["overconfidence"] == pytest.approx(0.3)
    command("evaluate", tmp_path / "a.npz", tmp_path / "b.npz", "--resamples", 0)
    lines = capsys.readouterr().out.splitlines()
    assert f"{tmp_path / 'a.npz'}: Mean confidence is 80.0%: overconfident by 30.0 percentage points." in lines
    question = "Is the confidence an uncertainty, which is lower for surer answers?"
    assert [line for line in lines if line.startswith(f"{tmp_path / 'b.npz'}: C") and line.endswith(question)]


def test_a_p_value_is_written_in_one_way(files, tmp_path, capsys, command):
    command("evaluate", *files, "--json", tmp_path / "o.json", "--report", tmp_path / "r.html", "--resamples", 1000)
    gap = json.loads((tmp_path / "o.json").read_text())[1]["difference_to_first"]["aurc"]
    assert gap["p"] < 0.01
    content, text = html.unescape((tmp_path / "r.html").read_text(encoding="utf-8")), capsys.readouterr().out
    content = content.replace("\N{NO-BREAK SPACE}", " ")
    assert gap["p"] == pytest.approx(2 / 1001)  # the least that 1,000 resamples can show
    assert content.count("p < 0.002") >= 2 and "p = 0.002" not in content + text
    assert "AURC ×10³ differs by " in content and ", p < 0.002)" in text


def test_without_resamples_nothing_is_compared(files, capsys, command):
    command("evaluate", *files, "--resamples", 0)
    assert "not compared pair by pair (no resamples were drawn)." in " ".join(capsys.readouterr().out.split())


def test_a_file_does_not_differ_from_itself(files, tmp_path, command):
    command("evaluate", files[0], files[0], "--json", tmp_path / "out.json", "--resamples", 100)
    _, again = json.loads((tmp_path / "out.json").read_text())
    assert {(gap["value"], gap["p"]) for gap in again["difference_to_first"].values()} == {(0, 1)}


def test_the_same_seed_gives_the_same_intervals(files, tmp_path, command):
    for name, seed in (("x", 0), ("y", 0), ("z", 1)):
        command("evaluate", files[0], "--json", tmp_path / f"{name}.json", "--resamples", 100, "--seed", seed)
    same, again, other = (json.loads((tmp_path / f"{name}.json").read_text())["intervals"] for name in "xyz")
    assert same == again != other


def test_figures_and_page(files, tmp_path, capsys, command):
    out = tmp_path / "paper"
    command("evaluate", *files, "--figures", out, "--report", tmp_path / "r.html", "--resamples", 0)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{name}.{kind}" for name in ("confidence", "reliability", "risk_coverage") for kind in ("png", "svg")
    )
    assert (out / "reliability.png").read_bytes().startswith(b"\x89PNG")
    content = (tmp_path / "r.html").read_text()
    assert "No intervals were computed." in content
    assert "test inversion" not in content
    command("evaluate", files[0], "--report", tmp_path / "s.html", "--resamples", 100)
    content = (tmp_path / "s.html").read_text()
    assert "95% intervals. ECE: interval by test inversion, since the estimate is biased upward.</p>" in content
    assert "except that of ECE and Wilson's interval of the accuracy: bootstrap over samples (100" in content
    assert "a.npz" in content
    assert str(tmp_path) not in content
    assert "no intervals (n = 2,000)" in capsys.readouterr().out


def test_pairing():
    first = Predictions(index=np.array([3, 1, 2]), label=np.array([0, 1, 0]))
    assert pairing(first, Predictions(index=np.array([1, 2, 3]), label=np.array([1, 0, 0])))[0].tolist() == [2, 0, 1]
    for other, reason in (
        (Predictions(index=np.array([1, 2, 4]), label=np.array([1, 0, 0])), "other samples: their index differs"),
        (
            Predictions(index=np.array([1, 2, 3]), label=np.array([1, 0, 1])),
            "matched by index, but their labels differ",
        ),
        (Predictions(label=np.array([0, 1])), "other samples: 3 and 2 predictions"),
        (Predictions(label=np.array([1, 0, 0])), UNORDERED),
    ):
        assert pairing(first, other) == (None, reason)
    scores = Predictions(confidence=np.ones(3), correct=np.ones(3))
    assert pairing(scores, scores)[1] == "identical"
    others = Predictions(confidence=np.zeros(3), correct=np.ones(3))
    assert pairing(scores, others)[0] is None
    assert pairing(scores, others)[1].startswith("without an index or labels, it is unknown whether")


@pytest.mark.parametrize("name", ["id", "filename", "path"])
def test_rows_are_paired_by_what_identifies_them(name):
    """Rows sorted by label agree in their labels, whichever samples of a class they are."""
    label, metadata = np.array([0, 0, 1, 1]), {"key": name}
    first = Predictions(label=label, key=np.array(["a", "b", "c", "d"]), metadata=metadata)
    within = Predictions(label=label, key=np.array(["b", "a", "d", "c"]), metadata=metadata)
    shuffled = Predictions(label=label[[2, 0, 3, 1]], key=np.array(["c", "a", "d", "b"]), index=np.arange(4))
    others = Predictions(label=label, key=np.array(["a", "b", "c", "e"]), metadata=metadata)
    rows, reason = pairing(first, within)
    assert (rows.tolist(), reason) == ([1, 0, 3, 2], f"matched by {name}")
    assert pairing(first, shuffled)[0].tolist() == [1, 3, 0, 2]
    assert pairing(replace(first, index=np.arange(4)), shuffled)[0].tolist() == [1, 3, 0, 2]
    common = f"3 values of {name} are in both, so compare these rows alone"
    assert pairing(first, others) == (None, f"other samples: their {name} differs; {common}")
    fewer = Predictions(label=label[:3], key=np.array(["a", "b", "x"]), metadata=metadata)
    assert pairing(first, fewer) == (
        None, f"other samples: 4 and 3 predictions; 2 values of {name} are in both, so compare these rows alone",
    )  # fmt: skip
    assert pairing(first, replace(within, label=1 - label)) == (None, f"matched by {name}, but their labels differ")


def test_labels_are_compared_by_the_names_of_their_classes():
    def named(names, label, **others):
        return Predictions(label=np.array(label), metadata={"class_names": json.dumps(names)}, **others)

    rows = np.arange(3)
    first = named(["cat", "dog"], [0, 1, 1], key=rows)
    assert pairing(first, named(["dog", "cat"], [1, 0, 0], key=rows))[1] == "matched by id"
    assert pairing(first, named(["dog", "cat"], [0, 0, 0], key=rows)) == (
        None,
        "matched by id, but their labels differ",
    )
    agree = "the labels agree row by row"
    assert pairing(named(["cat", "dog"], [0, 1, 1]), named(["ant", "cat", "dog"], [1, 2, 2]))[1] == agree
    assert pairing(named(["cat", "dog"], [0, 1, 1]), named(["ant", "dog"], [0, 1, 1])) == (None, UNORDERED)
    assert pairing(first, named(["Katze", "Hund"], [0, 1, 1], key=rows))[1] == "matched by id"
    differ = (None, "matched by id, but their labels differ")
    assert pairing(first, named(["Katze", "Hund"], [0, 1, 0], key=rows)) == differ
    assert pairing(first, named(["a", "b", "c"], [0, 1, 2], key=rows)) == differ  # another data set
    assert pairing(named(["cat", "dog"], [0, 0, 0], key=rows), named(["dog", "cat"], [0, 0, 0], key=rows)) == differ
    assert pairing(named(["cat", "dog"], [0, 1, 1]), named(["Katze", "Hund"], [0, 1, 1]))[0] is None
    assert pairing(first, named(["cat", "bird"], [0, 5, 5], key=rows))[1] == "matched by id"  # no such class


def test_an_index_that_repeats_pairs_nothing_but_the_same_order():
    index, label = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    first = Predictions(index=index, label=label, confidence=np.array([0.1, 0.2, 0.3, 0.4]))
    assert pairing(first, replace(first, confidence=np.ones(4)))[0].tolist() == [0, 1, 2, 3]
    rows, reason = pairing(first, Predictions(index=index[::-1], label=label[::-1]))
    assert rows is None and "their index has repeated values" in reason


def keyed(order=(0, 1, 2, 3), index=False, **keys):
    """Four samples, whose labels agree in any order within a class."""
    order = np.array(order)
    told_apart, metadata, _ = distinct_keys({name: np.array(values)[order] for name, values in keys.items()})
    label, index = np.array([0, 0, 1, 1])[order], order if index else None
    return Predictions(label=label, index=index, **told_apart, metadata=metadata)


IDS, OTHER_IDS = [5, 6, 7, 8], [6, 7, 8, 9]
HERE, THERE = ["here/a", "here/b", "here/c", "here/d"], ["there/a", "there/b", "there/c", "there/d"]
OTHERS = "other samples: their path differs"
OTHER_ID = "other samples: their id differs"
COMMON = "; 3 values of {} are in both, so compare these rows alone"
SHUFFLED = (3, 0, 2, 1)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (keyed(path=list("abcd"), id=IDS), keyed(SHUFFLED, id=IDS), "matched by id"),
        (keyed(path=list("abcd")), keyed(SHUFFLED, id=list("abcd")), "matched by path and id"),
        (keyed(path=list("abcd"), id=IDS), keyed(SHUFFLED, path=list("abcd"), id=OTHER_IDS), "matched by path"),
        (keyed(index=True, path=list("abcd")), keyed(SHUFFLED, index=True, id=IDS), "matched by index"),
        (keyed(index=True, path=HERE), keyed(SHUFFLED, index=True, path=THERE), "matched by index"),
        (keyed(path=HERE, id=IDS), keyed(SHUFFLED, file=list("abcd"), id=IDS), "matched by id"),
        (keyed(id=IDS), keyed(SHUFFLED, id=["5.0", "6.0", "7.0", "8.0"]), "matched by id"),
    ],
)
def test_files_with_several_keys_are_paired_by_what_both_have(first, second, reason):
    rows, found = pairing(first, second)
    assert found == reason
    assert rows.tolist() == np.argsort(SHUFFLED).tolist()


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (keyed(index=True, id=IDS), keyed(index=True, id=OTHER_IDS), OTHER_ID + COMMON.format("id")),
        (keyed(index=True, path=list("abcd")), keyed(index=True, path=list("abce")), OTHERS + COMMON.format("path")),
        (keyed(path=HERE), keyed(path=THERE), OTHERS),
        (keyed(path=list("abcd"), id=IDS), keyed(path=list("efgh"), id=IDS), OTHERS),
        (keyed(path=list("abcd")), keyed(SHUFFLED, id=IDS), UNORDERED),
    ],
)
def test_rows_are_not_paired_against_keys_of_the_same_kind(first, second, reason):
    assert pairing(first, second) == (None, reason)
    assert pairing(keyed(path=list("abcd")), keyed(id=IDS))[1] == "the labels agree row by row"


def test_threshold_with_a_guarantee(files, tmp_path, capsys, command):
    arguments = ["--risk", 0.2, "--delta", 0.05, "--split", 0.4, "--json", tmp_path / "t.json"]
    command("threshold", files[0], *arguments)
    result = json.loads((tmp_path / "t.json").read_text())
    assert result["num_samples"] == 1200
    assert result["check"]["num_samples"] == 800
    assert result["risk"] <= result["bound"] <= 0.2
    samples = sample_values(**load_predictions(files[0]).evaluation_inputs())
    accepted, correct = samples.confidence >= result["threshold"], samples.correct
    assert accepted.sum() == result["accepted"] + result["check"]["accepted"]
    assert (accepted & ~correct).sum() == result["wrong"] + result["check"]["wrong"]
    printed = capsys.readouterr().out
    assert f"accept      confidence >= {result['threshold']!r}" in printed
    assert "the error rate among accepted is at most 0.2, with probability 0.95" in printed
    assert "check       on 800 other rows" in printed


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"method": "baseline"}, "max_probability"),
        ({"method": "crl-entropy"}, "negative_entropy"),
        ({"method": "crl-margin"}, "margin"),
        ({"method": "mcdropout"}, "average"),
        ({"method": "ensemble-baseline"}, "average"),
        ({"method": "baseline", "members": "5"}, "average"),
        ({"method": "ours"}, None),
        ({}, None),
    ],
)
def test_a_threshold_names_its_confidence(metadata, expected, tmp_path, capsys, command):
    logits, label = table(size=200)
    names = {"crl-entropy": "negative_entropy", "crl-margin": "margin"}
    confidence = get(names.get(metadata.get("method"), "max_probability"))(torch.from_numpy(logits)).numpy()
    path = tmp_path / "a.safetensors"
    save_predictions(path, Predictions(logits=logits, label=label, confidence=confidence, metadata=metadata))
    command("threshold", path, "--coverage", 0.5, "--json", tmp_path / "t.json")
    result, printed = json.loads((tmp_path / "t.json").read_text()), capsys.readouterr().out
    assert result["confidence"] == (None if expected == "average" else expected)
    assert ("python " in printed) == (expected is not None)
    assert ("not with SelectiveClassifier(model, ...)" in printed) == (expected == "average")
    if result["confidence"]:
        code = printed.partition("python    ")[2].splitlines()[0].replace("(model,", "(torch.nn.Identity(),")
        answers = eval(code, {"SelectiveClassifier": SelectiveClassifier, "torch": torch})(torch.from_numpy(logits))
        assert (answers >= 0).sum() == result["accepted"]


def test_a_threshold_on_calibrated_predictions_names_the_temperature(files, tmp_path, capsys, command):
    command("calibrate", files[0], "--split", 0.5, "--out", tmp_path / "c.safetensors")
    command("threshold", tmp_path / "c.safetensors", "--coverage", 0.5, "--json", tmp_path / "t.json")
    result = json.loads((tmp_path / "t.json").read_text())
    assert f'confidence="max_probability", temperature={result["temperature"]!r})' in capsys.readouterr().out
    command("calibrate", tmp_path / "c.safetensors", "--split", 0.5, "--out", tmp_path / "again.safetensors")
    assert "warning" not in capsys.readouterr().err  # all but the same
    twice = load_predictions(tmp_path / "again.safetensors").metadata["temperature"]
    assert float(twice) == pytest.approx(result["temperature"])


def test_threshold_for_a_coverage(files, capsys, command):
    command("threshold", files[0], "--coverage", 0.9)
    assert "coverage    90.00% (1,800 of 2,000 predictions)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["threshold", "FILE", "--risk", "0.0001"], "can be certified with 2,000 predictions, but got 0.0001"),
        (["threshold", "FILE", "--risk", "0"], "expected --risk in (0, 1), but got 0"),
        (["threshold", "FILE", "--coverage", "2"], "expected --coverage in (0, 1], but got 2"),
        (
            ["threshold", "FILE", "--coverage", "0.5", "--split", "1"],
            "expected --split in (0, 1), but got 1",
        ),
        (
            ["evaluate", "FILE", "--resamples", "-1"],
            "but got -1; raise --resamples, or set it to 0 for no intervals",
        ),
        (["calibrate", "FILE", "--json", "x"], "a file ending in .json, but got x"),
        (["calibrate", "FILE", "--out", "x.npz"], "--out to name a file ending in .safetensors or .csv"),
        (["threshold", "HOT", "--coverage", "0.5"], "to be a positive number, but got 'abc'"),
        (["calibrate", "HOT", "--out", "x.safetensors"], "to be a positive number, but got 'abc'"),
    ],
)
def test_mistakes_are_one_line(files, tmp_path, capsys, arguments, message, command):
    hot = replace(load_predictions(files[0]), metadata={"temperature": "abc"})
    save_predictions(tmp_path / "hot.safetensors", hot)
    places = {"FILE": files[0], "HOT": tmp_path / "hot.safetensors"}
    command(*(places.get(argument, argument) for argument in arguments), code=2)
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "flags"), [("evaluate", ["--resamples", 0]), ("threshold", ["--coverage", 0.9]), ("calibrate", [])]
)
def test_doubtful_tables_are_noted(name, flags, tmp_path, capsys, command):
    logits, label = table(size=200)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "rounded.npz", probabilities=np.round(probabilities, 3), label=label)
    np.savez(tmp_path / "named.npz", logits=probabilities, label=label)
    command(name, tmp_path / "rounded.npz", *flags)
    assert "rows of probabilities were rounded and have been divided by their sum" in capsys.readouterr().out
    command(name, tmp_path / "named.npz", *flags)
    assert "these logits look like probabilities" in capsys.readouterr().out


def test_mistakes_are_called_by_their_files(tmp_path, command):
    label, prediction, confidence = np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([0.9, 0.8, 0.7])
    names = np.array(["a.png", "<b>é.png", "c.png"])
    np.savez(tmp_path / "p.npz", label=label, prediction=prediction, confidence=confidence, filename=names)
    command("evaluate", tmp_path / "p.npz", "--report", tmp_path / "r.html", "--resamples", 0)
    content = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<bdi>&lt;b&gt;é.png</bdi>, row 1</small>" in content
    assert "a.png" not in content
    assert "<title>p.npz: Which answers can be trusted?</title>" in content
    assert '<p class="kicker"><bdi>p.npz</bdi> · 3 predictions</p>' in content
    assert Predictions(label=label, key=np.array([5, 6, 7])).key_of(1) == "id 6"


def test_calibrate_improves_what_it_can(files, tmp_path, capsys, command):
    out = tmp_path / "calibrated.safetensors"
    command("calibrate", files[0], "--out", out, "--json", tmp_path / "c.json")
    result = json.loads((tmp_path / "c.json").read_text())
    assert result["temperature"] == pytest.approx(2, rel=0.15)
    before, after = result["before"]["metrics"], result["after"]["metrics"]
    assert after["acc"] == before["acc"]
    assert after["ece"] < before["ece"] / 2
    assert after["nll"] < before["nll"]
    assert f"temperature {result['temperature']:.6g} (the model was overconfident)" in capsys.readouterr().out
    loaded = load_predictions(out)
    assert np.allclose(loaded.logits * result["temperature"], load_predictions(files[0]).logits)
    assert float(loaded.metadata["temperature"]) == result["temperature"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "FILE", "--resamples", "0", "--report", "OUT.html"],
        ["threshold", "FILE", "--risk", "0.3"],
        ["calibrate", "FILE", "--out", "OUT.safetensors"],
        ["apply", "POLICY", "FILE", "--out", "OUT.csv"],
        ["table", "table-clf-perf"],
        ["report", "curves", "results/cifar10-vgg16-baseline-seed0.json", "--out", "OUT.png"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_on_files_do_not_import_torch(arguments, files, tmp_path, command):
    policy = tmp_path / "policy.json"
    command("threshold", files[0], "--coverage", 0.5, "--policy", policy)
    places = {"FILE": str(files[0]), "POLICY": str(policy)}
    given = [places.get(text, text).replace("OUT", str(tmp_path / "out")) for text in arguments]
    words = [sys.executable, "-X", "importtime", "-m", "confrank", *given]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "confrank.errors" in imported and "torch" not in imported


OUTPUTS = [
    ("evaluate", ["--json"]),
    ("evaluate", ["--report"]),
    ("evaluate", ["--figure"]),
    ("threshold", ["--risk", "0.3", "--json"]),
    ("calibrate", ["--json"]),
    ("calibrate", ["--out"]),
]


@pytest.mark.parametrize(("name", "flags"), OUTPUTS)
def test_a_path_that_cannot_be_written_is_an_error_before_the_work(name, flags, files, tmp_path, capsys, command):
    (tmp_path / "file").write_text("kept")
    ending = {"--json": "json", "--report": "html", "--figure": "png", "--out": "safetensors"}[flags[-1]]
    target = tmp_path / "file" / f"out.{ending}"
    command(name, files[0], *flags, target, code=2)
    printed = capsys.readouterr()
    assert f"expected a folder to write {target} in, but {tmp_path / 'file'} is a file" in printed.err
    assert printed.out == ""
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_that_is_a_file_is_an_error_before_the_work(files, tmp_path, capsys, command):
    file, inside, table = tmp_path / "file", tmp_path / "file" / "inside", tmp_path / "m.json"
    file.write_text("kept")
    for folder, why in (
        (file, f"expected a folder to write in, but {file} is a file"),
        (inside, f"expected a folder to write {inside} in, but {file} is a file"),
    ):
        command("evaluate", files[0], "--figures", folder, "--json", table, code=2)
        assert why in capsys.readouterr().err
    assert not table.exists() and file.read_text() == "kept"


@pytest.mark.parametrize(("name", "flags"), OUTPUTS)
@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_no_input_is_overwritten(name, flags, link, files, tmp_path, capsys, command):
    ending = {"--report": "html", "--figure": "png", "--out": "safetensors"}
    target, content = tmp_path / f"out.{ending.get(flags[-1], 'json')}", files[0].read_bytes()
    getattr(target, link)(files[0])
    command(name, files[0], *flags, target, code=2)
    printed = capsys.readouterr()
    assert f"expected a file to write, but {target} is an input of this command; choose another path" in printed.err
    assert printed.out == ""
    assert files[0].read_bytes() == content


def test_no_chart_is_drawn_over_another_result(files, tmp_path, capsys, command):
    charts = tmp_path / "charts"
    command("evaluate", files[0], "--figures", charts, "--figure", charts / "reliability.png", code=2)
    assert f"but {charts / 'reliability.png'} and {charts / 'reliability.png'} are one" in capsys.readouterr().err
    assert not charts.exists()
    charts.mkdir()
    (charts / "confidence.svg").symlink_to(files[0])
    command("evaluate", files[0], "--figures", charts, code=2)
    assert f"{charts / 'confidence.svg'} is an input of this command" in capsys.readouterr().err
    (charts / "confidence.svg").unlink()
    command("evaluate", files[0], "--resamples", 0, "--figures", charts, "--figure", charts / "curves.png")
    assert len([*charts.iterdir()]) == 7


def test_no_file_of_a_run_is_overwritten(tmp_path, capsys, command):
    run = tmp_path / "run"
    command("train", "--epochs", 1, "--batch-size", 64, "--device", "cpu", "--out", run)
    weights = next(run.rglob("weights.safetensors"))
    own = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    predictions = run / "predictions" / "test.safetensors"
    table, picture = tmp_path / "link.json", tmp_path / "link.png"
    for link in (table, picture):
        link.symlink_to(run / "config.yaml")
    for arguments, target in (
        (["ood", run, "--against", tmp_path / "images", "--json"], table),
        (["report", "curves", run, "--out"], picture),
        (["evaluate", run, "--json"], run / "metrics.json"),
        (["calibrate", run, "--out"], predictions),
        (["predict", run, "--device", "cpu", "--out"], weights),
        (["predict", weights, "--device", "cpu", "--out"], weights),
    ):
        command(*arguments, target, code=2)
        assert f"{target} is an input of this command" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == own
    command("evaluate", run, "--resamples", 0, "--json", run / "again.json")
    command("evaluate", run, "--resamples", 0, "--json", run / "again.json")
    command("predict", run, "--device", "cpu", "--out", predictions)


def test_files_are_written_though_nobody_reads_the_output(files, tmp_path):
    flags = ["--report", tmp_path / "r.html", "--json", tmp_path / "m.json", "--figure", tmp_path / "f.svg"]
    arguments = [sys.executable, "-m", "confrank", "evaluate", files[0], *flags, "--resamples", "0"]
    process = subprocess.Popen([str(part) for part in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()
    assert {path.name for path in tmp_path.iterdir()} >= {"r.html", "m.json", "f.svg"}


def test_json_goes_to_a_stream(files):
    arguments = [sys.executable, "-m", "confrank", "threshold", str(files[0]), "--coverage", "0.5", "--json"]
    result = subprocess.run([*arguments, "/dev/stderr"], capture_output=True, text=True, check=True)
    assert json.loads(result.stderr)["accepted"] == 1000


def test_a_page_has_pictures_of_mistakes_where_the_data_set_is_known(tmp_path, command):
    train(RunConfig(epochs=1), tmp_path / "run", device=torch.device("cpu"))
    alone = tmp_path / "alone.safetensors"
    shutil.copy(RunFolder(tmp_path / "run").predictions("test"), alone)
    told = load_predictions(alone)
    named = tmp_path / "named.safetensors"
    save_predictions(named, replace(told, metadata={**told.metadata, "dataset": str(tmp_path / "own")}))
    pictures = {}
    for source in (tmp_path / "run", alone, named):
        page = tmp_path / "page.html"
        command("evaluate", source, "--resamples", 0, "--report", page)
        pictures[source.name] = page.read_text().count("data:image/png")
    assert pictures == {"run": 12, "alone.safetensors": 12, "named.safetensors": 0}


def test_calibrate_reports_zeros_and_what_got_worse(tmp_path, capsys, command):
    logits, label = table()
    probabilities = np.exp(3 * logits) / np.exp(3 * logits).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "rounded.npz", probabilities=probabilities.round(4), label=label)
    command("calibrate", tmp_path / "rounded.npz", "--split", 0.5, "--json", tmp_path / "c.json")
    out, errors = capsys.readouterr()
    assert "probabilities are zero and count as 5e-05, half of the smallest other one" in out
    assert errors == ""
    before = json.loads((tmp_path / "c.json").read_text())["before"]["metrics"]
    _, kept = random_split(len(label), 0.5)
    assert before == evaluate(probabilities=probabilities.round(4)[kept], label=label[kept]).metrics
    np.savez(tmp_path / "certain.npz", probabilities=np.eye(logits.shape[1])[label], label=label)
    command("calibrate", tmp_path / "certain.npz", code=2)
    assert "expected probabilities, but every one is 0 or 1; give them as they were" in capsys.readouterr().err
    flat = np.tile(np.log([0.7, 0.3]), (40, 1))
    rows, kept = random_split(40, 0.5)
    label = np.zeros(40, dtype=np.int64)
    label[rows[:9]] = 1
    label[kept[:6]] = 1
    np.savez(tmp_path / "fine.npz", logits=flat, label=label)
    command("calibrate", tmp_path / "fine.npz", "--split", 0.5)
    errors = capsys.readouterr().err
    assert "warning: ECE % went up from 0.00 to 15.00 and Brier % went up from" in errors


def test_python_writes_the_report_of_the_command(tmp_path, command):
    rng = np.random.default_rng(0)
    label = np.arange(60) % 3
    models = {name: {"logits": rng.normal(size=(60, 3)) + np.eye(3)[label], "label": label} for name in "ab"}
    for name, model in models.items():
        np.savez(tmp_path / f"{name}.npz", **model)
    files = [tmp_path / f"{name}.npz" for name in models]
    command("evaluate", *files, "--report", tmp_path / "command.html", "--resamples", 100, "--seed", 3)
    compared = compare(*models.values(), names=[file.name for file in files], resamples=100, seed=3)
    write_report(compared, tmp_path / "new" / "python.html")
    assert (tmp_path / "new" / "python.html").read_text() == (tmp_path / "command.html").read_text()
    with pytest.raises(ValueError, match="expected what compare returns, but got Evaluation"):
        write_report(evaluate(**models["a"]), tmp_path / "evaluation.html")


def identified(path, ids, confidence, correct):
    lines = [f"{name},{one},{int(other)}" for name, one, other in zip(ids, confidence, correct, strict=True)]
    path.write_text("\n".join(["id,confidence,correct", *lines]))
    return path


def test_files_are_compared_on_the_samples_that_all_have(tmp_path, command, capsys):
    rng = np.random.default_rng(0)
    ids, rows = np.array([f"r{number}" for number in range(60)]), rng.permutation(50) + 10
    confidence, correct = rng.random((2, 60)), rng.random((2, 60)) < 0.7
    first = identified(tmp_path / "a.csv", ids[:55], confidence[0, :55], correct[0, :55])
    second = identified(tmp_path / "b.csv", ids[rows], confidence[1, rows], correct[1, rows])
    command("evaluate", first, second, "--resamples", 100)
    printed = capsys.readouterr().out
    assert "45 values of id are in both" in printed and "--common compares the rows that all files have" in printed
    outputs = ("--json", tmp_path / "out.json", "--report", tmp_path / "report.html")
    command("evaluate", first, second, "--resamples", 100, "--common", *outputs)
    printed = capsys.readouterr().out
    assert "10 rows left out whose id is not in every file" in printed and "--common" not in printed
    assert "5 rows left out whose id is not in every file" in printed
    in_order = np.arange(10, 55), rows[rows < 55]
    common = [
        {"confidence": confidence[model, kept], "correct": correct[model, kept]}
        for model, kept in enumerate(in_order)
    ]
    written = json.loads((tmp_path / "out.json").read_text())
    assert [one["metrics"] for one in written] == [evaluate(**model).metrics for model in common]
    assert written[1]["difference_to_first"]["aurc"] is not None
    mistakes = re.findall(r"id r(\d+)</bdi>, row (\d+)", (tmp_path / "report.html").read_text())
    in_files = {*((str(row), str(row)) for row in range(10, 55)), *((str(rows[row]), str(row)) for row in range(50))}
    assert mistakes and {*mistakes} <= in_files


@pytest.mark.parametrize(
    ("ids", "message"),
    [(["x", "y"], "no id is in each of them; check --columns"), (None, "but they share none; leave out --common")],
)
def test_files_without_common_samples_are_refused(tmp_path, command, capsys, ids, message):
    first = identified(tmp_path / "a.csv", ["u", "v"], [0.5, 0.6], [True, False])
    second = identified(tmp_path / "b.csv", ids or ["x", "y"], [0.5, 0.6], [True, False])
    if ids is None:
        second.write_text(second.read_text().replace("id,", "seen,"))
    command("evaluate", first, second, "--common", code=2)
    assert message in capsys.readouterr().err
    command("evaluate", first, "--common", code=2)
    assert "two or more files with --common" in capsys.readouterr().err
