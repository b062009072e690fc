"""Choosing a score: on one half of the rows, judged on the other."""

import json

import numpy as np
import pytest

from confrank.errors import InputError
from confrank.metrics import aurc
from confrank.scores import choose, names, score
from confrank.scores.choice import chosen
from confrank.scores.table import table_of


def predictions(seed, size, chance):
    """Logits [n, 10] and labels; `chance` gives the probability of being right from the margin [n]."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (size, 10))
    right = rng.random(size) < chance(score("margin", logits=logits))
    prediction = logits.argmax(axis=1)
    return logits, np.where(right, prediction, (prediction + 1) % 10)


def by_margin(margin):
    return 1 - 0.95 * (1 - margin) ** 2


def test_the_score_is_judged_on_rows_that_did_not_choose_it():
    logits, label = predictions(0, 1500, by_margin)
    choice = choose(logits=logits, label=label, seed=4)
    assert sorted([*choice.rows, *choice.judged.rows]) == list(range(1500))
    assert len(choice.rows) == 750
    # The rows that judge have no influence on what is chosen and fitted, nor do the others on how it is judged.
    correct = logits.argmax(axis=1) == label
    for changed, same in ((choice.judged.rows, "fitted"), (choice.rows, "judged")):
        flipped = correct.copy()
        flipped[changed] = np.random.default_rng(1).permutation(flipped[changed])
        other = choose(logits=logits, correct=flipped, seed=4)
        if same == "fitted":
            assert (other.candidate, other.fitted) == (choice.candidate, choice.fitted)
        else:
            assert other.judged.metrics["margin"] == choice.judged.metrics["margin"]
    assert np.array_equal(choose(logits=logits, label=label, seed=4).rows, choice.rows)
    assert not np.array_equal(choose(logits=logits, label=label, seed=5).rows, choice.rows)


def test_the_figures_are_those_of_the_metrics_on_the_judged_rows():
    logits, label = predictions(1, 1200, by_margin)
    choice = choose(logits=logits, label=label, resamples=100)
    rows, correct = choice.judged.rows, logits.argmax(axis=1) == label
    assert set(choice.judged.metrics) == set(names)
    for name, metrics in choice.judged.metrics.items():
        values = score(name, logits=logits, **choice.fitted[name])[rows]
        assert metrics["aurc"] == pytest.approx(aurc(values, correct[rows]), abs=1e-15)
        interval = choice.judged.intervals[name]["aurc"]
        assert interval.low < metrics["aurc"] < interval.high
    gap = choice.judged.metrics[choice.candidate]["aurc"] - choice.judged.metrics["max-probability"]["aurc"]
    assert choice.judged.difference.value == pytest.approx(gap, abs=1e-12)
    assert json.loads(json.dumps(choice.parameters)) == choice.parameters


def test_some_rows_of_a_table_are_chosen_from_as_if_they_were_all():
    logits, label = predictions(2, 900, by_margin)
    some = np.flatnonzero(np.random.default_rng(0).random(900) < 0.5)
    correct = logits.argmax(axis=1) == label
    part = chosen(table_of(logits, None), correct, rows=some)
    alone = choose(logits=logits[some], label=label[some])
    assert np.array_equal(some[alone.rows], part.rows) and np.array_equal(some[alone.judged.rows], part.judged.rows)
    assert (part.name, part.candidate, part.judged.metrics) == (alone.name, alone.candidate, alone.judged.metrics)


def test_scores_that_are_not_defined_are_left_out_with_the_reason():
    probabilities = np.random.default_rng(3).dirichlet([1, 1], 300)
    choice = choose(probabilities=probabilities, label=np.zeros(300, dtype=int))
    assert set(choice.refused) == {"max-logit", "energy", "p-norm"}
    assert choice.name == "max-probability"
    for name in ("margin", "logit-margin", "negative-entropy", "sum-of-squares", "gen"):
        ranked_alike = pytest.approx(choice.judged.metrics["max-probability"], abs=1e-12)
        assert choice.judged.metrics[name] == ranked_alike, "with two classes"
    right = choose(probabilities=probabilities, label=probabilities.argmax(axis=1))
    assert "none of 75 is wrong" in right.refused["relu"]
    assert right.name == "max-probability" and right.judged.metrics["margin"] == {
        "aurc": 0.0,
        "auroc": None,
        "fpr95": None,
    }


def test_too_few_rows_and_ambiguous_arguments():
    with pytest.raises(InputError, match="expected at least 8 predictions to choose a score, but got 3"):
        choose(logits=np.eye(3), label=[0, 1, 2])
    with pytest.raises(ValueError, match="expected label or correct, but got both"):
        choose(logits=np.eye(3), label=[0, 1, 2], correct=[True] * 3)
    with pytest.raises(ValueError, match="expected the same number of rows"):
        choose(logits=np.eye(3), label=[0, 1])


@pytest.mark.slow
def test_the_maximum_probability_stays_if_correctness_does_not_depend_on_the_logits():
    data = [predictions(seed, 1000, lambda margin: 0.7 + 0 * margin) for seed in range(20)]
    choices = [choose(logits=logits, label=label, seed=seed) for seed, (logits, label) in enumerate(data)]
    assert sum(choice.name == "max-probability" for choice in choices) >= 18


@pytest.mark.slow
def test_the_margin_is_chosen_where_it_is_truly_better():
    data = [predictions(seed, 6000, by_margin) for seed in range(20)]
    choices = [choose(logits=logits, label=label, seed=seed) for seed, (logits, label) in enumerate(data)]
    assert sum(choice.name == "margin" for choice in choices) >= 18
