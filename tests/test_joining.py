"""Labels and grades of another file, as people write them with pandas: late, in any order, by key or by row."""

import numpy as np
import pandas as pd
import pytest

from confrank import evaluate
from confrank.predictions import read

rng = np.random.default_rng(4)
SURE = rng.uniform(0.4, 1, 60).round(4)
RIGHT = rng.random(60) < SURE
ANSWERS = pd.DataFrame({"id": [f"q{k}" for k in range(60)], "answer": rng.choice([*"xyz"], 60), "confidence": SURE})
GRADES = pd.DataFrame({"id": ANSWERS.id, "correct": RIGHT.astype(int)})


def metrics(predictions):
    return evaluate(**predictions.evaluation_inputs()).metrics


EXPECTED = evaluate(confidence=SURE, correct=RIGHT).metrics


@pytest.mark.parametrize("order", ["answers first", "grades first"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_grades_join_in_any_order_of_rows(tmp_path, order, ending):
    answers, grades = (ANSWERS, GRADES) if order == "answers first" else (ANSWERS[::-1], GRADES.sample(frac=1))
    for name, frame in (("answers", answers), ("grades", grades)):
        path = tmp_path / f"{name}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path, index=False)
    found = read(tmp_path / f"answers.{ending}", truth=tmp_path / f"grades.{ending}")
    assert metrics(found) == pytest.approx(EXPECTED) and "joined by id" in found.describe()
    assert found.reading == {}
    named = read(ANSWERS, truth=GRADES.rename(columns={"correct": "ok"}), columns={"correct": "ok"})
    assert named.reading == {"columns": {"correct": "ok"}, "values": ["confidence"]}


def test_late_grades_count_once_they_are_there(tmp_path):
    late = GRADES.iloc[:40]
    with pytest.raises(ValueError, match=r"20 of 60 predictions are not in .* \(q40, q41, q42 and 17 more\)"):
        read(ANSWERS, truth=late)
    found = read(ANSWERS, truth=late, skip_missing=True)
    assert metrics(found) == pytest.approx(evaluate(confidence=SURE[:40], correct=RIGHT[:40]).metrics)
    assert "20 predictions without label skipped" in found.notes and found.rows.tolist() == [*range(40)]


def test_several_answers_for_one_key_each_get_its_grade():
    samples = pd.concat([ANSWERS, ANSWERS.assign(confidence=SURE / 2)])
    found = read(samples, truth=GRADES)
    expected = evaluate(confidence=np.concatenate([SURE, SURE / 2]), correct=np.tile(RIGHT, 2)).metrics
    assert metrics(found) == pytest.approx(expected) and found.key is None
    assert "id repeats, so rows may depend on each other" in found.notes
    clustered = read(samples, truth=GRADES, columns={"cluster": "id"})
    assert clustered.extra["cluster"].tolist() == samples.id.tolist()
    assert not any("repeats" in note for note in clustered.notes)


def test_commands_say_that_rows_of_one_id_may_depend_on_each_other(tmp_path, command, capsys):
    frame = ANSWERS.assign(correct=RIGHT, id=np.arange(60) // 3)
    frame.to_csv(tmp_path / "a.csv", index=False)
    note = "note: id is not unique; if rows of one id depend on each other, the {} not hold"
    for arguments, what in ((["evaluate"], "intervals do"), (["threshold", "--risk", 0.5], "guarantee does")):
        command(arguments[0], tmp_path / "a.csv", *arguments[1:])
        assert note.format(what) in " ".join(capsys.readouterr().out.split())
    command("evaluate", tmp_path / "a.csv")
    assert "the intervals do not hold without --cluster id" in " ".join(capsys.readouterr().out.split())
    for flags in (["--columns", "cluster=id"], ["--cluster", "id"]):
        command("evaluate", tmp_path / "a.csv", *flags)
        assert "not unique; if rows" not in " ".join(capsys.readouterr().out.split())


def test_rows_are_joined_in_their_order_where_neither_file_has_a_key(tmp_path):
    ANSWERS.drop(columns="id").to_csv(tmp_path / "a.csv", index=False)
    GRADES.drop(columns="id").to_csv(tmp_path / "g.csv", index=False)
    found = read(tmp_path / "a.csv", truth=tmp_path / "g.csv")
    assert metrics(found) == pytest.approx(EXPECTED) and found.notes == ("correct joined by row",)
    GRADES.drop(columns="id").iloc[1:].to_csv(tmp_path / "g.csv", index=False)
    with pytest.raises(ValueError, match="as many rows in both files, .* but got 60 predictions and 59 labels; add"):
        read(tmp_path / "a.csv", truth=tmp_path / "g.csv")
    with pytest.raises(ValueError, match="a column that identifies the samples in both files"):
        read(ANSWERS, truth=tmp_path / "g.csv")


def test_a_time_may_be_in_the_file_of_grades():
    found = read(ANSWERS, truth=GRADES.assign(graded_at="2026-11-19"), columns={"time": "graded_at"})
    assert {*found.extra["time"]} == {"2026-11-19"} and metrics(found) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("name", ["answers-2026-11-{}.parquet", "202611{}.parquet", "part-{}.parquet"])
def test_daily_parts(tmp_path, name):
    """Parts named by their day, with or without ids, as a folder or a pattern."""
    for day, rows in ((17, slice(0, 20)), (18, slice(20, 45)), (20, slice(45, 60))):
        whole = ANSWERS.assign(correct=RIGHT).drop(columns="id").iloc[rows]
        whole.to_parquet(tmp_path / name.format(day), index=False)
    if name.startswith("part"):
        with pytest.raises(ValueError, match="parts numbered without gaps, but number 1, 2, .* missing"):
            read(tmp_path)
        return
    found = read(tmp_path / name.format("*"))
    assert metrics(found) == pytest.approx(EXPECTED) and found.notes == ("3 parts",)
    assert metrics(read(tmp_path)) == pytest.approx(EXPECTED)


def test_answers_of_apply_are_read_with_and_without_grades(tmp_path, command, capsys):
    label = rng.choice(["cat", "dog"], 400)
    share = np.clip(np.where(label == "cat", 0.85, 0.15) + rng.normal(0, 0.2, 400), 0.01, 0.99).round(4)
    frame = pd.DataFrame({"id": range(400), "label": label, "probability_cat": share, "probability_dog": 1 - share})
    frame.to_csv(tmp_path / "val.csv", index=False)
    frame.drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    frame[["id", "label"]].sample(frac=1, random_state=0).to_csv(tmp_path / "labels.csv", index=False)
    policy, answers = tmp_path / "policy.json", tmp_path / "answers.csv"
    command("threshold", tmp_path / "val.csv", "--risk", 0.2, "--policy", policy)
    command("apply", policy, tmp_path / "new.csv", "--out", answers)
    expected = evaluate(probabilities=frame.iloc[:, 2:].to_numpy(), label=(label == "dog").astype(int)).metrics
    found = read(answers, truth=tmp_path / "labels.csv")
    assert metrics(found)["acc"] == expected["acc"] and metrics(found)["aurc"] == pytest.approx(expected["aurc"])
    graded = frame[["id"]].assign(correct=np.where(share >= 0.5, "cat", "dog") == label)
    assert metrics(read(answers, truth=graded))["aurc"] == pytest.approx(expected["aurc"])
    capsys.readouterr()
    command("evaluate", answers, code=2)
    assert "give the labels with --columns, as in label=COLUMN, or with --truth FILE" in capsys.readouterr().err
    command("evaluate", answers, "--truth", tmp_path / "labels.csv", "--resamples", 0)
    command("threshold", answers, "--truth", tmp_path / "labels.csv", "--risk", 0.2)
