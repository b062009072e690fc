"""Strategies against naive loops and brute force."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from confrank.active import STRATEGIES, covering_radius, k_center_greedy, select
from confrank.active.selection import lowest


def naive_greedy(features, count, centres, seed):
    """All distances, in double loops of numpy rows; equal ones in the order of the seed's permutation."""
    priority = np.random.default_rng(seed).permutation(len(features))
    known, chosen = [*centres], []
    for _ in range(count):
        best, best_key = None, None
        for row, point in enumerate(features):
            if row in chosen:
                continue
            gap = min((float(np.sqrt(((point - other) ** 2).sum())) for other in known), default=np.inf)
            key = (gap, -priority[row])
            if best_key is None or key > best_key:
                best, best_key = row, key
        chosen.append(best)
        known.append(features[best])
    return chosen


def naive_radius(features, centres):
    return max(min(np.sqrt(((point - other) ** 2).sum()) for other in centres) for point in features)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("num_centres", [0, 1, 70])
def test_k_center_greedy_equals_the_naive_one(kind, num_centres):
    for seed in range(5):
        rng = np.random.default_rng(100 + seed)
        features, centres = rng.normal(size=(60, 7)).astype(kind), rng.normal(size=(num_centres, 7)).astype(kind)
        chosen = k_center_greedy(features, 12, centres=centres if num_centres else None, seed=seed)
        assert chosen.tolist() == naive_greedy(features, 12, centres, seed)
        known = np.concatenate([centres, features[chosen]])
        assert covering_radius(features, known) == pytest.approx(naive_radius(features, known), rel=1e-6)


def test_k_center_greedy_on_a_grid_of_ties_equals_the_naive_one():
    grid = np.array([(x, y) for x in range(5) for y in range(5)] * 2, dtype=np.float64)
    orders = set()
    for seed in range(6):
        chosen = k_center_greedy(grid, 30, centres=grid[:1], seed=seed).tolist()
        assert chosen == naive_greedy(grid, 30, grid[:1], seed)
        assert len(set(chosen)) == 30
        orders.add(tuple(chosen))
    assert len(orders) == 6


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 2))
def test_covering_radius_is_within_twice_the_optimum(seed, count, num_centres):
    rng = np.random.default_rng(seed)
    features, centres = rng.normal(size=(9, 2)), rng.normal(size=(num_centres, 2))
    chosen = k_center_greedy(features, count, centres=centres if num_centres else None, seed=seed)
    ours = naive_radius(features, np.concatenate([centres, features[chosen]]))
    best = min(
        naive_radius(features, np.concatenate([centres, features[list(rows)]]))
        for rows in combinations(range(9), count)
    )
    assert ours <= 2 * best + 1e-12


def naive_confidence(name, row):
    if name == "least-confidence":
        return max(row)
    if name == "margin":
        first, second = sorted(row)[:-3:-1]
        return first - second
    return sum(p * np.log(p) for p in row if p > 0)


@pytest.mark.parametrize("name", ["entropy", "mc-entropy", "margin", "least-confidence"])
def test_select_asks_the_least_sure_first(name):
    probabilities = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 80)
    probabilities[3] = [1, 0, 0, 0, 0]
    by_hand = sorted(range(80), key=lambda row: naive_confidence(name, probabilities[row]))
    assert select(name, scores=probabilities, count=20, seed=1).tolist() == by_hand[:20]
    assert select(name, scores=probabilities, count=80).tolist()[-1] == 3


@pytest.mark.parametrize("name", ["entropy", "margin", "least-confidence"])
def test_scores_of_any_kind_are_taken(name):
    rounded = [[0.33, 0.33, 0.33], [0.9, 0.05, 0.05], [0.5, 0.49, 0.01], [0.05, 0.05, 0.9]]
    exact = np.array(rounded) / np.sum(rounded, axis=1, keepdims=True)
    wanted = select(name, scores=exact, count=2).tolist()
    assert sorted(wanted) == [0, 2]
    table = torch.tensor(exact)
    for scores in (rounded, exact[::-1].copy()[::-1], table.bfloat16(), table.half(), table.requires_grad_()):
        assert select(name, scores=scores, count=2).tolist() == wanted
    for scores in (torch.tensor([0.3, 0.1, 0.2]).bfloat16(), torch.tensor([3.0, 1.0, 2.0], requires_grad=True)):
        assert select(name, scores=scores, count=2).tolist() == [1, 2]


def test_no_labelled_features_are_as_none():
    features = np.random.default_rng(0).normal(size=(9, 2))
    alone = select("core-set", features=features, count=3).tolist()
    for none in (torch.zeros(0, 2), np.zeros((0, 2)), []):
        assert select("core-set", features=features, labelled_features=none, count=3).tolist() == alone


