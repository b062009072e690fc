"""The simulation of benchmarks/policy.py with fewer repetitions."""

import numpy as np
import pytest
from programs import program


@pytest.fixture(scope="module")
def simulation():
    return program("benchmarks/policy.py")


def test_a_fitted_score_breaks_a_promise_on_the_same_rows_but_not_in_a_policy(simulation):
    for seed in range(3):
        predictions = simulation.draw(np.random.default_rng(seed))
        assert simulation.breaks(predictions, 0.15, 0.05, isotonic=False, every=True)
        assert not simulation.breaks(predictions, 0.15, 0.05, isotonic=False, every=False)


def test_a_broken_promise_is_noticed(simulation):
    assert not simulation.judged("", np.array([1.0, 0.0] * 20), 0.05)["holds"]
    assert simulation.judged("", np.array([1.0, *[0.0] * 19]), 0.05)["holds"]


@pytest.mark.slow
def test_the_promise_of_a_policy_holds(simulation):
    rows = simulation.measure(200, seed=1)
    assert [row["mean"] for row in rows if row["case"] == "same rows"] == [1.0, 1.0, 1.0]
    judged = [row for row in rows if row["holds"] is not None]
    assert len(judged) == 3 and all(row["holds"] for row in judged)
