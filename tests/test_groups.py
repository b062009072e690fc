"""Groups of predictions, against a naive loop over the groups."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, binomtest

import confrank
from confrank import evaluate
from confrank.analysis import grouping_of
from confrank.analysis.groups import exact_interval
from confrank.metrics import KEYS, Samples, risk_at_coverage, sample_values
from confrank.metrics.groups import MOST_GROUPS, accepted_at, rows_by_group
from confrank.metrics.resampling import NO_INTERVALS
from confrank.predictions import Predictions
from confrank.report.groups import group_lines, verdict_sentences


def example(seed=0, size=600):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(3), size)
    label = np.array([rng.choice(3, p=row) for row in table])
    group = np.array(["north", "south", "east"], dtype=object)[rng.integers(0, 3, size)]
    return table, label, group, rng.exponential(size=size)


def test_rows_by_group_against_a_loop():
    rng = np.random.default_rng(0)
    for values in (rng.integers(-3, 12, 200), np.array(["b", "a", "ä", "c"], dtype=object)[rng.integers(0, 4, 200)]):
        found = rows_by_group(values)
        assert list(found) == [str(value) for value in sorted(set(values.tolist()))]
        for value, rows in found.items():
            assert rows.tolist() == [row for row, cell in enumerate(values) if str(cell) == value]


def test_numbers_as_text_are_in_the_order_of_numbers_and_missing_values_come_last():
    assert list(rows_by_group(np.array(["10", "9", "", "-1"], dtype=object))) == ["-1", "9", "10", "(missing)"]
    found = rows_by_group(np.array([2.0, np.nan, 1.5, np.nan]))
    assert {value: rows.tolist() for value, rows in found.items()} == {"1.5": [2], "2": [0], "(missing)": [1, 3]}
    assert list(rows_by_group(np.array([b"x", b"y"]))) == ["x", "y"]
    assert rows_by_group(np.array(["", None, "a"], dtype=object))["(missing)"].tolist() == [0, 1]
    assert rows_by_group(np.empty(0, dtype=object)) == rows_by_group([]) == {}


def test_too_many_groups_are_refused():
    with pytest.raises(ValueError, match="expected at most 2,000 groups, but 'id' has 2,001 different values"):
        rows_by_group(np.arange(MOST_GROUPS + 1), "id")


@pytest.mark.parametrize("weighted", [False, True])
def test_each_group_has_the_metrics_of_its_rows_alone(weighted):
    table, label, group, weight = example()
    model = {"probabilities": table, "label": label}
    result = confrank.compare(model, model, by={"region": group}, sample_weight=weight if weighted else None)
    (grouping, _) = (groups["region"] for groups in result.groups)
    assert [one.value for one in grouping.groups] == ["east", "north", "south"]
    for one in grouping.groups:
        rows = group == one.value
        weights = weight[rows] if weighted else None
        alone = evaluate(probabilities=table[rows], label=label[rows], sample_weight=weights)
        assert one.evaluation.metrics == pytest.approx(alone.metrics, rel=1e-12)
        confidence, correct = table[rows].max(axis=1), table[rows].argmax(axis=1) == label[rows]
        own = risk_at_coverage(confidence, correct, 0.8, sample_weight=weights)
        assert one.risk_at_coverage == pytest.approx(own, rel=1e-12)
        limits = confrank.compare(
            {"probabilities": table[rows], "label": label[rows]},
            {"probabilities": table[rows], "label": label[rows]},
            sample_weight=weights,
        ).intervals[0]
        assert {key: (found.low, found.high) for key, found in one.intervals.items()} == {
            key: pytest.approx((found.low, found.high)) for key, found in limits.items()
        }


@pytest.mark.parametrize("weighted", [False, True])
def test_the_complete_set_is_the_weighted_mean_of_the_groups(weighted):
    """For means over rows: accuracy, NLL, Brier and coverage; and for counts. Not for ECE and the areas."""
    table, label, group, weight = example()
    samples = sample_values(probabilities=table, label=label)
    samples = samples.weighted(weight) if weighted else samples
    grouping = grouping_of("region", samples, rows_by_group(group))
    whole = evaluate(probabilities=table, label=label, sample_weight=weight if weighted else None)
    assert sum(one.weight for one in grouping.groups) == pytest.approx(1)
    means = {key: sum(one.weight * one.evaluation.metrics[key] for one in grouping.groups) for key in KEYS}
    for key in ("acc", "nll", "brier"):
        assert means[key] == pytest.approx(whole.metrics[key], rel=1e-12)
    assert means["ece"] > whole.metrics["ece"] + 1e-3
    points = [one.acceptance for one in grouping.groups]
    assert sum(one.evaluation.num_samples for one in grouping.groups) == whole.num_samples
    assert sum(point.accepted for point in points) == grouping.overall.accepted
    assert sum(point.wrong for point in points) == grouping.overall.wrong
    shares = [one.weight * one.acceptance.coverage for one in grouping.groups]
    assert sum(shares) == pytest.approx(grouping.overall.coverage)
    risks = [share * point.risk for share, point in zip(shares, points, strict=True)]
    assert sum(risks) / sum(shares) == pytest.approx(grouping.overall.risk)


def test_the_threshold_accepts_the_chosen_share_of_all():
    table, label, group, _ = example()
    samples = sample_values(probabilities=table, label=label)
    grouping = grouping_of("region", samples, rows_by_group(group), coverage=0.3)
    threshold = np.sort(samples.confidence)[::-1][round(0.3 * 600) - 1]
    assert grouping.overall.threshold == threshold
    for one in grouping.groups:
        rows = (group == one.value) & (samples.confidence >= threshold)
        assert (one.acceptance.accepted, one.acceptance.wrong) == (rows.sum(), (rows & ~samples.correct).sum())
        assert one.acceptance.coverage == rows.sum() / (group == one.value).sum()
    with pytest.raises(ValueError, match=r"expected a coverage in \(0, 1\], but got 0"):
        grouping_of("region", samples, rows_by_group(group), coverage=0)


@pytest.mark.parametrize(("wrong", "number"), [(0, 10), (5, 50), (7, 7), (456, 1234)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_of_the_error_rate_is_scipys_exact_one(wrong, number, level):
    found = exact_interval(wrong, number, level)
    expected = binomtest(wrong, number).proportion_ci(level, method="exact")
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_acceptance_with_weights_counts_rows_and_shares_weight():
    samples = Samples(np.array([0.9, 0.8, 0.2]), np.array([True, False, True])).weighted([1, 3, 4])
    point = accepted_at(samples, 0.5)
    assert (point.accepted, point.wrong) == (2, 1)
    assert (point.coverage, point.risk) == (pytest.approx(0.5), pytest.approx(0.75))
    assert accepted_at(samples, 2.0).risk is None


def grouped(sizes_and_errors):
    """Accept all: each group has so many rows, and so many of them are wrong."""
    group = np.concatenate([np.full(size, name, dtype=object) for name, (size, _) in sizes_and_errors.items()])
    correct = np.concatenate([np.arange(size) >= errors for size, errors in sizes_and_errors.values()])
    samples = Samples(np.linspace(0.5, 1, len(group)), correct)
    return grouping_of("site", samples, rows_by_group(group), coverage=1.0)


def test_the_worst_group_is_named_and_small_ones_are_not_judged():
    grouping = grouped({"a": (1000, 50), "b": (1000, 95), "tiny": (5, 1)})
    assert grouping.worst.value == "b" and grouping.is_clear(grouping.worst)
    assert [one.value for one in grouping.by_risk] == ["b", "a", "tiny"]
    assert verdict_sentences(grouping) == [
        "By site, b is worst: 9.50% of its accepted predictions are wrong (95% interval 7.75% to 11.49%), against"
        " 7.28% of all.",
        "Too small to say: tiny. The 95% interval of their error rate among accepted includes that of all, and is"
        " wider than it.",
    ]


def test_a_small_group_that_is_clearly_worse_is_judged():
    assert grouped({"a": (1000, 50), "tiny": (8, 8)}).worst.value == "tiny"


@pytest.mark.parametrize(("sizes", "rate"), [([1000] + [8] * 20, 0.05), ([2000] + [6] * 20, 0.03), ([500] * 5, 0.1)])
def test_groups_of_the_same_error_rate_are_rarely_called_worse_beyond_chance(sizes, rate):
    """The chance that any group is, added up over its possible numbers of errors, is at most half of 5%."""
    none_clear = 1.0
    for size in set(sizes):
        clear = []
        for wrong in range(size + 1):
            grouping = grouped({"one": (size, wrong)} | {f"g{number}": (2, 1) for number in range(len(sizes) - 1)})
            grouping = replace(grouping, overall=replace(grouping.overall, risk=rate))
            clear.append(grouping.is_clear(grouping["one"]))
            exact = binomtest(wrong, size, rate, alternative="greater").pvalue
            assert clear[-1] == (exact < 0.025 / len(sizes)), (size, wrong)
            if all(clear[-3:]) and wrong > size * rate + 3:
                clear += [True] * (size - wrong)  # more errors are clearer still
                break
        none_clear *= (1 - binom.pmf(range(size + 1), size, rate)[clear].sum()) ** sizes.count(size)
    assert 0 < 1 - none_clear <= 0.025


def test_a_difference_that_may_be_chance_is_called_that():
    (sentence,) = verdict_sentences(grouped({"a": (1000, 70), "b": (1000, 75)}))
    assert sentence.endswith("Among 2 groups, this may be chance.")


def test_groups_without_errors_or_with_one_value_have_no_worst():
    assert grouped({"a": (100, 0), "b": (100, 0)}).worst is None
    assert verdict_sentences(grouped({"a": (100, 0), "b": (100, 0)})) == [
        "By site: no accepted prediction is wrong in any group."
    ]
    assert verdict_sentences(grouped({"a": (100, 3)})) == ["All predictions have the same site, a."]


def test_many_groups_are_cut_on_the_terminal():
    lines = group_lines(grouped({f"g{number}": (50, 10) for number in range(40)}))
    assert lines[-1] == "10 more groups of lower error rate not shown; the JSON output has all."


def two_models():
    table, label, group, weight = example(size=200)
    other = np.full((200, 3), 0.2)
    other[np.arange(200), (label + (np.arange(200) % 3 == 0)) % 3] = 0.6
    order = np.random.default_rng(1).permutation(200)
    first = Predictions(
        probabilities=table, label=label, index=np.arange(200), extra={"region": group, "weight": weight}
    )
    second = Predictions(probabilities=other[order], label=label[order], index=order)
    return first, second, order


def test_a_matched_model_takes_the_columns_of_the_first():
    first, second, order = two_models()
    result = confrank.compare(first, second, by="region", sample_weight="weight", resamples=100)
    extra = {name: values[order] for name, values in first.extra.items()}
    explicit = confrank.compare(
        first, Predictions(**second.arrays(), extra=extra), by=["region"], sample_weight="weight", resamples=100
    )
    assert result.metrics == explicit.metrics
    for one, other in zip(result.groups, explicit.groups, strict=True):
        assert one["region"].as_dict() == other["region"].as_dict()
    assert result.groups[1]["region"]["north"].differences == {}
    result = confrank.compare(first, second, by="region", resamples=100)
    gap = result.groups[1]["region"]["north"].differences["acc"]
    values = [groups["region"]["north"].evaluation.metrics["acc"] for groups in result.groups]
    assert gap.value == pytest.approx(values[1] - values[0])
    assert result.groups[0]["region"]["north"].differences == {}


def test_columns_that_disagree_or_are_missing_are_refused():
    first, second, order = two_models()
    wrong = first.extra["region"][order].copy()
    wrong[7] = "elsewhere"
    with pytest.raises(ValueError, match="expected the same 'region' for the same samples, but got 'elsewhere'"):
        confrank.compare(first, Predictions(**second.arrays(), extra={"region": wrong}), by="region", resamples=0)
    with pytest.raises(ValueError, match="expected a column 'planet' in model 1, but it has none"):
        confrank.compare(first, second, by="planet", resamples=0)
    with pytest.raises(ValueError, match="expected numbers in the column 'region' of weights, but got"):
        confrank.compare(first, second, sample_weight="region", resamples=0)


def test_a_mapping_may_hold_the_columns():
    table, label, group, weight = example()
    model = {"probabilities": table, "label": label, "region": group, "w": weight}
    found = confrank.compare(model, model, by="region", sample_weight="w", resamples=0)
    plain = {"probabilities": table, "label": label}
    expected = confrank.compare(plain, plain, by={"region": group}, sample_weight=weight, resamples=0)
    assert found.groups[0]["region"].as_dict() == expected.groups[0]["region"].as_dict()
    assert found.groups[0]["region"].groups[0].intervals == {}


def write_csv(path):
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.4, 1, 300).round(3)
    lines = ["label,prediction,confidence,site,age,w"]
    for number, value in enumerate(confidence):
        right = rng.random() < value
        lines.append(f"cat,{'cat' if right else 'dog'},{value},{'AB'[number % 2]},{number % 3},{number % 4 + 1}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_command_prints_groups_and_writes_them(tmp_path, capsys, command):
    path, out = write_csv(tmp_path / "p.csv"), tmp_path / "m.json"
    command(
        "evaluate", str(path), "--by", "site,age", "--sample-weight", "w", "--json", str(out), "--resamples", "100"
    )
    text = capsys.readouterr().out
    result = json.loads(out.read_text())
    assert list(result["groups"]) == ["site", "age"]
    assert list(result["groups"]["site"]) == ["A", "B"] and list(result["groups"]["age"]) == ["0", "1", "2"]
    cells = np.array([line.split(",") for line in path.read_text().splitlines()[1:]])
    rows = cells[:, 3] == "A"
    alone = evaluate(
        confidence=cells[rows, 2].astype(float),
        correct=cells[rows, 0] == cells[rows, 1],
        sample_weight=cells[rows, 5].astype(float),
    )
    found = result["groups"]["site"]["A"]
    assert found["n"] == 150 and not found["intervals"] and found["at_threshold"]["risk_interval"] is None
    assert found["metrics"] == pytest.approx(alone.metrics)
    assert result["weighted_by"] == "w" and result["no_intervals"] == NO_INTERVALS
    assert " ".join(text.split()).count(NO_INTERVALS) == 1
    command("evaluate", path, "--by", "site", "--json", out, "--resamples", 100)
    plain = json.loads(out.read_text())["groups"]["site"]["A"]
    low, high = plain["intervals"]["acc"]
    assert low < plain["metrics"]["acc"] < high and set(plain["intervals"]) == {*KEYS, "nll_correct", "brier_correct"}
    worst = result["worst_group"]["site"]
    assert worst in ("A", "B") and f"By site, {worst} is worst" in text
    assert f"{100 * found['metrics']['acc']:.2f}" in text
    assert "by age, continued" in text


def test_the_command_refuses_columns_that_are_not_there(tmp_path, capsys, command):
    path = write_csv(tmp_path / "p.csv")
    for arguments, message in (
        (["--by", "planet"], "expected a column 'planet'"),
        (["--sample-weight", "site"], "expected numbers in the column 'site' of weights, but got 'A' in row 0"),
        (["--by", "site", "--coverage", "0"], "expected --coverage in (0, 1], but got 0"),
    ):
        command("evaluate", path, *arguments, code=2)
        assert message in capsys.readouterr().err


def test_a_later_file_takes_columns_from_the_first(tmp_path, command):
    path, out = write_csv(tmp_path / "p.csv"), tmp_path / "m.json"
    other = tmp_path / "q.csv"
    other.write_text("\n".join(",".join(line.split(",")[:3]) for line in path.read_text().splitlines()) + "\n")
    command("evaluate", str(path), str(other), "--by", "site", "--json", str(out), "--resamples", "100")
    first, second = json.loads(out.read_text())
    assert first["groups"]["site"]["A"]["metrics"] == second["groups"]["site"]["A"]["metrics"]
    assert second["groups"]["site"]["A"]["difference_to_first"]["aurc"]["value"] == 0


def test_a_guarantee_refuses_weights_and_a_coverage_takes_them(tmp_path, capsys, command):
    path, out = write_csv(tmp_path / "p.csv"), tmp_path / "t.json"
    command("threshold", path, "--risk", 0.5, "--sample-weight", "w", code=2)
    assert capsys.readouterr().err == (
        "confrank: error: expected predictions without weights: a guarantee counts errors among equally weighted"
        " rows; leave out --sample-weight, or choose a threshold by --coverage\n"
    )
    command("threshold", path, "--coverage", 0.5, "--sample-weight", "w", "--json", out)
    cells = np.array([line.split(",") for line in path.read_text().splitlines()[1:]])
    confidence, weight = cells[:, 2].astype(float), cells[:, 5].astype(float)
    shares = [(weight[confidence >= value].sum() / weight.sum(), value) for value in np.unique(confidence)]
    assert json.loads(out.read_text())["threshold"] == max(value for share, value in shares if share >= 0.5 - 1e-9)


def test_roles_of_columns_group_and_weight_too(tmp_path, capsys, command):
    path, one, other = write_csv(tmp_path / "p.csv"), tmp_path / "a.json", tmp_path / "b.json"
    command("evaluate", path, "--by", "site", "--sample-weight", "w", "--json", one, "--resamples", 0)
    command("evaluate", path, "--columns", "group=site,sample_weight=w", "--json", other, "--resamples", 0)
    by_flag, by_role = (json.loads(file.read_text()) for file in (one, other))
    assert by_role["metrics"] == by_flag["metrics"]
    assert by_role["groups"]["group"] == by_flag["groups"]["site"]
    capsys.readouterr()
    command("threshold", path, "--risk", 0.5, "--columns", "sample_weight=w", code=2)
    assert "a guarantee counts errors among equally weighted rows" in capsys.readouterr().err
