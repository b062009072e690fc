import json

import numpy as np
import pytest
import torch

import confrank
from confrank import evaluate
from confrank.analysis import Comparison, analyse, compare, repeats_of
from confrank.analysis.repeats import GRID
from confrank.metrics import Samples
from confrank.metrics.inputs import at_or_above
from confrank.predictions import Predictions, save_predictions


def logits_of_model(seed, size=300, num_classes=4):
    rng = np.random.default_rng(seed)
    label = np.arange(size) % num_classes
    logits = rng.normal(size=(size, num_classes)) + 1.5 * np.eye(num_classes)[label]
    return {"logits": logits, "label": label, "index": np.arange(size)}


def shuffled(model, seed=9):
    order = np.random.default_rng(seed).permutation(len(model["label"]))
    return {name: values[order] for name, values in model.items()}


def test_a_comparison_prints_as_a_table():
    confident = {"confidence": [0.9, 0.8, 0.7, 0.6], "correct": [True, True, False, True]}
    timid = confident | {"confidence": [0.5, 0.5, 0.5, 0.5]}
    assert repr(compare(confident, timid, names=["old", "new"], resamples=0)) == (
        "4 predictions, confidence and correct\n"
        "               old     new\n"
        "acc            0.7500  0.7500\n"
        "aurc           0.1458  0.2500\n"  # (0 + 0 + 1/3 + 1/4) / 4
        "e_aurc         0.1116  0.2158\n"  # less 1/4 + 3/4 ln(3/4)
        "naurc          0.4444  1.0000\n"  # the least is 1/4 / 4: (7/48 - 1/16) / (1/4 - 1/16)
        "augrc          0.0938  0.1250\n"  # trapezoids: (0 + 0 + 1/8 + 1/4) / 4, and 1/4 / 2
        "aupr_error     0.5000  0.2500\n"
        "fpr95          1.0000  1.0000\n"
        "auroc          0.6667  0.5000\n"
        "ece            0.3500  0.2500\n"
        "nll            -       -\n"
        "brier          -       -\n"
        "nll_correct    0.5108  0.6931\n"  # -(ln 0.9 + ln 0.8 + ln 0.3 + ln 0.6) / 4, and ln 2
        "brier_correct  0.1750  0.2500"  # (0.01 + 0.04 + 0.49 + 0.16) / 4, and 1/4
    )


def test_the_table_of_a_comparison_has_intervals_and_differences():
    first, second = logits_of_model(0), logits_of_model(1)
    result = compare(first, second, logits_of_model(2, size=200), resamples=100, names=["a", "b", "c"])
    lines = repr(result).splitlines()
    assert lines[:3] == [
        "a: 300 predictions, 4 classes, logits",
        "b: 300 predictions, 4 classes, logits",
        "c: 200 predictions, 4 classes, logits",
    ]
    gap = result.differences[0]["aurc"]
    value, low, high = (f"{number:+.4f}" for number in (gap.value, gap.low, gap.high))
    assert lines[3] == (
        f"No clear difference in aurc between b and a: {value} (95% interval {low} to {high}, p = {gap.p:.2g})."
    )
    assert lines[4].startswith("No clear difference in auroc between b and a: ")
    assert lines[5].split("  ")[-1] == "b - a" and lines[-1] == "in brackets: 95% intervals"
    row = next(line for line in lines if line.startswith("aurc"))
    assert row.endswith(f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]")


@pytest.mark.parametrize("names", ["ab", ["a"], ["a", "a"]])
def test_names_of_models_are_distinct(names):
    with pytest.raises(ValueError, match=r"expected a distinct name for each of 2 models, but got"):
        compare(logits_of_model(0), logits_of_model(1), names=names, resamples=0)


def test_compare_is_what_the_command_writes(tmp_path, command):
    models = [logits_of_model(0), shuffled(logits_of_model(1)), logits_of_model(2, size=200)]
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for file, model in zip(files, models, strict=True):
        save_predictions(file, Predictions(**model))
    command("evaluate", *files, "--json", tmp_path / "out.json", "--resamples", 120, "--seed", 5)
    written = json.loads((tmp_path / "out.json").read_text())
    result = confrank.compare(*models, resamples=120, seed=5)
    assert isinstance(result, Comparison)
    assert list(result.metrics) == [one["metrics"] for one in written]
    limits = [{key: pair and [pair.low, pair.high] for key, pair in one.items()} for one in result.intervals]
    assert limits == [one["intervals"] for one in written]
    assert result.pairings == ("matched by index", "other samples: 300 and 200 predictions")
    gap, none = result.differences
    expected = written[1]["difference_to_first"]["aurc"]
    assert [gap["aurc"].value, gap["aurc"].low, gap["aurc"].high, gap["aurc"].p] == list(expected.values())
    assert none == {}


