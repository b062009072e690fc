"""confrank apply, and the policies that other commands write: files in, answers out, mistakes in one line."""

import csv
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from forked import SERVER
from test_policy import made

from confrank.cli import main
from confrank.decisions import Policy
from confrank.decisions.answers import check_answers
from confrank.decisions.policy import ThresholdPart
from confrank.decisions.policy_file import checksum, locked
from confrank.decisions.rows import design_rows
from confrank.predictions import read

NAMES = ["cat", "dog", "=eel"]


def write(path, predictions, prefix="probability_", order=None, label=True):
    order = list(range(len(NAMES))) if order is None else order
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(["label"] if label else []), *(prefix + NAMES[number] for number in order)])
        for row, (values, true) in enumerate(zip(predictions.probabilities.tolist(), predictions.label, strict=True)):
            writer.writerow(
                [f"a{row}", *([NAMES[true]] if label else []), *(repr(values[number]) for number in order)]
            )
    return path


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "val.csv", made())
    return tmp_path


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def last_error(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_apply_gives_what_threshold_showed(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json", "--json", "t.json")
    shown = json.loads((files / "t.json").read_text())
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    assert (
        f"1,200 answers: {shown['accepted']:,} accepted, {1200 - shown['accepted']:,} rejected"
        in capsys.readouterr().out
    )
    answers, samples = rows_of(files / "a.csv"), read(files / "val.csv")
    assert list(answers[0]) == ["id", "prediction", "confidence", "accepted"]
    confidence = np.array([float(row["confidence"]) for row in answers])
    assert (confidence == samples.probabilities.max(axis=1)).all()
    accepted = np.array([row["accepted"] == "true" for row in answers])
    assert (accepted == (confidence >= shown["threshold"])).all() and accepted.sum() == shown["accepted"]
    assert answers[0]["id"] == "a0"
    predicted = [NAMES[number].replace("=eel", "'=eel") for number in samples.probabilities.argmax(axis=1)]
    assert [row["prediction"] for row in answers] == predicted  # no spreadsheet runs =eel
    policy = Policy.load(files / "p.json")
    applied = policy.apply({"probabilities": samples.probabilities})
    assert (applied.accepted == accepted).all() and (applied.confidence == confidence).all()


def test_new_files_need_no_labels_and_may_order_classes_otherwise(files, command):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    new = made()
    write(files / "bare.csv", new, prefix="", order=[2, 0, 1], label=False)
    # A further column is no class, and labels are neither needed nor checked.
    text = (files / "val.csv").read_text().replace(",cat,", ",,").replace("id,label", "id,gold")
    (files / "partly.csv").write_text(text)
    rows = (files / "bare.csv").read_text().splitlines()
    (files / "more.csv").write_text(
        "\n".join([f"age,{rows[0]}", *(f"{n % 7},{row}" for n, row in enumerate(rows[1:]))])
    )
    np.savez(files / "new.npz", probabilities=new.probabilities, class_names=NAMES, id=[f"a{n}" for n in range(1200)])
    for name in ("bare.csv", "partly.csv", "more.csv", "new.npz"):
        command("apply", "p.json", name, "--out", "b.csv")
        assert (files / "b.csv").read_text() == (files / "a.csv").read_text()


def test_a_confidence_alone_can_have_a_policy(files, command, capsys):
    table = made().probabilities
    right = table.argmax(axis=1) == made().label
    lines = [f"{value!r},{int(flag)}" for value, flag in zip(table.max(axis=1).tolist(), right, strict=True)]
    (files / "c.csv").write_text("\n".join(["confidence,correct", *lines]))
    (files / "n.csv").write_text("\n".join(["conf", *(line.split(",")[0] for line in lines)]))
    (files / "pipeline.jsonl").write_text('{"label": "cat", "score": 0.99}\n{"label": "dog", "score": 0.1}\n')
    command("threshold", "c.csv", "--risk", 0.2, "--policy", "p.json")
    command("apply", "p.json", "n.csv", "--out", "a.csv")
    assert list(rows_of(files / "a.csv")[0]) == ["row", "confidence", "accepted"]
    command("apply", "p.json", "pipeline.jsonl", "--out", "b.csv")
    assert [list(row.values()) for row in rows_of(files / "b.csv")] == [
        ["0", "cat", "0.99", "true"],
        ["1", "dog", "0.1", "false"],
    ]
    capsys.readouterr()
    command("apply", "p.json", "val.csv", code=2)
    assert "expected a confidence without probabilities" in last_error(capsys)


REFUSED = {
    "missing": (None, "expected a policy file, but bad.json does not exist"),
    "no JSON": ("nonsense", "not a JSON object"),
    "no policy": ('{"metrics": {}}', "it has no version number"),
    "newer": ('{"confrank_policy": 2}', "version 1 or earlier, but got version 2; update confrank"),
    "not finite": ('{"confrank_policy": 1, "threshold": {"threshold": NaN}, "checksum": "x"}', "not a JSON object"),
    "nested": ("[" * 100000, "not a JSON object"),
    "twice": (
        '{"confrank_policy": 1, "confrank_policy": 1}',
        "distinct names in each object, but got 'confrank_policy' twice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused(files, command, capsys, name):
    content, message = REFUSED[name]
    if content is not None:
        (files / "bad.json").write_text(content)
    command("apply", "bad.json", "val.csv", code=2)
    assert message in last_error(capsys)
    assert not (files / "answers.csv").exists()


def test_a_changed_policy_is_refused(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    content = (files / "p.json").read_text()
    threshold = json.loads(content)["threshold"]["threshold"]
    capsys.readouterr()
    (files / "p.json").write_text(content.replace(repr(threshold), "0.1"))
    command("apply", "p.json", "val.csv", code=2)
    assert "its content does not match its checksum; restore the file" in last_error(capsys)
    values = json.loads(content)
    del values["checksum"]
    for change in ({"threshold": {"threshold": 0.1, "colour": "red"}}, {"input": {}}, {"score": {"rows": 3}}):
        odd = values | change
        (files / "p.json").write_text(json.dumps(odd | {"checksum": checksum(odd)}))
        command("apply", "p.json", "val.csv", code=2)
        assert "expected a policy that confrank wrote, but got" in last_error(capsys)
    (files / "p.json").write_text(json.dumps(json.loads(content), indent=7, sort_keys=True))  # spaces may change
    command("apply", "p.json", "val.csv")


@pytest.mark.parametrize(("slot", "part", "remedy"), [
    ("table_calibrator", {"method": "vector", "parameters": {"factor": [1, 1, 1], "bias": [0, 0, 0]}},
     "confrank calibrate FILE --method temperature --policy NEW.json"),
    ("confidence_calibrator", {"method": "platt", "parameters": {}},
     "confrank calibrate FILE --method isotonic --policy NEW.json"),
    ("selection", {"fdr": 0.02, "scores": [0.5], "n": 9},
     "confrank select FILE --fdr 0.02 --new NEW --out OUT.csv"),
    ("threshold", {"settings": {"risk": 0.3, "delta": 0.01, "class_risk": {"cat": 0.2}}},
     "confrank threshold FILE --risk 0.3 --delta 0.01 --per-class --policy NEW.json"),
])  # fmt: skip
def test_a_part_that_is_no_longer_supported_names_the_command_to_use(files, command, capsys, slot, part, remedy):
    command("threshold", "val.csv", "--risk", 0.3, "--policy", "p.json")
    values = json.loads((files / "p.json").read_text())
    del values["checksum"]
    values[slot] = values.get(slot, {}) | part
    (files / "p.json").write_text(json.dumps(values | {"checksum": checksum(values)}))
    for arguments in (["apply", "p.json", "val.csv"], ["monitor", "p.json", "val.csv"]):
        command(*arguments, code=2)
        assert last_error(capsys).endswith(f", which confrank no longer supports; use: {remedy}")


def test_a_class_that_is_there_twice_is_refused(files, command, capsys):
    table, label = made().probabilities, made().label
    np.savez("val.npz", probabilities=table, label=label, class_names=["a", "b", "c"])
    np.savez("new.npz", probabilities=table, class_names=["a", "b", "a"])
    command("threshold", "val.npz", "--risk", 0.2, "--policy", "p.json")
    capsys.readouterr()
    command("apply", "p.json", "new.npz", code=2)
    assert "new.npz: expected the classes that the policy was made on, each once, but got a twice" in last_error(
        capsys
    )


def test_predictions_of_another_kind_are_refused(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    four = made(50, num_classes=4)
    np.savez(files / "four.npz", probabilities=four.probabilities)
    np.savez(files / "logits.npz", logits=four.probabilities[:, :3])
    np.savez(files / "names.npz", probabilities=made(50).probabilities, class_names=["cat", "dog", "fox"])
    np.savez(files / "score.npz", confidence=four.probabilities[:, 0])
    for name, message in (
        ("four", "expected 3 classes, as in the file that the policy was made on, but got 4"),
        ("logits", "expected probabilities, as in the file that the policy was made on, but got logits"),
        ("names", "expected the classes that the policy was made on, but got fox instead of =eel"),
        ("score", "but got a confidence without probabilities"),
    ):
        capsys.readouterr()
        command("apply", "p.json", f"{name}.npz", code=2)
        assert message in last_error(capsys)
    np.savez(files / "sums.npz", probabilities=made(50).probabilities * 0.5)
    command("apply", "p.json", "sums.npz", code=2)
    assert "sums.npz: expected probabilities that sum to 1" in last_error(capsys)
    (files / "odd.csv").write_text("id,height\na,3\nb,4\n")
    command("apply", "p.json", "odd.csv", code=2)
    assert "say what they are with --columns" in last_error(capsys)
    command("apply", "p.json", "val.csv", "--skip-missing", "--out", "p.json", code=2)
    assert "expected --out to name a file ending in .csv" in last_error(capsys)


def test_skipped_rows_need_a_key(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    (files / "new.csv").write_text("cat,dog,=eel\n0.2,0.3,0.5\n,0.3,0.5\n")
    capsys.readouterr()
    command("apply", "p.json", "new.csv", "--skip-missing", code=2)
    assert "expected a column that identifies rows" in last_error(capsys)
    (files / "new.csv").write_text("id,cat,dog,=eel\nx,0.2,0.3,0.5\ny,,0.3,0.5\nz,0.1,0.1,0.8\n")
    command("apply", "p.json", "new.csv", "--skip-missing")
    assert [row["id"] for row in rows_of(files / "answers.csv")] == ["x", "z"]


def test_a_new_policy_is_announced_and_its_folder_created(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "typo.json")
    assert "policy      created typo.json with a threshold\n" in capsys.readouterr().out
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "new/folder/p.json")
    assert "policy      created new/folder/p.json with a threshold\n" in capsys.readouterr().out


def test_the_array_of_class_names_is_not_called_ignored(files, command, capsys):
    data = made(50)
    np.savez(files / "p.npz", probabilities=data.probabilities, label=data.label, class_names=NAMES, classes=NAMES)
    command("threshold", "p.npz", "--coverage", 0.5)
    assert capsys.readouterr().out.startswith("read 50 predictions, 3 classes, probabilities\n")
    assert read(files / "p.npz").roles["class_names"] == "names of the classes"


def test_a_part_is_replaced_only_on_request(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    before = (files / "p.json").read_bytes()
    capsys.readouterr()
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json", code=2)
    assert "expected a policy without a threshold, but this one has a threshold" in last_error(capsys)
    assert (files / "p.json").read_bytes() == before
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json", "--replace")
    assert "p.json: replaced the threshold\n            it now has a threshold\n" in capsys.readouterr().out
    assert Policy.load(files / "p.json").threshold.promise == ""
    command("sets", "val.csv", "--policy", "p.json")
    command("threshold", "val.csv", "--risk", 0.3, "--policy", "p.json", "--replace")
    printed = capsys.readouterr().out
    assert "replaced the threshold\n            it now has a threshold and conformal sets\n" in printed
    assert (
        "note        Replaces 1 earlier guarantee on val.csv: a guarantee that was chosen for its result" in printed
    )
    command("calibrate", "val.csv", "--method", "isotonic", "--policy", "p.json", code=2)
    assert "has a threshold; start a new policy" in last_error(capsys)
    command("calibrate", "val.csv", "--method", "isotonic", "--policy", "p.json", "--replace")
    printed = capsys.readouterr().out
    assert "dropped the threshold\n            it now has a calibrator of confidence and conformal sets\n" in printed
    for flags, message in (
        (["--replace"], "expected --policy with --replace"),
        (["--policy", "q.json", "--split", 0.5], "either --split or --policy"),
    ):
        command("threshold", "val.csv", "--risk", 0.2, *flags, code=2)
        assert message in last_error(capsys)


def grouped(path):
    """The validation file with a column of groups."""
    lines = (path / "val.csv").read_text().splitlines()
    sites = ["site", *(("north", "south", "west")[row % 3] for row in range(len(lines) - 1))]
    (path / "val.csv").write_text("\n".join(f"{site},{line}" for site, line in zip(sites, lines, strict=True)))


def column(path, name):
    return [row[name] for row in rows_of(path)]


def test_apply_gives_bit_for_bit_what_each_command_wrote(files, command):
    """A score, then sets, and thresholds per group and class, all made by their commands."""
    grouped(files)
    command("scores", "val.csv", "--resamples", 0, "--policy", "score.json", "--json", "s.json")
    for number, flags in enumerate((["--method", "aps", "--by", "site"], ["--method", "raps", "--per-class"])):
        policy = f"{number}.json"
        (files / policy).write_bytes((files / "score.json").read_bytes())
        command("sets", "val.csv", *flags, "--new", "val.csv", "--out", "out.csv", "--policy", policy)
        command("apply", policy, "val.csv", "--out", "a.csv")
        assert column(files / "out.csv", "set") == column(files / "a.csv", "set")
        assert len({*column(files / "a.csv", "set")}) > 1
    predictions = read(files / "val.csv", keep=["site"])
    for number, flags in enumerate((["--by", "site"], ["--per-class"]), 2):
        policy = f"{number}.json"
        (files / policy).write_bytes((files / "score.json").read_bytes())
        command("threshold", "val.csv", "--risk", 0.3, *flags, "--policy", policy, "--json", "t.json")
        shown = json.loads((files / "t.json").read_text())["groups"]
        command("apply", policy, "val.csv", "--out", "a.csv")
        rows = Policy.load(files / policy).threshold.rows
        used = np.flatnonzero(~design_rows(len(predictions))).tolist()
        assert (rows.half, rows.used) == ("promise", len(used))
        answers = rows_of(files / "a.csv")
        values = [
            predictions.extra["site"][row] if flags[0] == "--by" else answers[row]["prediction"].lstrip("'")
            for row in used
        ]
        for value, group in shown.items():
            accepted = [answers[row]["accepted"] for row, one in zip(used, values, strict=True) if one == value]
            assert accepted.count("true") == group["accepted"] and len(accepted) == group["n"]
    assert any(group["accepted"] for group in shown.values())


def test_a_guarantee_on_rows_that_a_part_saw_is_refused(files, command, capsys):
    command("calibrate", "val.csv", "--method", "isotonic", "--policy", "half.json")
    command("calibrate", "val.csv", "--method", "isotonic", "--policy", "all.json", "--rows", "all")
    lines = (files / "val.csv").read_text().splitlines()
    (files / "shuffled.csv").write_text("\n".join([lines[0], *np.random.default_rng(0).permutation(lines[1:])]))
    write(files / "other.csv", made(seed=1))
    before = (files / "half.json").read_bytes(), (files / "all.json").read_bytes()
    capsys.readouterr()
    for arguments in (["threshold", "--risk", 0.3], ["sets"]):
        command(arguments[0], "val.csv", *arguments[1:], "--policy", "all.json", code=2)
        assert "a calibrator of confidence used all rows of val.csv" in last_error(capsys)
        for policy in ("half.json", "all.json"):
            command(arguments[0], "shuffled.csv", *arguments[1:], "--policy", policy, code=2)
            assert "shuffled.csv shares rows with val.csv" in last_error(capsys)
    assert before == ((files / "half.json").read_bytes(), (files / "all.json").read_bytes())
    command("threshold", "other.csv", "--risk", 0.3, "--policy", "all.json")
    command("threshold", "val.csv", "--risk", 0.3, "--policy", "half.json")
    used = [Policy.load(files / name).threshold.rows for name in ("all.json", "half.json")]
    assert [(rows.half, rows.used) for rows in used] == [("all", 1200), ("promise", 600)]


def test_calibrators_score_and_threshold_in_a_row(files, command):
    for method in ("temperature", None, "isotonic"):
        arguments = ["scores", "val.csv", "--resamples", 0] if method is None else ["calibrate", "val.csv"]
        command(*arguments, *([] if method is None else ["--method", method]), "--policy", "p.json")
    command("threshold", "val.csv", "--risk", 0.3, "--policy", "p.json", "--json", "t.json")
    shown = json.loads((files / "t.json").read_text())
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    policy, used = Policy.load(files / "p.json"), np.flatnonzero(~design_rows(1200))
    assert [*policy.parts()] == ["table_calibrator", "score", "confidence_calibrator", "threshold"]
    assert [part.rows.half for part in policy.parts().values()] == ["design", "design", "design", "promise"]
    accepted = np.array([one == "true" for one in column(files / "a.csv", "accepted")])[used]
    assert (accepted.sum(), len(used)) == (shown["accepted"], shown["num_samples"])
    confidence = np.array([float(one) for one in column(files / "a.csv", "confidence")])
    assert confidence.tolist() == policy.confidence(read(files / "val.csv")).tolist()


def test_a_threshold_of_least_cost(files, command, capsys):
    costs = ["--cost-error", 5, "--cost-reject", 1]
    command("threshold", "val.csv", *costs, "--policy", "p.json", "--json", "t.json")
    shown = json.loads((files / "t.json").read_text())
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    assert column(files / "a.csv", "accepted").count("true") == shown["accepted"]
    policy = Policy.load(files / "p.json")
    assert policy.threshold.threshold == shown["threshold"] and not policy.threshold.promise
    assert policy.sentences()[1].endswith("at the least cost if an error costs 5 and a rejection 1.")
    write(files / "wrong.csv", made(60, label=(made(60).probabilities.argmax(axis=1) + 1) % 3))
    command("threshold", "wrong.csv", *costs, "--policy", "never.json")
    command("apply", "never.json", "wrong.csv", "--out", "a.csv")
    assert {*column(files / "a.csv", "accepted")} == {"false"}


def test_a_missing_group_column_is_an_error_in_one_line(files, command, capsys):
    grouped(files)
    command("threshold", "val.csv", "--risk", 0.3, "--by", "site", "--policy", "p.json")
    write(files / "new.csv", made(20), label=False)
    capsys.readouterr()
    command("apply", "p.json", "new.csv", code=2)
    assert "new.csv: expected a column 'site', but got the columns id, probability_cat" in last_error(capsys)
    lines = (files / "new.csv").read_text().splitlines()
    (files / "new.csv").write_text("\n".join(["place," + lines[0], *("east," + line for line in lines[1:])]))
    command("apply", "p.json", "new.csv", "--columns", "group=place", code=2)
    assert "expected a column 'site'" in last_error(capsys)
    (files / "new.csv").write_text("\n".join(["site," + lines[0], *("east," + line for line in lines[1:])]))
    command("apply", "p.json", "new.csv")
    out = capsys.readouterr().out
    assert "20 answers: 0 accepted, 20 rejected (20 of a group or class that the policy does not know: 'east')" in out


def test_answers_name_the_key_as_the_file_does(files, command, capsys):
    rows = "".join(f"P{row},{'cat' if row % 7 else 'dog'},cat,{60 + row % 40}.{row % 10}%\n" for row in range(300))
    (files / "hospital.csv").write_text(f"patient,truth,ai,sure\n{rows}")
    columns = ("--columns", "label=truth,prediction=ai,confidence=sure,key=patient")
    command("threshold", "hospital.csv", *columns, "--coverage", 0.5, "--policy", "h.json")
    threshold = json.loads((files / "h.json").read_text())["threshold"]["threshold"]
    assert len(str(threshold)) <= 5  # a percentage such as 71.7% is 0.717, not 0.7170000000000001
    command("apply", "h.json", "hospital.csv", *columns, "--out", "h.csv")
    assert [*rows_of(files / "h.csv")[0]] == ["patient", "prediction", "confidence", "accepted"]
    command("apply", "h.json", "hospital.csv", "--out", "again.csv")  # the policy knows the columns
    assert (files / "again.csv").read_text() == (files / "h.csv").read_text()
    (files / "renamed.csv").write_text(f"patient,truth,ki,sicher\n{rows}")
    capsys.readouterr()
    command("apply", "h.json", "renamed.csv", "--out", "h.csv", code=2)
    assert "or name them with --columns" in last_error(capsys)


@pytest.mark.parametrize("key", ["id", '"id, old"', '"say ""id"""', '"id,\nor name"'])
def test_answers_may_be_replaced(tmp_path, key):
    (tmp_path / "a.csv").write_text(f"{key},prediction,confidence\n")
    check_answers(tmp_path / "a.csv")


@pytest.mark.parametrize("header", ["notes", "id,prediction,confidence,label", "id,prediction", "x" * 200_000])
def test_other_files_are_not_replaced(files, command, capsys, header):
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json")
    (files / "mine.csv").write_text(f"{header}\n1\n")
    capsys.readouterr()
    command("apply", "p.json", "val.csv", "--out", "mine.csv", code=2)
    assert "mine.csv holds something else; choose another --out" in last_error(capsys)
    assert (files / "mine.csv").read_text() == f"{header}\n1\n"


COMMANDS = [
    ("threshold", "--risk", 0.2),
    ("threshold", "--risk", 0.2, "--per-class"),
    ("threshold", "--cost-error", 5, "--cost-reject", 1),
    ("sets",),
    ("scores",),
    ("calibrate",),
]


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: "".join(map(str, asked)))
def test_no_command_writes_over_its_predictions(files, command, capsys, asked):
    (files / "linked.json").symlink_to("val.csv")
    for flags in (("--policy", "linked.json"), ("--policy", "p.json", "--json", "linked.json")):
        command(asked[0], "val.csv", *asked[1:], *flags, code=2)
        assert "linked.json is an input of this command; choose another path" in last_error(capsys)
    assert not (files / "p.json").exists()


def test_select_writes_over_no_input(files, command, capsys):
    write(files / "new.csv", made(50), label=False)
    (files / "linked.csv").symlink_to("new.csv")
    (files / "linked.json").symlink_to("val.csv")
    for out, numbers in (("linked.csv", "s.json"), ("s.csv", "linked.json")):
        command("select", "val.csv", "--new", "new.csv", "--out", out, "--json", numbers, code=2)
        assert "is an input of this command; choose another path" in last_error(capsys)
    assert not (files / "s.csv").exists() and not (files / "s.json").exists()


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: "".join(map(str, asked)))
@pytest.mark.parametrize("link", ["same", "./same", "symbolic", "hard"])
def test_no_command_writes_two_results_to_one_path(files, command, capsys, asked, link):
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "old.json")
    policy, result = "new.json", "./new.json" if link == "./same" else "new.json"
    if link in ("symbolic", "hard"):
        policy, result = "old.json", "linked.json"
        (files / result).symlink_to(policy) if link == "symbolic" else (files / result).hardlink_to(policy)
    content = (files / "old.json").read_bytes()
    capsys.readouterr()
    command(asked[0], "val.csv", *asked[1:], "--replace", "--policy", policy, "--json", result, code=2)
    message = f"expected a file for each result, but {Path(result)} and {policy} are one; choose another path"
    assert message in last_error(capsys)
    assert (files / "old.json").read_bytes() == content and not (files / "new.json").exists()


@pytest.mark.parametrize(
    "asked", [COMMANDS[1], ("sets",), ("select", "--new", "val.csv", "--out", "s.csv")], ids=lambda asked: asked[0]
)
def test_a_guarantee_takes_no_column_of_weights(files, command, capsys, asked):
    command(asked[0], "val.csv", *asked[1:], "--columns", "sample_weight=id", code=2)
    assert last_error(capsys).endswith("equally weighted rows; leave sample_weight out of --columns")


def two_classes(path, threshold=0.5, name="score", size=400):
    """A file of labels, predictions and the probability of b; with its scores and predictions."""
    rng = np.random.default_rng(4)
    label = rng.integers(0, 2, size)
    score = np.clip(rng.normal(0.3 + 0.4 * label, 0.2), 0.001, 0.999).round(3) * (1 if threshold == 0.5 else 0.4)
    prediction = (score >= threshold).astype(int)
    lines = [f"{'ab'[a]},{'ab'[b]},{c}" for a, b, c in zip(label, prediction, score, strict=True)]
    path.write_text("\n".join([f"label,prediction,{name}", *lines, ""]))
    return score, prediction


@pytest.mark.parametrize("threshold", [0.5, 0.1])
def test_a_policy_remembers_the_positive_class(files, command, capsys, threshold):
    score, prediction = two_classes(files / "b.csv", threshold)
    rows = [f"{'ab'[number]},{value}" for number, value in zip(prediction, score, strict=True)]
    (files / "new.csv").write_text("\n".join(["prediction,score", *rows]))
    command("threshold", "b.csv", "--coverage", 0.5, "--positive", "b", "--policy", "p.json")
    stored = json.loads((files / "p.json").read_text())["input"]["reading"]
    assert stored == {"positive": "b", "values": ["score"]}
    for asked in ([], ["--positive", "b"]):
        capsys.readouterr()
        command("apply", "p.json", "new.csv", "--out", "a.csv", *asked)
        assert ("read as the policy records: positive=b" in capsys.readouterr().out) == (not asked)
        answers = rows_of(files / "a.csv")
        assert [answer["prediction"] for answer in answers] == ["ab"[k] for k in prediction]
        confidence = [float(answer["confidence"]) for answer in answers]
        assert confidence == pytest.approx(np.where(prediction == 1, score, 1 - score).tolist())
    command("apply", "p.json", "new.csv", "--positive", "a", code=2)
    assert "expected the probability of 'b', as in the file that the policy was made on" in last_error(capsys)
    command("monitor", "p.json", "b.csv", "--json", "m.json")
    command("evaluate", "b.csv", "--policy", "p.json", "--report", "r.html", "--resamples", 0)
    # Another column may hold the probability of the other class.
    text = "".join(f"{'ab'[k]},{1 - c}\n" for k, c in zip(prediction, score, strict=True))
    (files / "other.csv").write_text("prediction,conf\n" + text)
    command("apply", "p.json", "other.csv", "--positive", "a", "--out", "o.csv")
    assert column(files / "o.csv", "accepted") == column(files / "a.csv", "accepted")
    # A few rows may all have the more probable class.
    sure = [k for k in range(len(score)) if abs(score[k] - 0.5) > 0.45 and prediction[k] == (score[k] > 0.5)][:3]
    lines = (files / "b.csv").read_text().splitlines()
    (files / "few.csv").write_text("\n".join([lines[0], *(lines[1 + k] for k in sure)]))
    command("monitor", "p.json", "few.csv")


def held(arguments, reached, go):
    """A command that waits for `go` after it has read the policy."""
    usable = Policy.usable

    def waiting(policy, *others, **options):
        reached.set()
        assert go.wait(60)
        return usable(policy, *others, **options)

    Policy.usable = waiting
    main(arguments)


@contextmanager
def between_reading_and_writing(*arguments):
    """Run a command; the block is run after it has read the policy and before it writes it."""
    reached, go = SERVER.Event(), SERVER.Event()
    process = SERVER.Process(target=held, args=([*map(str, arguments)], reached, go))
    process.start()
    assert reached.wait(60)
    yield process
    go.set()
    process.join(60)


@pytest.mark.parametrize("start", [[], [("scores",)]], ids=["new", "with a score"])
def test_of_two_commands_at_once_none_loses_a_part(files, command, start):
    for name, *flags in start:
        command(name, "val.csv", *flags, "--policy", "p.json")
    with between_reading_and_writing("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json") as process:
        command("sets", "val.csv", "--policy", "p.json")
    assert process.exitcode == 0
    assert [*Policy.load("p.json").parts()] == [*(["score"] if start else []), "threshold", "sets"]


def test_a_part_that_rests_on_another_policy_is_refused(files, command):
    """A threshold of the confidences before they were calibrated would be one of others afterwards."""
    with between_reading_and_writing("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json") as process:
        command("calibrate", "val.csv", "--policy", "p.json")
    assert process.exitcode == 2
    assert [*Policy.load("p.json").parts()] == ["table_calibrator"]
    policy = Policy.load("p.json")
    command("calibrate", "val.csv", "--policy", "p.json", "--replace", "--seed", 1)
    with pytest.raises(ValueError, match="expected p.json as it was read, but another command has changed"):
        policy.add(ThresholdPart(0.5), "p.json")


def test_a_policy_of_other_predictions_is_not_added_to(files, command):
    with between_reading_and_writing("sets", "val.csv", "--policy", "p.json") as process:
        np.savez("other.npz", confidence=np.linspace(0, 1, 400), correct=np.ones(400))
        command("threshold", "other.npz", "--risk", 0.2, "--policy", "p.json")
    assert process.exitcode == 2
    assert [*Policy.load("p.json").parts()] == ["threshold"]


def test_a_policy_is_changed_by_one_command_at_a_time(files, command, capsys):
    """The lock is free again after a command that was killed."""
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    process = SERVER.Process(target=main, args=(["sets", "val.csv", "--policy", "p.json"],))
    with locked(files / "p.json"):
        process.start()
        process.join(4)
        assert process.is_alive() and [*Policy.load("p.json").parts()] == ["threshold"]
        process.kill()
        process.join()
    command("sets", "val.csv", "--policy", "p.json")
    assert [*Policy.load("p.json").parts()] == ["threshold", "sets"]


def test_a_policy_remembers_columns_scale_and_logits(files, command, capsys):
    lines = [line.split(",") for line in (files / "val.csv").read_text().splitlines()[1:]]
    best = [max(map(float, cells[2:])) for cells in lines]
    rows = [",".join([cells[1].removeprefix("="), *cells[2:]]) for cells in lines]
    (files / "logits.csv").write_text("\n".join(["gold,cat,dog,eel", *rows]))
    flags = ["--columns", "label=gold", "--logits"]
    command("threshold", "logits.csv", "--coverage", 0.5, *flags, "--policy", "l.json")
    record = {"columns": {"label": "gold"}, "kind": "logits", "values": ["cat", "dog", "eel"]}
    assert json.loads((files / "l.json").read_text())["input"]["reading"] == record
    command("apply", "l.json", "logits.csv", "--out", "a.csv")
    command("monitor", "l.json", "logits.csv")
    answers = [NAMES[int(np.argmax([float(cell) for cell in cells[2:]]))] for cells in lines]
    rows = [f"{cells[1]},{answer},{100 * sure}" for cells, answer, sure in zip(lines, answers, best, strict=True)]
    grouped_rows = [f"{row},{'xy'[number % 2]}" for number, row in enumerate(rows)]
    (files / "pct.csv").write_text("\n".join(["gold,answer,sure,site", *grouped_rows]))
    flags = ["--columns", "label=gold,prediction=answer,confidence=sure,group=site", "--scale", 100]
    command("threshold", "pct.csv", "--risk", 0.3, "--by", "group", *flags, "--policy", "p.json")
    capsys.readouterr()
    command("apply", "p.json", "pct.csv", "--out", "b.csv")
    shown = capsys.readouterr().out
    assert "prediction=answer, confidence=sure, group=site, scale=100" in shown
    assert [float(cell) for cell in column(files / "b.csv", "confidence")] == pytest.approx(best)
    command("apply", "p.json", "pct.csv", "--scale", 50, "--out", "c.csv", code=2)
    assert "expected confidences in [0, 1], like those that the policy was made on, but got" in last_error(capsys)
    (files / "shares.csv").write_text("\n".join(["answer,sure,site", *(f"cat,{sure},x" for sure in best)]))
    command("apply", "p.json", "shares.csv", "--out", "d.csv")
    assert "sure divided by 100, although none of its values is above 1" in capsys.readouterr().out
    command("apply", "p.json", "shares.csv", "--scale", 1, "--out", "d.csv")
    assert column(files / "d.csv", "confidence") == [str(sure) for sure in best]
    # Another column that the caller names is not the one that the record is about.
    both = [f"cat,{100 * sure},{sure},x" for sure in best]
    (files / "both.csv").write_text("\n".join(["answer,sure,share,site", *both]))
    command("apply", "p.json", "both.csv", "--columns", "confidence=share", "--out", "e.csv")
    assert column(files / "e.csv", "confidence") == [str(sure) for sure in best]


def test_single_confidences_may_leave_the_range_of_the_policy(files, command):
    """The reference of a policy holds inner quantiles, so its own file may have values beyond 1."""
    random = np.random.default_rng(0)
    sure = np.append(random.uniform(0.3, 1, 500), [1.02, 1.01])
    right = random.random(502) < 0.9
    rows = [f"{value},{int(one)}" for value, one in zip(sure, right, strict=True)]
    (files / "scores.csv").write_text("\n".join(["confidence,correct", *rows]))
    command("threshold", "scores.csv", "--risk", 0.2, "--policy", "s.json")
    command("apply", "s.json", "scores.csv", "--out", "s.csv")
    assert len(column(files / "s.csv", "accepted")) == 502
    with pytest.raises(ValueError, match="expected finite values in confidence, but got nan in row 1"):
        Policy.load(files / "s.json").apply({"confidence": [0.5, float("nan"), 0.7]})


def test_policies_without_a_record_still_load(files, command, capsys):
    two_classes(files / "b.csv")
    command("threshold", "b.csv", "--coverage", 0.5, "--positive", "b", "--policy", "p.json")
    content = json.loads((files / "p.json").read_text())
    del content["input"]["reading"], content["checksum"]
    (files / "p.json").write_text(json.dumps(content | {"checksum": checksum(content)}))
    (files / "new.csv").write_text("id,score\nx,0.9\ny,0.2\n")
    command("apply", "p.json", "new.csv", code=2)
    assert "use --positive CLASS if it is the probability of a class" in last_error(capsys)
    command("apply", "p.json", "new.csv", "--positive", "b", "--out", "a.csv")
    assert column(files / "a.csv", "prediction") == ["b", "a"]


def test_classes_without_names_are_taken_in_order(files, command, capsys):
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json")
    np.savez(files / "new.npz", probabilities=made().probabilities)
    capsys.readouterr()
    command("apply", "p.json", "new.npz", "--out", "a.csv")
    assert "which are taken in the order cat, dog, =eel\n" in capsys.readouterr().out
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    assert "in the order" not in capsys.readouterr().out
