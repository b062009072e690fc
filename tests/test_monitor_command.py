"""`confrank monitor`: policies on files of new answers."""

import csv
import json

import numpy as np
import pytest

from confrank.decisions import conformal_sets
from confrank.decisions.chronology import chronology
from confrank.decisions.monitor import miscoverage_bound, monitor
from confrank.decisions.policy import Policy, SetsPart, ThresholdPart
from confrank.decisions.promises import follow
from confrank.predictions import Predictions, read


def made(size, seed, noise=1.0):
    """Logits and labels of four classes; `noise` [n] or a number makes errors among sure answers."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, size)
    spread = np.broadcast_to(noise, size)[:, None]
    return 1.5 * (rng.normal(size=(size, 4)) * spread + 2 * (label[:, None] == np.arange(4))), label


def write(path, logits, label, order=None, **columns):
    rows = np.arange(len(label)) if order is None else order
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "label", *(f"logit_{number}" for number in range(4))])
        for row in rows.tolist():
            cells = [values[row] for values in columns.values()]
            writer.writerow([*cells, label[row], *map(repr, logits[row].tolist())])
    return path


RISES = np.where(np.arange(1200) < 600, 1.0, 1.8)


@pytest.fixture(scope="module")
def files(tmp_path_factory, command):
    folder = tmp_path_factory.mktemp("monitor")
    write(folder / "validation.csv", *made(3000, 0))
    write(folder / "same.csv", *made(1500, 4))
    logits, label = made(1200, 2, RISES)
    time = [f"2026-01-{1 + row // 50:02}" for row in range(1200)]
    write(folder / "worse.csv", logits, label, date=time)
    mixed = np.argsort(np.arange(1200) % 7, kind="stable")
    write(folder / "mixed.csv", logits, label, mixed, second=np.arange(1200))
    command("threshold", folder / "validation.csv", "--risk", "0.06", "--delta", "0.05",
            "--policy", folder / "policy.json")  # fmt: skip
    return folder


def test_a_promise_that_holds(files, command, capsys):
    command("monitor", files / "policy.json", files / "same.csv", "--json", files / "same.json")
    printed = capsys.readouterr().out
    record = json.loads((files / "same.json").read_text())
    policy, predictions = Policy.load(files / "policy.json"), read(files / "same.csv")
    accepted, right = policy.apply(predictions).accepted, policy.correct(predictions)
    assert record["holds"] and record["tests"][0]["alarm"] is None and record["drift"]["alarm"] is None
    assert (record["accepted"], record["wrong"]) == (accepted.sum(), (accepted & ~right).sum())
    alone = monitor(right, 0.06, accepted=accepted).watches[0].test
    assert record["tests"][0]["log_e_value"] == alone.log_e_value[-1] and record["tests"][0]["limit"] == 0.06
    assert f"There is no sign in these {accepted.sum():,} answers that the guarantee is broken." in printed
    assert "This file starts a new test: answers in other files do not count." in printed
    assert "in the order of the file" in printed and "at most 0.06, with probability 0.95" in printed
    assert record["alpha"] == 0.05 and record["tests"][0]["alarm_at"] == 20


def test_the_file_that_made_the_policy_is_no_test_of_it(files, command, capsys):
    command("monitor", files / "policy.json", files / "validation.csv")
    assert "so these answers do not test its guarantee; give newer ones." in capsys.readouterr().out
    command("monitor", files / "policy.json", files / "same.csv")
    assert "do not test its guarantee" not in capsys.readouterr().out


def test_a_broken_promise_has_exit_code_3(files, command, capsys):
    command(
        "monitor", files / "policy.json", files / "worse.csv", "--time", "date", "--json", files / "w.json", code=3
    )
    printed = capsys.readouterr().out
    record = json.loads((files / "w.json").read_text())
    alarm, since = record["tests"][0]["alarm"], record["tests"][0]["since"]
    assert not record["holds"] and 600 < alarm["row"] < 800 and abs(since["row"] - 600) < 60
    assert alarm["time"] == f"2026-01-{1 + alarm['row'] // 50:02}"
    assert (
        f"First noticed at row {alarm['row']} ({alarm['time']})" in printed and "The guarantee is broken" in printed
    )
    assert "share their time" not in printed  # which is no news with dates
    assert "no longer distributed" in printed and "Labels are needed" not in printed


def test_rows_are_sorted_by_time(files, command, capsys):
    command("monitor", files / "policy.json", files / "worse.csv", "--json", files / "a.json", code=3)
    command(
        "monitor", files / "policy.json", files / "mixed.csv", "--time", "second", "--json", files / "b.json", code=3
    )
    command("monitor", files / "policy.json", files / "mixed.csv", "--columns", "time=second",
            "--json", files / "c.json", code=3)  # fmt: skip
    ordered, sorted_, by_role = (json.loads((files / name).read_text()) for name in ("a.json", "b.json", "c.json"))
    assert ordered["tests"][0]["log_e_value"] == sorted_["tests"][0]["log_e_value"]
    assert sorted_["tests"][0]["alarm"]["time"] == str(ordered["tests"][0]["alarm"]["row"])
    assert ordered["drift"]["log_e_value"] == sorted_["drift"]["log_e_value"]
    assert by_role["tests"] == sorted_["tests"]
    command("monitor", files / "policy.json", files / "mixed.csv", "--time", "label", code=3)
    assert "1,200 rows share their time with others; these stay in the order of the file" in capsys.readouterr().out


def test_a_longer_file_continues_the_test(files, command):
    lines = (files / "worse.csv").read_text().splitlines()
    (files / "first.csv").write_text("\n".join(lines[:1001]) + "\n")
    command("monitor", files / "policy.json", files / "first.csv", "--json", files / "first.json", code=3)
    command("monitor", files / "policy.json", files / "worse.csv", "--json", files / "all.json", code=3)
    first, whole = (json.loads((files / name).read_text()) for name in ("first.json", "all.json"))
    assert first["tests"][0]["alarm"] == whole["tests"][0]["alarm"]


def test_drift_needs_no_labels(files, command, capsys):
    logits, _ = made(400, 5)
    with (files / "bare.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[f"logit_{k}" for k in range(4)], *(logits / 3).tolist()])
    command("monitor", files / "policy.json", files / "bare.csv", "--unlabelled", "--json", files / "bare.json")
    record, printed = json.loads((files / "bare.json").read_text()), capsys.readouterr().out
    assert record["drift"]["alarm"]["row"] < 100 and record["drift"]["below"] > 0.9
    assert record["holds"] is None and record["tests"] == [] and record["wrong"] is None
    assert "No guarantee was tested." in printed and "no longer distributed like those of the 3,000" in printed
    assert "Labels are needed" in printed
    command("monitor", files / "policy.json", files / "bare.csv", code=2)
    assert "expected label" in capsys.readouterr().err


@pytest.mark.parametrize(("cells", "message"), [
    (["2026-01-01", ""], "expected a time in column 'when' of every row, but it is missing in 1 row: 1;"
     " fill them in, or leave out --time if rows are in the order of time"),
    (["2026-01-01", "yesterday"], "but got 'yesterday' in row 1; rewrite the column, or leave out --time"),
    (["2026-01-01T10:00", "2026-01-01T10:00Z"], "expected a time zone in every row of column 'when' or in none"),
])  # fmt: skip
def test_bad_times_are_named(files, command, capsys, cells, message):
    logits, label = made(2, 0)
    write(files / "times.csv", logits, label, when=cells)
    command("monitor", files / "policy.json", files / "times.csv", "--time", "when", code=2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("values", "order", "tied"), [
    ([3, 1, 2], [1, 2, 0], 0),
    (["10", "9.5", "-1"], [2, 1, 0], 0),
    ([1731790000.123457, 1731790000.123456], [1, 0], 0),
    ([1731790000123456790, 1731790000123456789], [1, 0], 0),
    (["1731790000123456790", "1731790000123456789"], [1, 0], 0),
    (["2026-03-01T00:30+02:00", "2026-02-28T22:00Z", "2026-02-28T23:00Z"], [1, 0, 2], 0),
    (["20260302", "20260301", "20260302"], [1, 0, 2], 2),
    (["2026-03-02", "2026-03-01", "2026-03-02"], [1, 0, 2], 2),
])  # fmt: skip
def test_times_are_numbers_or_dates(values, order, tied):
    column = np.array(values, dtype=object if isinstance(values[0], str) else None)
    result = chronology(column)
    assert result.order.tolist() == order and result.num_tied == tied


def test_bad_arguments(files, command, capsys):
    for arguments, message in (
        (["--alpha", "1"], "expected --alpha in (0, 1), but got 1"),
        (["--time", "nowhere"], "'nowhere'"),
        (["--json", files / "policy.json"], "is an input of this command"),
        (["--page", "page.html"], "but got '--page'; did you mean --report?"),
    ):
        command("monitor", files / "policy.json", files / "same.csv", *arguments, code=2)
        assert message in capsys.readouterr().err


def labelled(size, seed, noise=1.0, **extra):
    logits, label = made(size, seed, noise)
    return Predictions(logits=logits, label=label, extra=extra)


def test_each_group_with_a_threshold_is_tested():
    site = np.array(["a", "b", "c"], dtype=object)[np.arange(1500) % 3]
    noise = np.where((site == "b") & (np.arange(1500) > 700), 3.0, 1.0)
    predictions = labelled(1500, 3, noise, site=site)
    part = ThresholdPart(
        None, None, "promised", per="group", column="site",
        thresholds={"a": 0.8, "b": 0.8, "c": None, "d": 0.9}, settings={"risk": 0.1},
    )  # fmt: skip
    followed = follow(Policy.of(predictions).with_part(part), predictions, np.arange(1500))
    watches = {watch.group: watch for watch in followed.monitored.watches}
    assert [*watches] == ["a", "b", "d"] and {watch.test.line for watch in watches.values()} == {60}
    assert watches["a"].test.holds and watches["d"].test.num_answers == 0 and not watches["b"].test.holds
    assert (site[watches["b"].rows] == "b").all() and watches["b"].alarm_row > 700
    assert followed.monitored.drift is None


def test_each_class_with_a_threshold_is_tested():
    predictions = labelled(600, 3)
    part = ThresholdPart(
        None, None, "promised", per="class", thresholds={"0": 0.5, "1": 0.6, "2": None, "3": 0.5},
        settings={"risk": 0.2},
    )  # fmt: skip
    followed = follow(Policy.of(predictions).with_part(part), predictions, np.arange(600))
    limits = {watch.group: watch.test.risk for watch in followed.monitored.watches}
    assert limits == {"0": 0.2, "1": 0.2, "3": 0.2}
    predicted = predictions.logits.argmax(axis=1)
    assert all((predicted[watch.rows] == int(watch.group)).all() for watch in followed.monitored.watches)


def test_what_promises_nothing_is_said():
    predictions = labelled(300, 3)
    bare = Policy.of(predictions)
    by_coverage = bare.with_part(ThresholdPart(0.5, None, settings={"risk": None}))
    followed = follow(by_coverage, predictions, np.arange(300))
    assert followed.monitored.watches == () and followed.monitored.holds is None
    assert followed.remarks == ("The threshold guarantees no error rate, so there is none to test.",)
    assert "no guarantee to test" in follow(bare, predictions, np.arange(300)).remarks[0]


@pytest.mark.parametrize("per", ["all", "class", "group"])
def test_misses_of_sets_are_tested_against_what_calibration_permits(per):
    site = np.array(["a", "b"], dtype=object)[np.arange(4000) % 2]
    noise = np.where((np.arange(4000) > 2500) & (site == "b"), 4.0, 1.0)
    calibration, predictions = labelled(2000, 0), labelled(4000, 1, noise, site=site)
    sets = conformal_sets(
        logits=calibration.logits, label=calibration.label, level=0.9, per_class=per == "class",
        group=site[:2000] if per == "group" else None,
    )  # fmt: skip
    part = SetsPart.of(sets, column="site" if per == "group" else None)
    followed = follow(Policy.of(predictions).with_part(part), predictions, np.arange(4000))
    watches = followed.monitored.watches
    groups = {"all": [None], "class": ["0", "1", "2", "3"], "group": ["a", "b"]}[per]
    assert [watch.group for watch in watches] == groups
    members = sets.sets(logits=predictions.logits, group=site if per == "group" else None)
    missed = ~members[np.arange(4000), predictions.label]
    for watch, count in zip(watches, sets.counts.values(), strict=True):
        assert watch.test.risk == miscoverage_bound(count, 0.9, 0.05 / 2 / len(watches))
        assert watch.test.line == 2 * len(watches) / 0.05
        assert watch.test.wrong.tolist() == missed[watch.rows].tolist()
    assert [watch.test.holds for watch in watches] == ([True, False] if per == "group" else [False] * len(watches))
    assert all(watch.test.holds or watch.alarm_row > 2500 for watch in watches)
