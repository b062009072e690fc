"""The simulations of benchmarks/guarantees.py and benchmarks/policy.py with fewer repetitions."""

import numpy as np
import pytest
from programs import program


@pytest.fixture(scope="module")
def simulations():
    return program("benchmarks/guarantees.py")


@pytest.fixture(scope="module")
def policies():
    return program("benchmarks/policy.py")


def test_sets_cover_within_each_class(simulations):
    rows = [*simulations.coverage("aps", "class", 120, 150, seed=1)]
    assert [row["cell"] for row in rows] == ["0", "1", "2", "3"]
    assert all(row["holds"] and 0.86 < row["mean"] < 0.96 for row in rows)


def test_selection_controls_the_false_discovery_rate(simulations):
    row = simulations.discoveries(200, 100, 0.1, 300, seed=1)
    assert row["holds"]
    assert row["selected"] > 0.1
    assert row["mean"] > 0.05  # not because hardly anything is selected


def test_all_groups_together_keep_their_risk(simulations):
    assert simulations.group_risk("ordered", 0.1, 40, seed=1)["accepted"] > 0.2
    assert simulations.group_risk("flat", 0.1, 60, seed=1)["holds"]


def test_the_true_risk_is_the_mean_error_rate(simulations):
    confidence = np.linspace(0, 1, 400_001)
    for groups in simulations.GROUPS.values():
        for parts in groups:
            for threshold in (0.0, 0.3, 0.7, 0.9):
                accepted = confidence[confidence >= threshold]
                mean = simulations.error_rate(accepted, parts).mean()
                assert simulations.true_risk(threshold, parts) == pytest.approx(mean, abs=1e-5)


def test_a_fitted_score_breaks_a_promise_on_the_same_rows_but_not_in_a_policy(policies):
    for seed in range(3):
        predictions = policies.draw(np.random.default_rng(seed))
        assert policies.breaks(predictions, 0.15, 0.05, isotonic=False, every=True)
        assert not policies.breaks(predictions, 0.15, 0.05, isotonic=False, every=False)


def test_a_broken_promise_is_noticed(simulations, policies):
    assert not policies.judged("", np.array([1.0, 0.0] * 20), 0.05)["holds"]
    assert policies.judged("", np.array([1.0, *[0.0] * 19]), 0.05)["holds"]
    assert not simulations.judged("", np.array([0.8, 0.81, 0.79, 0.8]), 0.9, 0.93)["holds"]
    assert not simulations.judged("", np.array([0.95, 0.96, 0.95, 0.96]), 0.9, 0.93)["holds"]
    assert simulations.judged("", np.array([0.9, 0.92, 0.88, 0.9]), 0.9, 0.93)["holds"]


@pytest.mark.slow
def test_the_promise_of_a_policy_holds(policies):
    rows = policies.measure(200, seed=1)
    assert [row["mean"] for row in rows if row["case"] == "same rows"] == [1.0, 1.0, 1.0]
    judged = [row for row in rows if row["holds"] is not None]
    assert len(judged) == 3 and all(row["holds"] for row in judged)


@pytest.mark.slow
def test_every_promise_holds(simulations):
    rows = [*simulations.simulate(400, seed=1)]
    assert len(rows) == 32
    assert [row for row in rows if not row["holds"]] == []
