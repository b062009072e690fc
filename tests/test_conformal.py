import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confrank.decisions import ConformalSets, conformal_sets
from confrank.decisions.nonconformity import (
    SET_METHODS,
    conformal_quantile,
    content_uniforms,
    nonconformity,
    row_uniforms,
)


def drawn(seed, size, num_classes=5, digits=None):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, num_classes, size)
    logits = rng.normal(0, 1.5, (size, num_classes)) + 2 * (label[:, None] == np.arange(num_classes))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return table if digits is None else table.round(digits), label


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_sets_are_those_of_mapie(method):
    """MAPIE's APS subtracts u p from the sum that includes p, so that its u is our 1 - u; it draws one u per row."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        """Its features are the probabilities."""

        def __init__(self, num_classes):
            self.num_classes, self.classes_ = num_classes, np.arange(num_classes)

        def fit(self, features, label):
            return self

        def predict_proba(self, features):
            return features

    for seed in range(20):
        num_classes, level = 3 + seed % 8, (0.5, 0.8, 0.9, 0.95)[seed % 4]
        table, label = drawn(seed, 130 + seed, num_classes)
        old, new = slice(0, 80), slice(80, None)
        peer = SplitConformalClassifier(
            Given(num_classes), confidence_level=level, conformity_score=method, random_state=seed
        ).conformalize(table[old], label[old])
        _, theirs = peer.predict_set(table[new], {"include_last_label": "randomized"})
        u, new_u = (1 - np.random.RandomState(seed).uniform(size=len(table[rows])) for rows in (old, new))
        rule = conformal_sets(probabilities=table[old], label=label[old], level=level, method=method, uniform=u)
        scores = nonconformity(table[old], u, method)[np.arange(80), label[old]]
        assert scores == pytest.approx(peer.conformity_scores[:, 0])
        assert np.array_equal(rule.sets(probabilities=table[new], uniform=new_u), theirs[:, :, 0])


def slow_score(row, number, u, method, penalty, free_rank):
    above = sorted((p for p in row if p > row[number]), reverse=True)
    if method == "lac":
        return 1 - row[number]
    score = sum(above) + u * row[number]
    return score + penalty * max(0, len(above) + 1 - free_rank) if method == "raps" else score


@pytest.mark.parametrize("method", SET_METHODS)
@pytest.mark.parametrize("per", ["all", "class", "group"])
def test_sets_are_those_of_a_plain_loop(method, per):
    for seed in range(5):
        table, label = drawn(seed, 90, digits=2 if seed % 2 else None)
        table = table / table.sum(axis=1, keepdims=True)
        key, group = np.array([f"{row}.png" for row in range(90)]), np.arange(90) % 3
        cell = {"all": ["all"] * 90, "class": map(str, label.tolist()), "group": map(str, group.tolist())}[per]
        cells = [*cell]
        options = {"penalty": 0.07, "free_rank": 2}
        rule = conformal_sets(
            probabilities=table[:60], label=label[:60], level=0.8, method=method, per_class=per == "class",
            group=group[:60] if per == "group" else None, key=key[:60], seed=seed, **options,
        )  # fmt: skip
        sets = rule.sets(probabilities=table[60:], group=group[60:] if per == "group" else None, key=key[60:])
        u = dict(zip(key.tolist(), row_uniforms(key, rule.seed).tolist(), strict=True))
        limits = {}
        for name in {*cells[:60]}:
            scores = sorted(
                slow_score(table[row].tolist(), label[row], u[key[row]], method, **options)
                for row in range(60) if cells[row] == name
            )  # fmt: skip
            rank = math.ceil((len(scores) + 1) * 0.8 - 1e-9)
            limits[name] = scores[rank - 1] if rank <= len(scores) else math.inf
        for row, members in enumerate(sets.tolist(), start=60):
            for number, inside in enumerate(members):
                score = slow_score(table[row].tolist(), number, u[key[row]], method, **options)
                limit = limits[str(number) if per == "class" else cells[row]]
                assert inside == (score <= limit + 1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), method=st.sampled_from(SET_METHODS), per_class=st.booleans())
def test_neither_order_nor_other_rows_matter(seed, method, per_class):
    table, label = drawn(seed, 60)
    key = np.array([f"row {number}" for number in range(60)])
    order = np.random.default_rng(seed).permutation(60)
    options = {"method": method, "per_class": per_class, "level": 0.7}
    rule = conformal_sets(probabilities=table, label=label, key=key, **options)
    again = conformal_sets(probabilities=table[order], label=label[order], key=key[order], **options)
    assert rule == again
    every = rule.sets(probabilities=table, key=key)
    assert np.array_equal(every[order], rule.sets(probabilities=table[order], key=key[order]))
    assert np.array_equal(every[7:8], rule.sets(probabilities=table[7:8], key=key[7:8]))
    classes = np.random.default_rng(seed).permutation(5)
    renamed = conformal_sets(probabilities=table[:, classes], label=np.argsort(classes)[label], key=key, **options)
    assert np.array_equal(every[:, classes], renamed.sets(probabilities=table[:, classes], key=key))


def test_rows_without_keys_are_covered_one_by_one_and_in_one_batch():
    """A u from the position would be the same in every call of one row, and coverage 0.97 or 0.8."""
    table, label = drawn(8, 1500)
    for seed, method in ((0, "aps"), (3, "raps"), (3, "aps")):
        rule = conformal_sets(probabilities=table[:1000], label=label[:1000], level=0.8, method=method, seed=seed)
        batch = rule.sets(probabilities=table[1000:])
        single = np.concatenate([rule.sets(probabilities=table[[row]]) for row in range(1000, 1500)])
        assert np.array_equal(batch, single)
        covered = single[np.arange(500), label[1000:]].mean()
        assert abs(covered - 0.8) < 3 * math.sqrt(0.16 * (1 / 1000 + 1 / 500))
    order = np.random.default_rng(0).permutation(1000)
    again = conformal_sets(probabilities=table[order], label=label[order], level=0.8, method=method, seed=3)
    assert again == rule
    other = conformal_sets(probabilities=table[:1000], label=label[:1000], level=0.8, method=method, seed=4)
    assert other.quantiles != rule.quantiles


@pytest.mark.parametrize("num_classes", [2, 5])
def test_row_numbers_as_keys_keep_the_promise_of_small_files(num_classes):
    """With one seed for all files, the keys 0 to 19 have the same u in each of them, and coverage is too low."""
    covered = []
    for seed in range(400):
        table, label = drawn(seed, 120, num_classes)
        rule = conformal_sets(probabilities=table[:20], label=label[:20], level=0.9, method="aps", key=np.arange(20))
        sets = rule.sets(probabilities=table[20:], key=np.arange(100))
        covered.append(sets[np.arange(100), label[20:]].mean())
    assert np.mean(covered) == pytest.approx(19 / 21, abs=4 * np.std(covered) / 20)


def test_u_is_uniform_and_depends_on_the_key_or_on_every_class_and_on_the_seed():
    (table, _), keys = drawn(5, 20_000), np.arange(20_000)
    u, of_key = content_uniforms(table, 3), row_uniforms(keys, 3)
    for one in (u, of_key):
        assert 0 <= one.min() <= one.max() < 1
        assert np.histogram(one, 10, (0, 1))[0] == pytest.approx(2000, abs=6 * math.sqrt(1800))
    assert abs(np.corrcoef(of_key[:-1], of_key[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(of_key, row_uniforms(keys, 4))[0, 1]) < 0.03
    assert row_uniforms(np.array([b"12"]), 3) == of_key[12] == row_uniforms(np.array(["12"], dtype=object), 3)
    assert np.abs(np.corrcoef(np.column_stack([u, content_uniforms(table, 4), table]).T)[0, 1:]).max() < 0.03
    for number in range(5):
        assert (content_uniforms(table + 0.25 * (np.arange(5) == number), 3) != u).all()
    assert content_uniforms(np.array([[0.0, 1.0]]), 0) == content_uniforms(np.array([[-0.0, 1.0]]), 0)


def test_logits_are_probabilities_after_a_softmax():
    table, label = drawn(3, 200)
    for method in SET_METHODS:
        given, logits = ({"probabilities": table}, {"logits": (np.log(table) + 7).astype(np.float32)})
        # Logits in single precision give other digits, from which u would differ.
        both = [{**one, "uniform": np.linspace(0, 1, 200)} for one in (given, logits)]
        sets = [conformal_sets(**one, label=label, method=method).sets(**one) for one in both]
        assert np.array_equal(*sets)
    far = np.array([[1e308, -1e308], [0.0, 0.0]])
    assert conformal_sets(logits=far, label=[0, 0], level=0.4).quantiles == {"all": 0.5}


def test_the_rank_of_the_quantile_is_exact():
    for level, size in ((0.9, 9), (0.7, 9), (0.55, 19), (0.95, 19), (0.8, 4), (0.999, 999)):
        rank = round((size + 1) * level)
        assert conformal_quantile(np.arange(size, dtype=float), level) == rank - 1
        assert conformal_quantile(np.arange(size - 1, dtype=float), level) in (rank - 1, math.inf)


def test_too_few_rows_give_all_classes_and_say_so():
    table, label = drawn(0, 30)
    rule = conformal_sets(probabilities=table[:8], label=label[:8])
    assert rule.shortage() == "8 rows are too few: every set holds all classes; 9 rows are needed"
    assert rule.sets(probabilities=table).all()
    assert conformal_sets(probabilities=table[:9], label=label[:9]).shortage() is None
    single = conformal_sets(probabilities=table[:1], label=label[:1])
    assert single.shortage().startswith("1 row is too few") and "the 1 calibration row are" in single.promise()
    site = np.array(["a"] * 20 + ["b"] * 10)
    rule = conformal_sets(probabilities=table, label=label, group=site, level=0.92)
    assert (
        rule.shortage("site")
        == "too few rows of site b (10 rows): its sets hold all classes; each site needs 12 rows"
    )
    sets = rule.sets(probabilities=table[:3], group=["a", "b", "unknown"])
    assert sets[1:].all()
    assert not sets[0].all()
    few = conformal_sets(probabilities=table, label=np.minimum(label, 1), per_class=True, level=0.6)
    assert few.counts["4"] == 0
    assert few.shortage(class_names=[*"vwxyz"]).startswith(
        "too few rows of class x (0 rows), y (0 rows), z (0 rows): it"
    )
    assert few.sets(probabilities=table)[:, 2:].all()


def test_a_rule_survives_json_to_the_bit():
    table, label = drawn(1, 40)
    for options in (
        {"method": "raps", "penalty": 0.2, "free_rank": 1, "seed": 5},
        {"per_class": True, "level": 0.95},
    ):
        rule = conformal_sets(probabilities=table, label=label, **options)
        again = ConformalSets.from_dict(json.loads(json.dumps(rule.as_dict())))
        assert again == rule
        assert np.array_equal(again.sets(probabilities=table), rule.sets(probabilities=table))


def test_the_promise_in_words():
    table, label = drawn(0, 50)
    assert conformal_sets(probabilities=table, label=label).promise() == (
        "the set of a new row includes its true class with probability at least 0.9, on average over calibration"
        " files and new rows, if the row and the 50 calibration rows are exchangeable"
    )
    by_site = conformal_sets(probabilities=table, label=label, group=label % 2)
    assert by_site.promise("site").endswith("are exchangeable within each site")
    assert "at least 0.9 within each site, on average over" in by_site.promise("site")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sample_weight": [1.0] * 10}, "predictions without weights"),
        ({"level": 1.0}, r"expected level in \(0, 1\), but got 1"),
        ({"method": "top-k"}, "a method among lac, aps, raps, but got 'top-k'"),
        ({"penalty": -1.0}, "a penalty of at least 0, but got -1"),
        ({"free_rank": -1}, "a free rank of at least 0, but got -1"),
        ({"per_class": True, "group": [0] * 10}, "per class or per group, but got both"),
        ({"logits": [[0.0, 1.0]]}, "logits or probabilities, but got both"),
        ({"probabilities": None}, "logits or probabilities, but got neither"),
        ({"group": [0, 1]}, "2 in group, 10 in predictions"),
        ({"group": 1}, "a value of group for each row, but got a single one"),
        ({"method": "aps", "key": [0, 1]}, "2 in key, 10 in predictions"),
        ({"method": "aps", "uniform": [0.5]}, "1 in uniform, 10 in predictions"),
        ({"method": "raps", "uniform": [2.0] * 10}, r"uniform within \[0, 1\], but got values in \[2.0, 2.0\]"),
        ({"probabilities": np.empty((0, 5)), "label": []}, "labelled rows to calibrate sets on, but got none"),
    ],
)
def test_mistakes(changed, message):
    table, label = drawn(0, 10)
    with pytest.raises(ValueError, match=message):
        conformal_sets(**({"probabilities": table, "label": label} | changed))


def test_new_rows_must_fit():
    table, label = drawn(0, 20)
    rule = conformal_sets(probabilities=table, label=label, group=label % 2)
    with pytest.raises(ValueError, match="expected 5 classes, as in the calibration, but got 2"):
        rule.sets(probabilities=[[0.5, 0.5]], group=[1])
    with pytest.raises(ValueError, match="expected the group of each row, but got none"):
        rule.sets(probabilities=table)
