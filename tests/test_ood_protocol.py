"""The protocol: who is tuned on what, what is tested, and that nothing leaks."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve
from torch import nn

from confrank.analysis.repeats import Summary
from confrank.config import RunConfig
from confrank.data import split_of
from confrank.metrics.separation import detection
from confrank.models import create
from confrank.ood import (
    Classifier,
    Mahalanobis,
    Odin,
    OodResult,
    Protocol,
    examination,
    examine,
    mahalanobis,
    odin,
    tuning,
)
from confrank.ood.images import Images, LabelledBatches
from confrank.ood.results import read_results, results_json
from confrank.ood.tuning import best, divide
from confrank.report.paper_table import render
from confrank.study.comparison import comparison_cells
from confrank.study.ood import ood_cells
from confrank.study.tables import table_cells


def pixels(count, seed, low=0, high=256):
    return np.random.default_rng(seed).integers(low, high, (count, 6, 6, 1), dtype=np.uint8)


def small_classifier():
    train = split_of(pixels(120, 0), np.arange(120) % 3)
    return Classifier(create("small", 3, in_channels=1), train, pixels(90, 1), (0.4,), (0.3,))


class Number(nn.Module):
    """An image's first two pixels are its number, and that is its first logit."""

    def forward(self, image):
        number = (image[:, 0, 0, :2] * 255).round() @ torch.tensor([1.0, 256.0])
        return torch.stack([number, torch.zeros_like(number)], dim=1)


