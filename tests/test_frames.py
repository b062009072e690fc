"""Series and data frames of pandas and Arrow, and labels that are names, as a notebook has them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import cross_validate, train_test_split

from confrank import compare, evaluate
from confrank.decisions import (
    Policy,
    calibrate,
    conformal_sets,
    cost_threshold,
    group_thresholds,
    guaranteed_threshold,
    measured_at,
    monitor,
    random_split,
)
from confrank.decisions.policy import ThresholdPart
from confrank.metrics import aurc, brier, classwise_ece, nll
from confrank.predictions import as_predictions
from confrank.scores import choose


@pytest.fixture(scope="module")
def iris():
    """A classifier of noisy flowers, its test rows, and their labels: names, with a shuffled index."""
    data = load_iris(as_frame=True)
    flowers = pd.concat([data.data] * 3, ignore_index=True)
    flowers += np.random.default_rng(0).normal(0, 0.8, flowers.shape)
    names = pd.concat([data.target.map(dict(enumerate(data.target_names)))] * 3, ignore_index=True)
    train, test, train_names, test_names = train_test_split(flowers, names, random_state=0)
    model = LogisticRegression(max_iter=1000).fit(train, train_names)
    assert not (test_names.index == np.arange(len(test))).any()
    return model, test, test_names


@pytest.fixture
def table(iris):
    model, test, _ = iris
    return pd.DataFrame(model.predict_proba(test), columns=model.classes_, index=test.index)


@pytest.fixture
def expected(iris):
    """The metrics from class numbers, in arrays."""
    model, test, names = iris
    return evaluate(probabilities=model.predict_proba(test), label=np.searchsorted(model.classes_, names))


def test_labels_may_be_names_of_classes(iris, expected):
    model, test, names = iris
    probabilities = model.predict_proba(test)
    assert expected.metrics["acc"] == accuracy_score(names, model.predict(test))
    assert expected.metrics["nll"] == pytest.approx(log_loss(names, probabilities, labels=model.classes_))
    for label in (names, names.to_list(), names.to_numpy(str), names.astype("category"), pa.array(names)):
        assert evaluate(probabilities=probabilities, label=label, classes=model.classes_) == expected
    turned = evaluate(probabilities=probabilities[:, ::-1], label=names, classes=model.classes_[::-1])
    assert turned.metrics == pytest.approx(expected.metrics, abs=1e-12)


def test_the_columns_of_a_data_frame_name_the_classes(iris, table, expected):
    _, _, names = iris
    for columns in ([0, 1, 2], [2, 0, 1]):
        frame = table.iloc[:, columns]
        assert evaluate(probabilities=frame, label=names).metrics == pytest.approx(expected.metrics, abs=1e-12)
        arrow = pa.table(frame.reset_index(drop=True).to_dict("list"))
        assert evaluate(probabilities=arrow, label=names).metrics == pytest.approx(expected.metrics, abs=1e-12)


@pytest.mark.parametrize("classes", [[1, 2, 3], [0.0, 1.0, 5.0], [-1, 0, 1], ["1", "2", "3"], [2, 1, 0]])
def test_numbers_that_name_classes_are_not_positions(iris, table, expected, classes):
    model, _, names = iris
    label = names.map(dict(zip(model.classes_, classes, strict=True)))
    assert evaluate(probabilities=table.to_numpy(), label=label, classes=classes) == expected
    assert evaluate(probabilities=table.set_axis(classes, axis=1), label=label) == expected


def test_numbers_are_positions_where_classes_are_words(iris, table, expected):
    model, _, names = iris
    numbers = pd.Series(np.searchsorted(model.classes_, names), index=names.index)
    for label in (numbers, numbers.astype("Int64"), numbers.astype(object), numbers.astype("int64[pyarrow]")):
        assert evaluate(probabilities=table, label=label) == expected
        assert evaluate(probabilities=table.astype("float64[pyarrow]"), label=label) == expected


def test_truth_values_name_classes():
    features = np.linspace(-1, 1, 40)[:, None]
    model = LogisticRegression().fit(features, features[:, 0] > 0.2)
    result = evaluate(probabilities=model.predict_proba(features), label=features[:, 0] > 0.2, classes=model.classes_)
    assert result.metrics["acc"] == model.score(features, features[:, 0] > 0.2)
    table, label = model.predict_proba(features), features[:, 0] > 0.2
    assert evaluate(probabilities=table, label=label, classes=[0, 1]) == result
    assert evaluate(probabilities=pd.DataFrame(table, columns=["0", "1"]), label=label) == result


def test_names_in_label_and_prediction_need_no_order(iris, table, expected):
    model, test, names = iris
    given = {"label": names, "prediction": model.predict(test), "confidence": table.max(axis=1)}
    known = {key: value for key, value in expected.metrics.items() if key not in ("nll", "brier")}
    found = evaluate(**given).metrics
    assert {key: found[key] for key in known} == known
    assert compare(given, resamples=0).metrics[0] == found
    assert as_predictions(given).class_names == [*model.classes_]


def test_every_function_with_a_table_takes_names(iris, table):
    model, _, names = iris
    array, label = table.to_numpy(), np.searchsorted(model.classes_, names)
    for function in (nll, brier, classwise_ece):
        assert function(table, names) == function(array, label)
    assert calibrate(probabilities=table, label=names) == calibrate(probabilities=array, label=label)
    for key in ({}, {"key": names.index}):
        sets = conformal_sets(probabilities=table, label=names, method="aps", **key)
        assert sets == conformal_sets(probabilities=array, label=label, method="aps", **key)
    assert (
        choose(probabilities=table, label=names).judged.metrics
        == choose(probabilities=array, label=label).judged.metrics
    )


def test_compare_and_policies_take_names(iris, table):
    model, test, names = iris
    given = {"probabilities": table, "label": names}
    arrays = {"probabilities": table.to_numpy(), "label": np.searchsorted(model.classes_, names)}
    with_names = {"probabilities": model.predict_proba(test), "label": names, "classes": model.classes_}
    result, numbers = compare(given, with_names, resamples=100), compare(arrays, arrays, resamples=100)
    assert result.metrics == numbers.metrics and result.differences == numbers.differences
    policy = Policy.of(given).with_part(ThresholdPart(0.6))
    assert policy.classes == [*model.classes_]
    answers = policy.apply({"probabilities": table.iloc[:, [2, 0, 1]]})
    assert [answers.name(number) for number in answers.prediction] == [*model.predict(test)]
    frame = pd.DataFrame(answers.columns(), index=table.index)
    assert frame.prediction.equals(table.idxmax(axis=1).rename("prediction"))
    assert frame.index[frame.accepted].equals(table.index[table.max(axis=1) >= 0.6])
    with pytest.raises(ValueError, match="class"):
        policy.apply({"probabilities": table.rename(columns={"setosa": "rose"})})


@pytest.mark.parametrize(
    "given",
    [
        lambda label: {"label": label.sort_index()},
        lambda label: {"label": label.sort_index().astype("category"), "classes": sorted({*label})},
        lambda label: {"label": label, "sample_weight": pd.Series(1.0, label.index[::-1])},
        lambda label: {"label": label, "prediction": label.iloc[::-1]},
        lambda label: {"label": label, "confidence": pd.Series(0.5, label.index).sort_index()},
    ],
)
def test_rows_in_another_order_are_refused(iris, table, given):
    with pytest.raises(ValueError, match=r"rows in the same order, but the index of row 0 is \d+ in \w+ and \d+ in"):
        evaluate(probabilities=table, **given(iris[2]))


def test_weights_are_compared_with_whatever_has_an_index(iris, table):
    weights = pd.Series(1.0, table.index).sort_index()
    label = np.searchsorted(table.columns, iris[2])
    for given in ({"probabilities": table}, {"probabilities": table.to_numpy(), "confidence": table.max(axis=1)}):
        with pytest.raises(ValueError, match="rows in the same order"):
            evaluate(**given, label=label, sample_weight=weights)


def test_every_function_compares_the_index(iris, table):
    _, _, names = iris
    sure, right = table.max(axis=1), table.idxmax(axis=1) == names
    other = right.sort_index()
    group = pd.Series("a", names.index)
    inputs = {"probabilities": table, "label": names}
    calls = [
        lambda: aurc(sure, other),
        lambda: aurc(sure, right, sample_weight=group.sort_index().map({"a": 1.0})),
        lambda: guaranteed_threshold(sure, other, 0.3),
        lambda: measured_at(sure, other, 0.5),
        lambda: cost_threshold(sure, right, cost_error=sure.sort_index(), cost_reject=1),
        lambda: group_thresholds(sure, right, group.sort_index(), 0.3),
        lambda: monitor(right, 0.3, accepted=sure.sort_index() > 0.5),
        lambda: nll(table, names.sort_index()),
        lambda: calibrate(probabilities=table, label=names.sort_index()),
        lambda: conformal_sets(**inputs, group=group.sort_index()),
        lambda: conformal_sets(**inputs).sets(probabilities=table, group=group.sort_index()),
        lambda: choose(probabilities=table, correct=other),
        lambda: compare({"probabilities": table, "label": names.sort_index()}),
        lambda: compare(inputs, by=group.sort_index()),
        lambda: compare(inputs, by=pd.DataFrame({"site": group.sort_index()})),
        lambda: compare(inputs, sample_weight=group.sort_index().map({"a": 1.0})),
        lambda: Policy.of(inputs).apply({"probabilities": table, "confidence": sure.sort_index()}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="rows in the same order"):
            call()


def test_indexes_that_differ_in_any_way_are_refused(iris, table, expected):
    _, _, names = iris
    plain = table.reset_index(drop=True)
    assert evaluate(probabilities=plain, label=names.reset_index(drop=True)) == expected
    assert evaluate(probabilities=table, label=names.to_numpy()) == expected
    for other in (names.reset_index(drop=True), names.set_axis(names.index.astype(str))):
        with pytest.raises(
            ValueError, match=r"rows in the same order, .* give label.to_numpy\(\) if the rows belong"
        ):
            evaluate(probabilities=table, label=other)
    with pytest.raises(ValueError, match="but got 113 in probabilities, 112 in label|the same number of rows"):
        evaluate(probabilities=table, label=names.iloc[1:])


def test_an_index_may_be_of_any_type(iris, table, expected):
    _, _, names = iris
    words, mixed = table.index.astype(str), ["a", *range(len(table) - 1)]
    days = pd.date_range("2026-01-01", periods=len(names))
    for index in (words, mixed, days):
        assert evaluate(probabilities=table.set_axis(index), label=names.set_axis(index)) == expected
    for one, other in ((table.set_axis(mixed), names), (table, names.set_axis(days))):
        with pytest.raises(ValueError, match="rows in the same order"):
            evaluate(probabilities=one, label=other)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"label": ["a", "b"]}, r"class numbers in label.*with 'a' in row 0; .*classes=model.classes_"),
        ({"label": ["a", "c"], "classes": ["a", "b"]}, "a class among a, b in label, but got 'c' in row 1"),
        ({"label": [0, 3], "classes": [3, 5]}, "a class among 3, 5 in label, but got 0 in row 0"),
        ({"label": ["a", None], "classes": ["a", "b"]}, "in label, but got None in row 1"),
        ({"label": pd.Series([0, None], dtype="Int64")}, "whole numbers in label, but got nan in row 1"),
        ({"label": ["a", "b"], "classes": ["a", "b", "c"]}, "names of 2 classes, but got 3"),
        ({"label": pd.DataFrame({"y": [0, 1]})}, "but got shape .2, 1. of int64; give the column itself"),
        ({"label": ["a", "a"], "classes": ["a", "a"]}, "a distinct name for each class"),
    ],
)
def test_what_names_no_class_is_an_error(inputs, message):
    label = inputs.pop("label")
    label = np.array(label, dtype=object) if isinstance(label, list) else label
    with pytest.raises(ValueError, match=message):
        evaluate(probabilities=[[0.75, 0.25], [0.5, 0.5]], label=label, **inputs)


def test_columns_and_classes_must_agree(iris, table):
    model, _, names = iris
    with pytest.raises(ValueError, match=r"classes in the order of the columns, \['setosa'"):
        evaluate(probabilities=table, label=names, classes=model.classes_[::-1])


def test_missing_values_name_their_row():
    right = pd.Series([True, None], dtype="boolean")
    with pytest.raises(ValueError, match="booleans, but got .* with <NA> in row 1"):
        evaluate(confidence=[0.9, 0.8], correct=right)
    with pytest.raises(ValueError, match="finite values in confidence, but got nan in row 1"):
        evaluate(confidence=pd.Series([0.9, None], dtype="Float64"), correct=[1, 1])


def test_numbers_beyond_the_named_classes_are_refused():
    given = {"label": ["a", "b"], "prediction": [5, 1], "confidence": [0.9, 0.8], "classes": ["a", "b"]}
    for function in (as_predictions, lambda given: evaluate(**given)):
        with pytest.raises(ValueError, match="a class among a, b in prediction, but got 5 in row 0"):
            function(given)


def test_integers_of_more_than_64_bits_are_names():
    given = {"label": [2**70, 1], "prediction": [2**70, 2], "confidence": [0.9, 0.8]}
    assert evaluate(**given).metrics["acc"] == 0.5


def test_models_are_paired_by_the_index_of_pandas(iris, table):
    _, _, names = iris
    order = names.sample(frac=1, random_state=0).index
    other = {"probabilities": table.loc[order], "label": names[order]}
    result = compare({"probabilities": table, "label": names}, other, resamples=100)
    assert result.pairings == ("matched by index",)
    assert all(gap is None or gap.value == 0 for gap in result.differences[0].values())
    plain = {"probabilities": table.to_numpy(), "label": names.to_numpy(), "classes": table.columns}
    assert compare(plain, other, resamples=0).pairings[0].startswith("their labels differ row by row")
    for index in (np.arange(len(table)), np.zeros(len(table), dtype=int), table.index.astype(str)):
        assert as_predictions({"probabilities": table.set_axis(index)}).index is None
    series = pd.Series(table.columns, index=[7, 8, 9])  # the index of classes says nothing about rows
    assert as_predictions({"classes": series, "probabilities": table.to_numpy(), "label": names.array}).index is None
    given = as_predictions({"probabilities": table, "index": np.arange(len(table))})
    assert given.index.tolist() == [*range(len(table))]


def test_groups_come_from_series_and_data_frames(iris, table):
    _, test, names = iris
    wide = test.iloc[:, 0] > 6
    cells = pd.DataFrame({"wide": wide, "one": wide.where(wide, None)})
    result = compare({"probabilities": table, "label": names}, by=cells, resamples=0)
    assert [*result.groups[0]] == ["wide", "one"]
    rows = wide.to_numpy()
    inside = evaluate(probabilities=table[rows], label=names[rows])
    assert result.groups[0]["wide"]["True"].evaluation == inside
    assert [group.value for group in result.groups[0]["one"].groups] == ["True", "(missing)"]
    named = compare({"probabilities": table, "label": names}, by=wide.rename("size"), resamples=0)
    assert [*named.groups[0]] == ["size"]
    arrow = compare({"probabilities": table, "label": names}, by=pa.table({"wide": rows}), resamples=0)
    assert arrow.groups[0]["wide"].as_dict() == result.groups[0]["wide"].as_dict()


def test_groups_and_weights_of_one_name_are_not_mixed_up(iris, table):
    """The name of a series stays after a comparison or a division."""
    _, test, names = iris
    width = test.iloc[:, 0].rename("width")
    model = as_predictions({"probabilities": table, "label": names, "width": width}, ["width"])
    for by, weight in ((width > 6, width / 6), (width > 6, "width"), ("width", width / 6)):
        with pytest.raises(ValueError, match="groups and weights .* but both are called 'width'; rename one"):
            compare(model, by=by, sample_weight=weight, resamples=0)
    result = compare(model, by=width > 6, sample_weight=(width / 6).rename("weight"), resamples=0)
    assert sorted(group.value for group in result.groups[0]["width"].groups) == ["False", "True"]


def test_a_scorer_in_three_lines(iris):
    model, test, names = iris

    def scores(model, features, label):
        return evaluate(probabilities=model.predict_proba(features), label=label, classes=model.classes_).metrics

    results = cross_validate(model, test, names, scoring=scores, cv=3)
    assert results["test_acc"].tolist() == cross_validate(model, test, names, cv=3)["test_score"].tolist()
    loss = cross_validate(model, test, names, scoring="neg_log_loss", cv=3)["test_score"]
    assert results["test_nll"] == pytest.approx(-loss)


def test_a_threshold_from_columns_of_a_data_frame(iris, table):
    _, _, names = iris
    frame = pd.DataFrame({"confidence": table.max(axis=1), "correct": table.idxmax(axis=1) == names})
    choose_on, check_on = random_split(len(frame), 0.3)
    chosen, checked = frame.iloc[choose_on], frame.iloc[check_on]
    point = guaranteed_threshold(chosen.confidence, chosen.correct, risk=0.4, delta=0.1)
    found = measured_at(checked.confidence, checked.correct, point.threshold)
    accepted = checked[checked.confidence >= point.threshold]
    assert (found.accepted, found.wrong) == (len(accepted), int((~accepted.correct).sum()))


@pytest.mark.parametrize(
    "fitted",
    [
        lambda table, label: conformal_sets(probabilities=table, label=label, per_class=True).sets,
        lambda table, label: calibrate(probabilities=table, label=label).apply,
    ],
)
def test_what_was_fitted_to_columns_refuses_them_in_another_order(fitted):
    rng = np.random.default_rng(0)
    label = rng.choice(["cat", "dog", "elk"], 200)
    table = pd.DataFrame(rng.dirichlet(np.ones(3), 200), columns=["cat", "dog", "elk"])
    apply, other = fitted(table, label), table[["elk", "cat", "dog"]]
    with pytest.raises(ValueError, match=r"expected the classes \['cat', 'dog', 'elk'\] as columns, in this order"):
        apply(probabilities=other)
    assert np.array_equal(apply(probabilities=other[["cat", "dog", "elk"]]), apply(probabilities=table.to_numpy()))
