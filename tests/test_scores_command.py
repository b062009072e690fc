"""`confrank scores`: from a file to a table, a choice in words, and a JSON file."""

import json
import re

import numpy as np
import pytest

from confrank.decisions.policy import Policy, ScorePart
from confrank.decisions.rows import design_rows
from confrank.scores import choose, fit, names, score


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Predictions whose correctness depends on the margin, as logits and as probabilities in a CSV file."""
    folder, rng = tmp_path_factory.mktemp("scores"), np.random.default_rng(0)
    logits = rng.normal(0, 2, (3000, 6))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    largest = np.sort(table, axis=1)
    right = rng.random(3000) < 1 - (1 - largest[:, -1] + largest[:, -2]) ** 2
    label = np.where(right, logits.argmax(axis=1), (logits.argmax(axis=1) + 1) % 6)
    np.savez(folder / "validation.npz", logits=logits, label=label)
    header = ",".join(["label", *(f"probability_{k}" for k in range(6))])
    rows = np.column_stack([label, table])[:200]
    np.savetxt(folder / "some.csv", rows, delimiter=",", header=header, comments="", fmt="%.10g")
    np.savez(folder / "bare.npz", confidence=largest[:, -1], correct=right)
    return folder


def test_the_command_compares_scores_and_chooses_one(files, command, capsys):
    out = files / "scores.json"
    command("scores", files / "validation.npz", "--json", out, "--resamples", 100)
    text, result = capsys.readouterr().out, json.loads(out.read_text())
    arrays = dict(np.load(files / "validation.npz"))
    choice = choose(**arrays, resamples=100)
    assert (result["name"], result["parameters"]) == (choice.name, choice.parameters) == ("margin", {})
    assert result["difference"]["value"] == choice.judged.difference.value
    assert result["num_chosen_on"] == result["num_judged_on"] == 1500
    assert set(result["scores"]) == set(names)
    for name, item in result["scores"].items():
        assert item["metrics"] == choice.judged.metrics[name]
        low, high = item["intervals"]["auroc"]
        assert low < item["metrics"]["auroc"] < high
        assert name in text
    assert "use margin: it ranks better than max-probability, beyond its paired interval" in text
    assert "chosen and fitted on 1,500 rows, judged on 1,500 rows that had no part in it" in text
    assert f"{result['scores']['margin']['metrics']['aurc'] * 1000:.3f}" in text
    assert "those that need it from 100 resamples" in text


def test_probabilities_in_a_csv_file_leave_out_the_scores_that_need_logits(files, command, capsys):
    command("scores", files / "some.csv", "--resamples", 0, "--seed", 1)
    text = capsys.readouterr().out
    best = r"^use max-probability: [\w-]+ was the best candidate on the 100 rows used to choose, but"
    assert re.search(best, text, re.M)
    assert "without energy: needs logits: the energy of ln p is constant" in text
    assert "no intervals per score; --resamples 200 computes them" in text


def test_a_bare_confidence_has_no_scores(files, command, capsys):
    command("scores", files / "bare.npz", code=2)
    output = capsys.readouterr()
    message = "expected logits or probabilities of all classes to compute scores from, but"
    assert message in output.err and output.err.count("\n") == 1 and not output.out


def test_a_policy_ranks_by_the_chosen_score_on_rows_that_did_not_choose_it(files, command, capsys, tmp_path):
    policy, out, answers = tmp_path / "policy.json", tmp_path / "threshold.json", tmp_path / "answers.csv"
    command("scores", files / "validation.npz", "--policy", policy, "--resamples", 0)
    assert f"created {policy} with a score" in capsys.readouterr().out
    part = json.loads(policy.read_text())["score"]
    arrays = dict(np.load(files / "validation.npz"))
    design = np.flatnonzero(design_rows(3000))
    alone = choose(logits=arrays["logits"][design], label=arrays["label"][design])
    assert (part["name"], part["settings"]["num_judged_on"]) == (alone.name, 750)
    assert (part["rows"]["half"], part["rows"]["used"]) == ("design", 1500)
    command("threshold", files / "validation.npz", "--risk", 0.5, "--policy", policy, "--json", out)
    command("apply", policy, files / "validation.npz", "--out", answers)
    rows = [line.split(",") for line in answers.read_text().splitlines()]
    confidence = np.array([float(row[rows[0].index("confidence")]) for row in rows[1:]])
    assert np.array_equal(confidence, score(part["name"], logits=arrays["logits"]))
    accepted = np.array([row[rows[0].index("accepted")] == "true" for row in rows[1:]])
    assert accepted[~design_rows(3000)].sum() == json.loads(out.read_text())["accepted"]


def test_a_score_chosen_on_all_rows_leaves_none_for_a_guarantee(files, command, capsys, tmp_path):
    policy, file = tmp_path / "policy.json", files / "some.csv"
    command("scores", file, "--policy", policy, "--rows", "all", "--resamples", 0)
    assert json.loads(policy.read_text())["score"]["rows"]["used"] == 200
    command("threshold", file, "--risk", 0.5, "--policy", policy, code=2)
    assert "expected rows that no part of the policy saw, but a score used all rows" in capsys.readouterr().err
    command("scores", file, "--policy", policy, code=2)
    assert "expected a policy without a score, but this one has a score" in capsys.readouterr().err
    command("scores", file, "--rows", "all", code=2)
    assert "expected --policy with --rows, but got none" in capsys.readouterr().err


def test_a_fitted_score_is_bit_for_bit_the_same_after_reading_the_policy(tmp_path):
    rng = np.random.default_rng(6)
    logits, correct = rng.normal(0, 3, (500, 7)), rng.random(500) < 0.6
    for name in ("relu", "max-probability-temperature", "p-norm"):
        parameters = fit(name, logits=logits, correct=correct)
        policy = Policy.of({"logits": logits}).with_part(ScorePart(name, parameters))
        policy.save(tmp_path / "policy.json")
        read = Policy.load(tmp_path / "policy.json")
        some = rng.permutation(500)[:123]
        assert np.array_equal(
            read.apply({"logits": logits[some]}).confidence, score(name, logits=logits, **parameters)[some]
        )
    with pytest.raises(ValueError, match="expected 7 classes"):
        read.apply({"logits": logits[:, :6]})


def test_a_note_on_the_nll_comes_only_with_it(tmp_path, command, capsys):
    rows = ["a,0.9,0.1", "b,0.2,0.8", "b,1,0", "a,0.6,0.4"] * 10
    (tmp_path / "a.csv").write_text("\n".join(["label,probability_a,probability_b", *rows]))
    for asked in (["scores", "--resamples", 0], ["threshold", "--coverage", 0.5], ["evaluate", "--resamples", 0]):
        command(asked[0], tmp_path / "a.csv", *asked[1:])
        assert ("of the NLL" in capsys.readouterr().out) == (asked[0] == "evaluate")