def test_ties_follow_the_seed_and_not_the_rows():
    scores = np.array([0.5] * 100 + [0.1])
    picks = [select("least-confidence", scores=scores, count=10, seed=seed).tolist() for seed in range(200)]
    assert all(pick[0] == 100 for pick in picks)
    assert picks[7] == select("least-confidence", scores=scores, count=10, seed=7).tolist()
    counts = np.bincount(np.concatenate([pick[1:] for pick in picks]), minlength=101)[:100]
    # 200 x 9 of 100 rows: 18 each, with a standard deviation of about 4.
    assert counts.min() > 3 and counts.max() < 40
    first, last = counts[:50].sum(), counts[50:].sum()
    assert abs(int(first) - int(last)) < 5 * np.sqrt(1800)


def test_random_is_a_fair_draw_without_repeats():
    picks = [select("random", features=np.zeros((40, 3)), count=10, seed=seed) for seed in range(400)]
    assert all(len(set(pick.tolist())) == 10 for pick in picks)
    counts = np.bincount(np.concatenate(picks), minlength=40)
    assert abs(counts - 100).max() < 45  # five standard deviations


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(0, 99), st.data())
def test_lowest_takes_a_smallest_multiset(values, seed, data):
    count = data.draw(st.integers(1, len(values)))
    rows = lowest(np.array(values, dtype=float), count, seed)
    assert [values[row] for row in rows] == sorted(values)[:count]
    assert len({*rows.tolist()}) == count


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("enthropy", {"scores": np.ones(3)}, "expected a strategy among random, entropy.*but got 'enthropy'"),
        ("entropy", {"features": np.ones((3, 2))}, r"expected scores .* for entropy, but got none"),
        ("core-set", {"scores": np.ones(3)}, "expected features .* for core-set, but got none"),
        ("random", {}, "expected scores or features"),
        ("margin", {"scores": np.array([0.1, np.nan, 0.2])}, r"finite values in scores .* but got nan in row 1"),
        ("margin", {"scores": np.array([[0.5, 0.5], [0.5, np.nan]])}, "finite values in probabilities.* in row 1"),
        ("margin", {"scores": np.array([[0.5, 0.5], [3.0, -2.0]])}, "got .* in row 1; .* before a softmax"),
        ("margin", {"scores": np.array([[0.5, 0.5], [0.5, 0.3]])}, "a sum of 0.8 in row 1; .* before a softmax"),
        ("margin", {"scores": np.ones((2, 2, 2))}, r"scores \(confidence \[n\], .* but got shape \(2, 2, 2\)"),
        ("entropy", {"scores": np.zeros((0, 2)) + 0.5}, r"within 1\.\.0 samples, but got 2"),
        ("core-set", {"features": np.array([[0.0], [np.inf], [1.0]])}, r"in rows \[1\]"),
        ("core-set", {"features": np.ones((3, 2)), "labelled_features": np.ones((1, 3))}, "centres of 2 dimensions"),
        ("core-set", {"features": np.ones((1, 2))}, r"within 1\.\.1 samples, but got 2"),
    ],
)
def test_select_explains_what_it_needs(name, inputs, message):
    with pytest.raises(ValueError, match=message):
        select(name, count=2, **inputs)


def test_every_strategy_trains_what_the_paper_says():
    methods = {name: strategy.method for name, strategy in STRATEGIES.items()}
    assert methods == {
        "random": "baseline",
        "entropy": "baseline",
        "margin": "baseline",
        "core-set": "baseline",
        "mc-entropy": "mcdropout",
        "least-confidence": "crl-softmax",
    }


def test_features_that_torch_does_not_take_are_copied():
    features = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    locked = features.copy()
    locked.flags.writeable = False
    expected = k_center_greedy(features, 5).tolist()
    for other in (features[::-1].copy()[::-1], features.astype(">f4"), locked):
        assert k_center_greedy(other, 5).tolist() == expected


def test_distances_far_from_the_origin_keep_their_digits():
    rng = np.random.default_rng(5)
    features = (4096 + rng.random((60, 3))).astype(np.float32)  # squares of these have no digit left for a distance
    exact = features.astype(np.float64)
    assert covering_radius(features[:30], features[30:]) == pytest.approx(
        naive_radius(exact[:30], exact[30:]), rel=1e-3
    )
    assert k_center_greedy(features[:30], 9, centres=features[30:]).tolist() == naive_greedy(
        exact[:30], 9, exact[30:], 0
    )