def test_compare_takes_predictions_mappings_tensors_and_lists():
    model = logits_of_model(0)
    as_tensors = {name: torch.from_numpy(values) for name, values in model.items()}
    as_lists = {name: values.tolist() for name, values in model.items()}
    result = compare(Predictions(**model), as_tensors, as_lists, resamples=0)
    expected = evaluate(logits=model["logits"], label=model["label"]).metrics
    assert list(result.metrics) == [expected] * 3
    assert result.intervals == ({},) * 3 and result.differences == ({},) * 2


def test_a_model_compared_with_itself_does_not_differ():
    model = logits_of_model(0)
    (difference,) = compare(model, shuffled(model), resamples=100).differences
    assert all(gap.value == pytest.approx(0, abs=1e-15) and gap.p == 1 for gap in difference.values())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"logit": np.eye(3), "label": np.arange(3)}, "expected arrays among .*, but got 'logit'"),
        ({"logits": np.eye(3)}, "model 2: expected label"),
        ({"confidence": np.ones(0), "correct": np.ones(0)}, "expected predictions to compare, but model 2 has none"),
    ],
)
def test_compare_says_which_model_is_wrong(model, message):
    with pytest.raises(ValueError, match=message):
        compare(logits_of_model(0), model)


def test_one_model_has_intervals_and_groups_but_no_differences():
    model = logits_of_model(0)
    region = np.arange(len(model["label"])) % 2
    one, two = (compare(*models, by={"region": region}, resamples=100) for models in ([model], [model, model]))
    assert (one.metrics, one.intervals, one.differences) == (two.metrics[:1], two.intervals[:1], ())
    assert one.groups[0]["region"].as_dict() == two.groups[0]["region"].as_dict()


def test_too_few_resamples_are_refused():
    with pytest.raises(ValueError, match="expected 100 resamples or more, but got 99; raise `resamples`, or set it"):
        compare(logits_of_model(0), logits_of_model(1), resamples=99)


def test_overconfidence_is_mean_confidence_minus_accuracy():
    confidence, correct, weight = np.array([0.9, 0.7, 0.8]), np.array([True, False, True]), [1, 2, 1]
    model = {"confidence": confidence, "correct": correct}
    (plain,), (weighted,) = compare(model).models, compare(model, sample_weight=weight).models
    assert plain.overconfidence == pytest.approx(0.8 - 2 / 3)
    assert weighted.as_dict()["overconfidence"] == pytest.approx(np.average(confidence, weights=weight) - 0.5)
    assert analyse("scores", Samples(10 * confidence, correct)).as_dict()["overconfidence"] is None


def test_thresholds_accept_near_ties():
    """As `at_or_above` does, and so SelectiveClassifier: 0.7 accepts what a softmax rounded to a little less."""
    confidence, correct = np.array([0.9, 0.7, 0.7 - 1e-13, 0.2]), np.array([True, True, False, True])
    curve = analyse("", Samples(confidence, correct)).curve
    for threshold, accepted, wrong in zip(curve.threshold, curve.accepted, curve.wrong, strict=True):
        rows = at_or_above(confidence, threshold)
        assert (accepted, wrong) == (rows.sum(), (rows & ~correct).sum())
    assert curve.accepted.tolist() == [1, 3, 3, 4]


def run_of(seed):
    rng = np.random.default_rng(seed)
    confidence = rng.random(100)
    return Samples(confidence, rng.random(100) < 0.2 + 0.8 * confidence, confidence)


def test_repeats_pair_by_seed():
    runs = {"a": [run_of(0), run_of(1), run_of(2)], "b": [run_of(3), run_of(4), run_of(5)]}
    repeats = repeats_of(runs)
    areas = {name: [analyse("", run).evaluation.metrics["aurc"] for run in each] for name, each in runs.items()}
    gaps = np.subtract(areas["b"], areas["a"])
    difference = repeats.difference("b", "aurc")
    assert difference.mean == pytest.approx(gaps.mean(), rel=1e-12)
    assert difference.standard_error == pytest.approx(gaps.std(ddof=1) / np.sqrt(3), rel=1e-12)
    assert repeats.summary("a", "aurc").std == pytest.approx(np.std(areas["a"], ddof=1), rel=1e-12)
    assert repeats.summary("a", "nll") is None and repeats.difference("b", "nll") is None
    # At full coverage the error rate among accepted is that of all predictions.
    assert GRID[-1] == 1 and repeats.risks["a"][:, -1].tolist() == [np.mean(~run.correct) for run in runs["a"]]