def numbered(count, start=0):
    images = np.zeros((count, 3, 3, 1), dtype=np.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = divmod(np.arange(start, start + count), 256)[::-1]
    return images


def numbers(images):
    return images.pixels[:, 0, :2, 0].astype(int) @ [1, 256]


def test_odin_is_tuned_on_all_tuning_images(monkeypatch):
    """The second step separates the images to choose by alone, the third all of them except one."""
    swept = []

    def scores(model, images, temperature, eps, std):
        number = model(images)[:, 0]
        swept.extend(number.tolist())
        inside = (number < 100).double()
        fit = torch.isin(number, torch.tensor([*range(10), *range(100, 110)], dtype=number.dtype))
        rows = torch.zeros(len(eps), len(number), dtype=torch.float64)
        rows[1] = torch.where(fit, -inside, inside)
        rows[2] = inside * (number != 19)
        return rows

    monkeypatch.setattr(tuning, "odin_scores", scores)
    parts = [Images(numbered(10, start), (0.0,), (1.0,), torch.device("cpu")) for start in (0, 100, 10, 110)]
    tuned = tuning.tune_odin(Odin(Number()), tuning.TuningImages(*parts))
    assert sorted({*swept}) == [*range(20), *range(100, 120)]
    assert tuned.eps == odin.EPS[2]


def test_tuning_images_never_reach_the_test(monkeypatch):
    seen = {}

    def spy(detector, images):
        seen.update(vars(images))
        return detector

    monkeypatch.setattr(examination, "tune_odin", spy)
    classifier = Classifier(Number(), split_of(numbered(4), np.arange(4) % 2), numbered(300), (0.0,), (1.0,))
    wanted = Protocol(detectors=("max-logit", "odin"), num_tuning=100, seed=5)
    (plain, tuned) = examine(classifier, {"far": numbered(400, start=1000)}, wanted)
    parts = {name: set(numbers(images)) for name, images in seen.items()}
    assert [len(part) for part in parts.values()] == [50, 50, 50, 50]
    for fit, choose, tested, everything in (
        ("fit_inside", "choose_inside", plain.inside, range(300)),
        ("fit_outside", "choose_outside", plain.outside, range(1000, 1400)),
    ):
        assert not parts[fit] & parts[choose]
        assert not (parts[fit] | parts[choose]) & set(tested)
        assert parts[fit] | parts[choose] | set(tested) == set(everything)
        assert len(tested) == len(everything) - 100
    assert (len(tuned.inside), len(tuned.outside)) == (200, 300)
    whole = examine(classifier, {"far": numbered(400, start=1000)}, Protocol(("max-logit",), num_tuning=0))
    assert whole[0].inside.tolist() == list(range(300))


def test_division_is_checked():
    rows = divide(50, 20, seed=3)
    assert sorted([*rows.fit, *rows.choose, *rows.test]) == list(range(50))
    assert np.array_equal(divide(50, 20, seed=3).fit, rows.fit)
    assert not np.array_equal(divide(50, 20, seed=4).fit, rows.fit)
    with pytest.raises(AssertionError, match="reached the test"):
        type(rows)(rows.fit, rows.choose, np.append(rows.test, rows.fit[0]))
    with pytest.raises(ValueError, match="even number of tuning images below the 50 in x, but got 50; set"):
        divide(50, 50, seed=0, name="x")


def tnr(inside, outside):
    """True-negative rate at 95% TPR by scikit-learn's ROC curve."""
    label = np.repeat([1, 0], [len(inside), len(outside)])
    fpr, tpr, _ = roc_curve(label, np.concatenate([inside, outside]), drop_intermediate=False)
    return 1 - fpr[tpr >= 0.95].min()


def parts_of(classifier, outside, wanted):
    sets = []
    for images, seed in ((classifier.test, wanted.seed), (outside, wanted.seed + 1)):
        rows = divide(len(images), wanted.num_tuning, seed)
        both = Images(images, classifier.mean, classifier.std, torch.device("cpu"))
        sets.append({name: next(iter(both.select(part))) for name, part in vars(rows).items()})
    return sets


def sharpen(model):
    """An untrained network is unsure of everything; larger weights make the temperature matter."""
    with torch.no_grad():
        model.head.weight.mul_(30)


def test_odin_is_tuned_as_by_trying_everything():
    classifier, outside = small_classifier(), pixels(80, 2, 60, 200)
    wanted = Protocol(("odin",), num_tuning=40)
    sharpen(classifier.model)
    (found,) = examine(classifier, {"o": outside}, wanted)
    inside, outer = parts_of(classifier, outside, wanted)
    tuned = [torch.cat([images["fit"], images["choose"]]) for images in (inside, outer)]
    tried = []
    for temperature in odin.TEMPERATURES:
        for eps in odin.EPS:
            detector = Odin(classifier.model, temperature, eps, classifier.std)
            tried.append((tnr(*map(detector.score, tuned)), detector))
    rate, winner = max(tried, key=lambda pair: pair[0])
    assert found.settings == {"temperature": winner.temperature, "eps": winner.eps}
    assert rate > min(pair[0] for pair in tried)
    assert np.allclose(found.outside, winner.score(outer["test"]), rtol=1e-6)
    assert found.metrics == detection(found.inside, found.outside).metrics


def test_mahalanobis_is_tuned_as_by_trying_everything():
    classifier, outside = small_classifier(), pixels(80, 2, 60, 200)
    wanted = Protocol(("mahalanobis",), num_tuning=40)
    (found,) = examine(classifier, {"o": outside}, wanted)
    inside, outer = parts_of(classifier, outside, wanted)
    train = Images(classifier.train.images, classifier.mean, classifier.std, torch.device("cpu"))
    detector = Mahalanobis(classifier.model, std=classifier.std).fit(LabelledBatches(train, classifier.train.labels))
    best_rate, settings, scores = -1.0, None, None
    for eps in mahalanobis.EPS:
        layers = {
            (side, part): detector.layer_scores(images[part], [eps])[0].numpy()
            for side, images in (("in", inside), ("out", outer))
            for part in ("fit", "choose", "test")
        }
        fitted = np.concatenate([layers["in", "fit"], layers["out", "fit"]])
        mean, std = fitted.mean(axis=0), fitted.std(axis=0)
        judge = LogisticRegression(max_iter=1000).fit((fitted - mean) / std, np.repeat([1, 0], 20))
        decide = {key: judge.decision_function((values - mean) / std) for key, values in layers.items()}
        rate = tnr(decide["in", "choose"], decide["out", "choose"])
        if rate > best_rate:
            best_rate, settings, scores = rate, eps, (decide["in", "test"], decide["out", "test"])
    assert found.settings["eps"] == settings
    assert np.allclose(found.inside, scores[0], atol=1e-4)
    assert np.allclose(found.outside, scores[1], atol=1e-4)


def test_the_first_of_equally_good_settings_wins():
    tied = [("a", np.zeros(4), np.ones(4)), ("b", np.ones(4), np.zeros(4)), ("c", np.ones(4), np.zeros(4))]
    assert best(tied) == "b"


def test_the_same_seed_gives_the_same_outcomes_and_sets_do_not_disturb_each_other():
    classifier, sets = small_classifier(), {"a": pixels(60, 2, 60, 200), "b": pixels(50, 3, 0, 99)}
    wanted = Protocol(("knn", "odin", "mahalanobis"), num_tuning=40, neighbours=9)
    both, alone = examine(classifier, sets, wanted), examine(classifier, {"b": sets["b"]}, wanted)
    first, again = (results_json(part, wanted, {})["runs"] for part in (both[3:], alone))
    assert first == again
    assert all(np.array_equal(one.inside, other.inside) for one, other in zip(both[3:], alone, strict=True))
    other = examine(classifier, {"b": sets["b"]}, replace(wanted, seed=1))
    assert [one.metrics for one in other] != [one.metrics for one in alone]


def test_without_tuning_no_out_of_distribution_image_is_used(monkeypatch):
    def never(*arguments):
        raise AssertionError("tuned")

    monkeypatch.setattr(examination, "tune_odin", never)
    monkeypatch.setattr(examination, "tune_mahalanobis", never)
    classifier, wanted = small_classifier(), Protocol(("odin", "mahalanobis"), num_tuning=0)
    near, far = examine(classifier, {"a": pixels(40, 2), "b": pixels(50, 3, 0, 9)}, wanted)[::2]
    assert near.settings == far.settings == {"temperature": 1000.0, "eps": 0.0014}
    assert np.array_equal(near.inside, far.inside)
    assert "nothing out-of-distribution was used before the test" in wanted.describe()
    tuned = Protocol().describe()
    assert "1,000 in-distribution and 1,000 out-of-distribution images" in tuned
    assert "left out of the test" in tuned


def test_wrong_shapes_and_names():
    classifier = small_classifier()
    with pytest.raises(
        ValueError,
        match=r"images of 6x6x1 .* but got 8x8x3 in mine; set `image_size` to scale the pictures",
    ):
        examine(classifier, {"mine": np.zeros((9, 8, 8, 3), dtype=np.uint8)}, Protocol(num_tuning=0))
    scaled = np.zeros((9, 6, 6, 1), dtype=np.float32)
    with pytest.raises(ValueError, match=r"expected uint8 images, .* but got float32 in mine; give pixels within"):
        examine(classifier, {"mine": scaled}, Protocol(num_tuning=0))
    with pytest.raises(ValueError, match=r"expected uint8 images, .* but got float32 in the test split"):
        examine(replace(classifier, test=scaled), {"mine": classifier.test}, Protocol(num_tuning=0))
    with pytest.raises(ValueError, match="detectors among max-probability, odin, .* but got 'oden'"):
        Protocol(("oden",))
    with pytest.raises(ValueError, match="expected each detector once, but got odin energy odin"):
        Protocol(("odin", "energy", "odin"))
    with pytest.raises(ValueError, match="expected an AUPR among average, trapezoid, but got 'mean'"):
        Protocol(aupr="mean")
    with pytest.raises(ValueError, match="expected images in mine, but got none"):
        examine(classifier, {"mine": np.zeros((0, 6, 6, 1), dtype=np.uint8)}, Protocol(num_tuning=0))


def test_pixels_of_any_layout_are_taken():
    classifier, pixels = small_classifier(), np.arange(4 * 36, dtype=np.uint8).reshape(4, 6, 6, 1)
    turned = np.ascontiguousarray(pixels[:, ::-1])
    turned.flags.writeable = False
    given = [Images(one, classifier.mean, classifier.std, torch.device("cpu")) for one in (pixels[:, ::-1], turned)]
    assert torch.equal(*(torch.cat(list(one)) for one in given))
    ((_, labels),) = LabelledBatches(given[0], np.arange(4)[::-1])
    assert labels.tolist() == [3, 2, 1, 0]


def result(run, config, detector, shift=0):
    values = {"fpr95": 0.5 + shift, "detection_error": 0.2, "auroc": 0.8, "aupr_in": 0.7, "aupr_out": 0.6}
    return OodResult(detector, "tinyimagenet", 2, 3, values, run=run, config=config.as_dict())


def test_runs_are_summarised_next_to_the_papers_cells():
    config = RunConfig(dataset="cifar10", model="resnet110", method="baseline")
    results = [
        result(f"run{k}", config, *one) for k in range(2) for one in (("max-probability", 0.1 * k), ("energy", 0))
    ]
    cells = ood_cells(results)
    text = render(cells, "markdown")
    assert (
        "| cifar10 | resnet110 | baseline/max-probability | tinyimagenet | 2 | 55.00±7.07 (66.09±2.86) -3.9σ |"
        in text
    )
    assert "| cifar10 | resnet110 | baseline/energy | tinyimagenet | 2 | 50.00±0.00 | 20.00±0.00 |" in text
    assert "FPR-95%-TPR % | detection error % | AUROC % | AUPR-In % | AUPR-Out %" in text
    assert "cifar10,resnet110,baseline/energy,tinyimagenet,auroc,,,0.8,0,2,\n" in render(cells, "csv")
    short = RunConfig(dataset="cifar10", model="resnet110", method="baseline", epochs=3)
    (row, *_) = ood_cells([result("short", short, "odin")])
    assert (row.method, row.paper) == ("baseline-3epochs/odin", None)


def test_a_result_is_read_as_it_was_written(tmp_path):
    config = RunConfig(dataset="cifar10", model="resnet110", method="baseline")
    protocol = Protocol(num_tuning=40, seed=3, aupr="trapezoid")
    rng, facts = np.random.default_rng(0), {"run": "runs/one", "config": config.as_dict()}
    facts |= {"settings": {"eps": 0.1}, "notes": ["rank 3 of 4"]}
    written = OodResult.of_scores("odin", "svhn", rng.normal(1, 1, 30), rng.normal(size=20), protocol, **facts)
    (tmp_path / "o.json").write_text(json.dumps(results_json([written], protocol, {})))
    assert read_results(tmp_path / "o.json") == [replace(written, run="one")]
    assert (written.num_in, written.num_out) == (30, 20)


def test_stored_results_are_in_the_papers_table(tmp_path):
    config = RunConfig(dataset="cifar10", model="resnet110", method="baseline")
    results = [result("run", config, "odin"), result("run", config, "energy")]
    (tmp_path / "ood").mkdir()
    for name, used in (("tuned", Protocol()), ("untuned", Protocol(num_tuning=0))):
        (tmp_path / "ood" / f"{name}.json").write_text(json.dumps(results_json(results, used, {})))
    other = json.loads((tmp_path / "ood" / "tuned.json").read_text())
    other["runs"][0]["name"] = "kept/run"
    (tmp_path / "ood" / "again.json").write_text(json.dumps(other))  # by another path: still one run
    (supplement,) = [
        cell
        for cell in comparison_cells("stable-ood-perf", tmp_path)
        if cell.ours and (cell.method, cell.metric) == ("baseline/odin", "fpr95")
    ]
    assert supplement.ours == Summary(0.5, None, 1) and supplement.paper
    cells = comparison_cells("table-ood-perf", tmp_path)
    assert len(cells) == len(table_cells("table-ood-perf", [])) + 5  # the paper has no energy
    ours = {cell.method: cell for cell in cells if cell.ours and cell.metric == "fpr95"}
    assert set(ours) == {"baseline/odin", "baseline/energy"}
    assert ours["baseline/odin"].ours == Summary(0.5, None, 1) and ours["baseline/odin"].paper
    more = [*results, result("run1", replace(config, seed=1), "odin", 0.1)]
    (tmp_path / "ood" / "both.json").write_text(json.dumps(results_json(more, Protocol(), {})))
    (cell,) = [
        c for c in comparison_cells("table-ood-perf", tmp_path) if c.ours and c.ours.n == 2 and c.metric == "fpr95"
    ]
    assert cell.ours.mean == pytest.approx(0.55)  # the first run stands in two files and counts once
    for text in ("{}", "no JSON"):
        (tmp_path / "ood" / "other.json").write_text(text)
        with pytest.raises(ValueError, match="results of out-of-distribution detection in .*other.json, but"):
            comparison_cells("table-ood-perf", tmp_path)


def test_the_protocol_is_the_papers_by_default():
    usual = Protocol()
    assert usual == Protocol(num_tuning=1000, seed=0, neighbours=50, aupr="average", batch_size=500)
    assert usual.is_of_the_paper
    for other in (Protocol(num_tuning=0), Protocol(num_tuning=500), Protocol(aupr="trapezoid")):
        assert not other.is_of_the_paper


@pytest.mark.parametrize(
    ("num_tuning", "remedy"), [(3, "an even number"), (10, "a smaller"), (-2, "a smaller"), (12, "a smaller")]
)
def test_tuning_images_must_leave_some_for_the_test(num_tuning, remedy):
    with pytest.raises(ValueError, match=f"below the 10 in the set, but got {num_tuning}; set .* to {remedy}"):
        divide(10, num_tuning, 0)
    assert len(divide(10, 8, 0).test) == 2


def test_tuning_does_not_depend_on_the_size_of_batches():
    classifier, far = small_classifier(), {"far": pixels(80, 2, high=90)}
    wanted = Protocol(detectors=("odin", "mahalanobis"), num_tuning=40)
    small, large = (examine(classifier, far, replace(wanted, batch_size=size)) for size in (7, 500))
    for one, other in zip(small, large, strict=True):
        assert one.settings["eps"] == other.settings["eps"]
        assert one.inside == pytest.approx(other.inside, rel=1e-3, abs=1e-3)


def test_scores_are_neither_shown_nor_compared_with_a_result():
    """Ten thousand numbers in a message help nobody, and files do not store them."""
    result = OodResult.of_scores("odin", "far", np.arange(9.0), np.arange(5.0) - 7)
    assert "inside" not in repr(result) and "outside" not in repr(result)
    assert result == replace(result, inside=None, outside=None)
