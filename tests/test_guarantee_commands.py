"""confrank threshold --by, sets and select: files in, guarantees in words, files out."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from confrank.cli.decide import sets
from confrank.decisions import (
    Policy,
    accepted_by_group,
    conformal_sets,
    group_thresholds,
    select_with_fdr,
)
from confrank.decisions.nonconformity import SET_METHODS
from confrank.predictions import read

CLASSES = ["bird", "cat", "dog"]


@pytest.fixture(scope="module")
def drawn():
    """Probabilities, labels and sites of 2,000 labelled rows and 300 new ones."""
    rng = np.random.default_rng(7)
    label = rng.integers(0, 3, 2300)
    site = rng.choice(["home", "lab", "rare"], 2300, p=[0.6, 0.38, 0.02])
    logits = rng.normal(0, 1, (2300, 3)) + np.where(site == "home", 3, 2)[:, None] * (label[:, None] == np.arange(3))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {"table": table, "label": label, "site": site, "key": np.array([f"{row}.png" for row in range(2300)])}


@pytest.fixture
def files(drawn, tmp_path):
    """The labelled file and the new one, which has no labels."""
    for name, rows, labelled in (("old.csv", range(2000), True), ("new.csv", range(2000, 2300), False)):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "site", *(f"probability_{one}" for one in CLASSES), *(["label"] * labelled)])
            for row in rows:
                label = [CLASSES[drawn["label"][row]]] if labelled else []
                writer.writerow(
                    [drawn["key"][row], drawn["site"][row], *map(repr, drawn["table"][row].tolist()), *label]
                )
    return tmp_path / "old.csv", tmp_path / "new.csv"


def written(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_types_of_flags_are_those_of_the_library():
    assert sets.__annotations__["method"].__args__ == SET_METHODS


def test_thresholds_by_group(files, drawn, command, capsys, tmp_path):
    old, new = files
    out, policy = tmp_path / "result.json", tmp_path / "policy.json"
    command("threshold", old, "--risk", 0.05, "--delta", 0.01, "--by", "site", "--json", out, "--policy", policy)
    printed = capsys.readouterr().out
    table, label, site = drawn["table"], drawn["label"], drawn["site"]
    confidence, prediction = table.max(axis=1), table.argmax(axis=1)
    expected = group_thresholds(
        confidence[:2000], (prediction == label)[:2000], site[:2000].astype(object), 0.05, 0.01
    )
    result = json.loads(out.read_text())
    assert {name: one["threshold"] for name, one in result["groups"].items()} == expected.thresholds
    assert expected.thresholds["rare"] is None
    assert f"guarantee   {expected.promise('site')}" in printed
    assert "nothing is guaranteed, and no answer accepted, for site rare (" in printed
    assert f"at least about {expected.groups[2].needed:,} are needed" in printed
    command("apply", policy, new, "--out", tmp_path / "answers.csv")
    accepted = [row["accepted"] == "true" for row in written(tmp_path / "answers.csv")]
    assert accepted == accepted_by_group(confidence[2000:], site[2000:], expected.thresholds).tolist()
    command("apply", policy, old, "--out", tmp_path / "own.csv")
    own = [row["accepted"] == "true" for row in written(tmp_path / "own.csv")]
    assert sum(own) == sum(one["accepted"] for one in result["groups"].values())


def test_thresholds_per_class(files, drawn, command, capsys, tmp_path):
    old, new = files
    out, policy = tmp_path / "result.json", tmp_path / "policy.json"
    asked = ["threshold", old, "--risk", 0.06, "--delta", 0.01]
    command(*asked, "--per-class", "--split", 0.3, "--json", out)
    result = json.loads(out.read_text())
    assert [*result["groups"]] == CLASSES
    assert {*result["check"]} <= {*CLASSES}
    assert "error rate of other rows" in capsys.readouterr().out
    command(*asked, "--per-class", "--policy", policy)
    command("apply", policy, new, "--out", tmp_path / "answers.csv")
    thresholds = Policy.load(policy).threshold.thresholds
    for row in written(tmp_path / "answers.csv"):
        assert (row["accepted"] == "true") == (float(row["confidence"]) >= thresholds[row["prediction"]])
    command("monitor", policy, old)
    assert "the error rate among accepted answers in dog is at most 0.06: " in capsys.readouterr().out


@pytest.mark.parametrize("method", SET_METHODS)
@pytest.mark.parametrize("per", ["all", "class", "group"])
def test_sets(files, drawn, command, capsys, tmp_path, method, per):
    old, new = files
    out, policy, result = tmp_path / "sets.csv", tmp_path / "policy.json", tmp_path / "result.json"
    flags = {"all": [], "class": ["--per-class"], "group": ["--by", "site"]}[per]
    asked = ["sets", old, "--level", 0.96, "--method", method, "--free-rank", 1, "--seed", 3, *flags]
    command(*asked, "--new", new, "--out", out, "--policy", policy, "--json", result)
    printed = capsys.readouterr().out
    options = {"level": 0.96, "method": method, "free_rank": 1, "seed": 3, "per_class": per == "class"}
    site = drawn["site"] if per == "group" else None
    rule = conformal_sets(
        probabilities=drawn["table"][:2000], label=drawn["label"][:2000], key=drawn["key"][:2000],
        group=None if site is None else site[:2000], **options,
    )  # fmt: skip
    sets = rule.sets(
        probabilities=drawn["table"][2000:], key=drawn["key"][2000:], group=None if site is None else site[2000:]
    )
    rows = written(out)
    assert [row["file"] for row in rows] == drawn["key"][2000:].tolist()
    assert [row["set"] for row in rows] == ["|".join(np.array(CLASSES)[one]) for one in sets]
    assert f"guarantee   {rule.promise('site')}" in printed
    assert json.loads(result.read_text())["new"]["mean_size"] == sets.sum(axis=1).mean()
    command("apply", policy, new, "--out", tmp_path / "answers.csv")
    assert [row["set"] for row in written(tmp_path / "answers.csv")] == [row["set"] for row in rows]
    command("apply", policy, old, "--out", tmp_path / "own.csv")
    sizes = [len(row["set"].split("|")) if row["set"] else 0 for row in written(tmp_path / "own.csv")]
    assert json.loads(result.read_text())["calibration"]["mean_size"] == np.mean(sizes)
    covered = sets[np.arange(300), drawn["label"][2000:]].mean()
    assert 0.92 < covered <= 1


def test_too_few_rows_are_said(files, command, capsys, tmp_path):
    old, _ = files
    command("sets", old, "--level", 0.99, "--by", "site", "--json", tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["quantiles"]["rare"] is None
    assert result["shortage"] in capsys.readouterr().out
    assert result["shortage"].startswith(
        f"too few rows of site rare ({result['counts']['rare']} rows): its sets hold"
    )
    assert result["shortage"].endswith("each site needs 99 rows")


def test_selection(files, drawn, command, capsys, tmp_path):
    old, new = files
    out, result = tmp_path / "selected.csv", tmp_path / "result.json"
    command("select", old, "--fdr", 0.02, "--new", new, "--out", out, "--json", result)
    printed = capsys.readouterr().out
    confidence = drawn["table"].max(axis=1)
    correct = drawn["table"].argmax(axis=1) == drawn["label"]
    expected = select_with_fdr(confidence[:2000], correct[:2000], confidence[2000:], 0.02)
    assert 0 < expected.num_selected < 300
    rows = written(out)
    assert [row["file"] for row in rows] == drawn["key"][2000:].tolist()
    assert [row["selected"] == "true" for row in rows] == expected.selected.tolist()
    assert {row["selected"] for row in rows} == {"true", "false"}
    assert f"selected    {expected.num_selected} of 300 new rows (" in printed
    assert f"guarantee   {expected.promise()}" in printed
    assert json.loads(result.read_text())["num_selected"] == expected.num_selected


def test_nothing_to_select(files, command, capsys, tmp_path):
    old, new = files
    command("select", old, "--fdr", 0.0001, "--new", new, "--out", tmp_path / "selected.csv")
    printed = capsys.readouterr().out
    assert "selected    0 of 300 new rows" in printed
    assert "nothing can be selected with 2,000 calibration rows; at least about " in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("threshold OLD --by site", "expected --risk with --by, but got none"),
        ("threshold OLD --by site --cost-error 5 --cost-reject 1", "expected --risk with --by, but got none"),
        ("threshold OLD --per-class --coverage 0.5", "expected --risk with --per-class, but got --coverage"),
        ("threshold OLD --risk 0.1 --by site --per-class", "either --by or --per-class, but got both"),
        ("threshold OLD --risk 0.1 --by site,label", "one column for --by, but got 'site,label'"),
        ("threshold OLD --risk 0.1 --by age", "expected a column 'age', but got the columns file, site"),
        ("threshold OLD --risk 0.1 --by site --sample-weight site", "predictions without weights"),
        ("threshold OLD --risk 0.0001 --by site", " are needed); use more validation predictions"),
        ("sets OLD --level 1", "expected --level in (0, 1), but got 1"),
        ("sets OLD --per-class --by site", "per class or per group, but got both; choose --per-class or --by"),
        ("sets OLD --new NEW", "expected --out with --new, but got none"),
        ("sets OLD --out x.csv", "expected --new with --out, but got none"),
        ("sets OLD --columns sample_weight=probability_cat", "predictions without weights"),
        ("sets OLD --new NEW --out NEW", "is an input of this command"),
    ],
)
def test_mistakes(files, command, capsys, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"OLD": files[0], "NEW": files[1]}
    command(*(names.get(one, one) for one in arguments.split()), code=2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"old.csv", "new.csv"}


def test_a_bare_confidence(command, capsys, tmp_path):
    rng = np.random.default_rng(0)
    confidence = rng.random(1000)
    correct = rng.random(1000) < 0.7 + 0.3 * confidence
    np.savez(tmp_path / "bare.npz", confidence=confidence, correct=correct)
    np.savez(tmp_path / "new.npz", confidence=confidence[:50])
    command(
        "select", tmp_path / "bare.npz", "--fdr", 0.2, "--new", tmp_path / "new.npz", "--out", tmp_path / "out.csv"
    )
    rows = written(tmp_path / "out.csv")
    assert [*rows[0]] == ["row", "selected"]
    expected = select_with_fdr(confidence, correct, confidence[:50], 0.2).selected
    assert [row["selected"] == "true" for row in rows] == expected.tolist()
    command("sets", tmp_path / "bare.npz", code=2)
    assert "expected logits or probabilities of all classes to build sets" in capsys.readouterr().err
    command("threshold", tmp_path / "bare.npz", "--risk", 0.2, "--per-class", code=2)
    assert "expected predicted classes with --per-class" in capsys.readouterr().err


def test_a_promise_rests_on_rows_that_no_calibrator_saw(files, drawn, command, capsys, tmp_path):
    """A temperature fitted to the design half: the guarantees use the other 1,000 rows, of the calibrated table."""
    from confrank.decisions import calibrate
    from confrank.decisions.policy import CalibratorPart
    from confrank.decisions.rows import design_rows

    old, new = files
    path = tmp_path / "policy.json"
    predictions = read(old)
    start = Policy.of(predictions)
    index, rows = start.usable(predictions, "design", file="old.csv")
    table, label = drawn["table"][:2000], drawn["label"][:2000]
    fitted = calibrate(probabilities=table[index], label=label[index], method="temperature")
    start.with_part(CalibratorPart("temperature", fitted.parameters, rows)).save(path)
    scaled = fitted.apply(probabilities=table)
    promised = ~design_rows(2000)
    assert not np.isin(np.flatnonzero(promised), index).any()
    command("sets", old, "--method", "aps", "--policy", path, "--new", new, "--out", tmp_path / "sets.csv")
    rule = conformal_sets(
        logits=scaled[promised], label=label[promised], key=drawn["key"][:2000][promised], method="aps"
    )
    policy = Policy.load(path)
    assert policy.sets.rows.half == "promise"
    assert policy.sets.conformal() == rule
    assert policy.sets.counts == {"all": 1000}
    sets = rule.sets(logits=fitted.apply(probabilities=drawn["table"][2000:]), key=drawn["key"][2000:])
    assert [row["set"] for row in written(tmp_path / "sets.csv")] == [
        "|".join(np.array(CLASSES)[one]) for one in sets
    ]
    command("threshold", old, "--risk", 0.05, "--delta", 0.05, "--by", "site", "--policy", path)
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    correct = scaled.argmax(axis=1) == label
    expected = group_thresholds(
        (1 / exponentials.sum(axis=1))[promised], correct[promised], drawn["site"][:2000][promised], 0.05, 0.05
    )
    policy = Policy.load(path)
    assert policy.threshold.thresholds == pytest.approx(expected.thresholds)
    assert policy.sentences()[-1].startswith("Each guarantee holds separately, with its own probability")


def test_sets_of_rows_without_keys_are_those_that_a_policy_gives_to_each_row_alone(drawn, command, tmp_path):
    file, policy, result = tmp_path / "old.npz", tmp_path / "policy.json", tmp_path / "result.json"
    np.savez(file, probabilities=drawn["table"][:400], label=drawn["label"][:400])
    command("sets", file, "--method", "aps", "--seed", 3, "--policy", policy, "--json", result)
    loaded = Policy.load(policy)
    single = [loaded.apply({"probabilities": drawn["table"][[row]]}).sets for row in range(400)]
    assert json.loads(result.read_text())["calibration"]["mean_size"] == np.concatenate(single).sum(axis=1).mean()


def test_too_many_errors_are_not_blamed_on_too_few_rows(tmp_path, command, capsys):
    rows = "".join(f"{0.5 + number / 999},0,{'ab'[number % 2]}\n" for number in range(200))
    (tmp_path / "wrong.csv").write_text("confidence,correct,site\n" + rows)
    command("threshold", tmp_path / "wrong.csv", "--risk", 0.1, "--by", "site", code=2)
    error = capsys.readouterr().err
    assert "more rows like these would not suffice; use a model with fewer wrong predictions, or a higher" in error
    (tmp_path / "new.csv").write_text("confidence\n0.7\n")
    command("select", tmp_path / "wrong.csv", "--new", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert "compared    with 200 calibration rows, 200 of them wrong\n" in capsys.readouterr().out


def test_one_row_is_worded_as_one(tmp_path, command, capsys):
    (tmp_path / "one.csv").write_text("probability_a,probability_b,label\n0.9,0.1,a\n")
    command("sets", tmp_path / "one.csv")
    printed = capsys.readouterr().out
    assert "quantile    none (1 row)\nsizes       2.00 classes on average in 1 calibration row; 0.0% have" in printed
    command("threshold", tmp_path / "one.csv", "--cost-error", 10, "--cost-reject", 1)
    printed = capsys.readouterr().out
    assert "(1 of 1 prediction)" in printed
    assert "new rows    not measured: 1 row cannot be split into folds\n" in printed


def test_the_page_says_which_confidence_a_threshold_applies_to(tmp_path, command):
    rows = "".join(f"{number / 300},{int(number % 7 > 0)}\n" for number in range(300))
    (tmp_path / "val.csv").write_text("confidence,correct\n" + rows)
    pages = []
    for name, methods in (("plain", []), ("calibrated", ["isotonic"])):
        policy, report = tmp_path / f"{name}.json", tmp_path / f"{name}.html"
        for method in methods:
            command("calibrate", tmp_path / "val.csv", "--method", method, "--policy", policy)
        command("threshold", tmp_path / "val.csv", "--coverage", 0.5, "--policy", policy)
        command("evaluate", tmp_path / "val.csv", "--resamples", 0, "--policy", policy, "--report", report)
        pages.append(report.read_text())
    for text in (
        "The policy compares confidences after the calibrator of confidence.",
        "thresholds of the policy apply after the calibrator of confidence.",
    ):
        assert [text in one for one in pages] == [False, True]


def test_rows_that_share_an_id_are_pointed_out(tmp_path, capsys, command):
    """As several images of one patient, which are not independent."""
    rows = "".join(f"p{row // 4},{row % 3},{row % 3 if row % 9 else 1},0.{90 - row % 40}\n" for row in range(400))
    (tmp_path / "a.csv").write_text(f"id,label,prediction,confidence\n{rows}")
    note = "note: id is not unique; if rows of one id depend on each other, the guarantee does not hold"
    note += ": it takes rows as independent\n"
    for flags, is_noted in (
        (("threshold", "--risk", 0.3), True),
        (("threshold", "--risk", 0.3, "--per-class"), True),
        (("threshold", "--coverage", 0.5), False),
        (("select", "--fdr", 0.3, "--new", tmp_path / "a.csv", "--out", tmp_path / "out.csv"), True),
    ):
        command(flags[0], tmp_path / "a.csv", *flags[1:])
        assert (note in capsys.readouterr().out) is is_noted


def test_repeated_rows_are_pointed_out_with_and_without_a_policy(files, command, capsys, tmp_path):
    """Each row three times certifies too much. Of 600 rows, 568 have three classes with a probability of 0.005."""
    header, *rows = files[0].read_text().splitlines()
    (tmp_path / "thrice.csv").write_text(
        "\n".join(line.split(",", 1)[1] for line in [header, *(3 * rows[:600])]) + "\n"
    )
    note = "1,136 of 1,800 rows repeat another row exactly; a guarantee assumes independent rows"
    for number, flags in enumerate(
        (("threshold", "--risk", 0.3), ("threshold", "--risk", 0.3, "--by", "site"), ("sets",))
    ):
        for policy in (("--policy", tmp_path / f"{number}.json"), ()):
            command(flags[0], tmp_path / "thrice.csv", *flags[1:], *policy)
            assert capsys.readouterr().out.count(note) == 1, (flags, policy)
    command("select", tmp_path / "thrice.csv", "--new", files[1], "--out", tmp_path / "out.csv")
    assert capsys.readouterr().out.count(note) == 1
    command("threshold", files[0], "--risk", 0.3)
    assert "repeat" not in capsys.readouterr().out


def test_new_rows_among_those_that_made_the_decision_are_pointed_out(files, command, capsys, tmp_path):
    note = "note: some of these rows were used to make the decision; its guarantees are about other rows\n"
    old, new = files
    policy = ("--policy", tmp_path / "p.json")
    command("threshold", old, "--risk", 0.3, *policy)
    for file, is_noted in ((old, True), (new, False)):
        capsys.readouterr()
        command("apply", tmp_path / "p.json", file, "--out", tmp_path / "answers.csv")
        assert (note in capsys.readouterr().out) is is_noted
        for name in ("sets", "select"):
            command(name, old, "--new", file, "--out", tmp_path / "out.csv")
            assert (note in capsys.readouterr().out) is is_noted


@pytest.mark.parametrize("asked", [("sets", "--per-class", "--by", "site"), ("select",)], ids=lambda asked: asked[0])
def test_what_was_read_is_printed_before_a_failure(files, command, capsys, tmp_path, asked):
    (tmp_path / "bad.csv").write_text("file,confidence\na,high\n")
    new = ("--new", tmp_path / "bad.csv", "--out", tmp_path / "out.csv")
    command(asked[0], files[0], *asked[1:], *new, code=2)
    assert capsys.readouterr().out.startswith("read 2,000 predictions, 3 classes, probabilities")


@pytest.mark.parametrize(("kind", "num_classes"), [("probabilities", 3), ("probabilities", 2), ("logits", 3)])
def test_the_order_of_a_table_in_memory_changes_nothing(
    drawn, kind, num_classes, command, capsys, tmp_path, monkeypatch
):
    """In Fortran order, as `DataFrame.to_numpy()` and `x.T` give it."""
    rows = np.flatnonzero(drawn["label"] < num_classes)[:1000]
    table = drawn["table"][rows, :num_classes]
    table = np.log(table) if kind == "logits" else table / table.sum(axis=1, keepdims=True)
    asked = [("threshold", "--risk", 0.2), ("threshold", "--risk", 0.2, "--per-class")]
    asked += [("threshold", "--cost-error", 5, "--cost-reject", 1), ("sets", "--method", "aps"), ("calibrate",)]
    asked += [("scores", "--resamples", 0)]
    found = {}
    for order in "CF":
        (tmp_path / order).mkdir()
        monkeypatch.chdir(tmp_path / order)
        np.savez("file.npz", **{kind: np.asarray(table, order=order)}, label=drawn["label"][rows])
        for number, (name, *flags) in enumerate(asked):
            command(name, "file.npz", *flags, "--policy", f"{number}.json")
        policies = [path.read_text() for path in sorted(Path().glob("*.json"))]
        found[order] = (capsys.readouterr().out, policies)
    assert found["C"] == found["F"]
    assert len(found["C"][1]) == len(asked)