def test_a_metric_counts_in_the_seeds_that_define_it_for_all_methods():
    perfect = Samples(np.array([0.9, 0.8]), np.array([True, True]))
    repeats = repeats_of({"a": [run_of(0), perfect], "b": [run_of(1), run_of(2)]})
    assert repeats.summary("b", "auroc").n == repeats.difference("b", "auroc").n == 1
    assert repeats.summary("b", "acc").n == 2


def test_repeats_need_as_many_runs_of_each_method():
    with pytest.raises(ValueError, match="expected as many runs of each method, but got 1 of a, 2 of b"):
        repeats_of({"a": [run_of(0)], "b": [run_of(1), run_of(2)]})


def scored(seed, accuracy=0.8, skill=0.0, size=1000):
    """A confidence that separates right from wrong by `skill` standard deviations; labels in a fixed order."""
    random = np.random.default_rng(seed)
    right = random.random(size) < accuracy
    label = np.arange(size) % 2
    confidence = 1 / (1 + np.exp(-random.normal(size=size) - skill * right))
    return {"label": label, "prediction": np.where(right, label, 1 - label), "confidence": confidence}


def test_models_with_random_scores_do_not_separate_better():
    """Their accuracies differ, so one has fewer errors among the accepted; the scores of each are noise."""
    for seed in range(10):
        models = [scored(10 * seed + number, accuracy) for number, accuracy in enumerate((0.9, 0.8, 0.7, 0.6))]
        result = compare(*models, names=["a", "b", "c", "d"], resamples=200)
        lines = repr(result).splitlines()
        assert "d has more errors among the accepted than a" in "\n".join(lines)
        assert not [line for line in lines if "separates right from wrong" in line]
        assert sum(line.startswith("No clear difference in auroc between ") for line in lines) == 6


def test_a_model_that_separates_better_is_found():
    """It has as many errors as the others, and one of the others is found to be like the first."""
    models = [scored(1), scored(2), scored(3, skill=1.5)]
    text = repr(compare(*models, names=["a", "b", "c"], resamples=1000))
    for other in "ab":
        assert f"\nc has fewer errors among the accepted than {other}: its aurc differs by -0." in text
        assert f"\nc separates right from wrong better than {other}: its auroc differs by +0." in text
        assert "p < 0.002)" in text
    assert "\nNo clear difference in auroc between b and a: " in text
    assert "\nWith 3 pairs, a difference is clear beyond its 98.3% interval.\n" in text


def test_every_pair_is_compared(tmp_path, capsys, command):
    """Of five files, the first and the fourth have other samples than any other."""
    models = [scored(0, size=900), scored(1), scored(2, skill=1.0), scored(3, size=500), scored(4, skill=2.0)]
    files = [tmp_path / f"{letter}.npz" for letter in "abcde"]
    for file, model in zip(files, models, strict=True):
        np.savez(file, **model)
    result = compare(*models, names=[str(file) for file in files], resamples=200)
    names = [(str(files[one]), str(files[other])) for one, other in ((2, 1), (4, 1), (4, 2))]
    assert [*result.pairs] == names
    alone = compare(models[1], models[4], resamples=200)
    assert result.pairs[names[1]] == alone.differences[0] == alone.pairs["model 2", "model 1"]
    command("evaluate", *files, "--json", tmp_path / "out.json", "--report", tmp_path / "r.html", "--resamples", 200)
    written = json.loads((tmp_path / "out.json").read_text())
    others = [[*one.get("difference_to", {})] for one in written]
    assert others == [[], [], [str(files[1])], [], [str(files[1]), str(files[2])]]
    gap = written[4]["difference_to"][str(files[1])]["auroc"]
    assert gap == {name: getattr(result.pairs[names[1]]["auroc"], name) for name in ("value", "low", "high", "p")}
    text = " ".join(capsys.readouterr().out.split())
    verdict, table = (text.index(words) for words in ("separates right from wrong better than", "meaning"))
    assert verdict < table
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.index("e.npz separates right from wrong better than b.npz") < page.index("Accuracy is")


def test_differences_to_the_first_keep_their_names_in_json(tmp_path, command):
    files = [tmp_path / f"{letter}.npz" for letter in "abc"]
    for number, file in enumerate(files):
        np.savez(file, **scored(number))
    command("evaluate", *files, "--json", tmp_path / "out.json", "--resamples", 200)
    first, second, third = json.loads((tmp_path / "out.json").read_text())
    assert "difference_to_first" not in first and "difference_to" not in second
    for model in (second, third):
        assert [*model["difference_to_first"]] == [*model["metrics"]]
    assert [*third["difference_to"]] == [str(files[1])]
