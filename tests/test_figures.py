"""What can be seen in the figures: legends off the data, labels that do not run together, every mark."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from scipy.stats import mannwhitneyu

from confrank.analysis import analyse
from confrank.history import CorrectnessHistory
from confrank.metrics import sample_values
from confrank.ood.results import Group, OodResult
from confrank.report import active, detection_plots, epochs, events, plots

OWN_RUNS = [f"/data/some/project/runs/cifar100-densenet-bc-crl-softmax-seed{k}" for k in range(8)]
OWN_FILES = [f"{name}/predictions/test.safetensors" for name in OWN_RUNS]


@pytest.fixture
def figures(monkeypatch, tmp_path):
    """The figures that are saved, laid out, by the name of their file."""
    saved = {}

    def save(figure, path, dpi=150):
        if saved.get(path.stem) is not figure:  # else it is saved in a second format
            figure.draw_without_rendering()
        saved[path.stem] = figure

    for module in (active, detection_plots, epochs, events, plots):
        monkeypatch.setattr(module, "save_figure", save)
    return saved


def samples(seed=0, size=300):
    rng = np.random.default_rng(seed)
    confidence = rng.beta(4, 1, size)
    return sample_values(confidence=confidence, correct=rng.random(size) < confidence)


def detected(detectors, *names):
    """Results of detectors, given by their pairs of scores, on one out-set."""
    results = [OodResult.of_scores(name, "o", *pair) for name, pairs in detectors.items() for pair in pairs]
    return {Group(*names): results}


def log_of(*values):
    return [{"epoch": place, "test": {"nll": value, "aurc": value}} for place, value in enumerate(values, 1)]


def overlapping(texts, gap=0):
    """Pairs of visible labels that are not `gap` pixels apart."""
    boxes = {text: text.get_window_extent().padded(gap / 2) for text in texts if text.get_text()}
    return [(a.get_text(), b.get_text()) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]


def tick_labels(axis):
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]


@pytest.mark.parametrize(
    "names", [["a"], ["a", "b"], OWN_RUNS[:1], OWN_RUNS, OWN_FILES, list("abcdefgh"), ["W" * 200, "M" * 200]]
)
def test_legends_are_inside_the_picture_and_off_the_data(names, figures, tmp_path):
    runs = {name: samples(place) for place, name in enumerate(names)}
    plots.paper_figures([analyse(name, run) for name, run in runs.items()], tmp_path)
    plots.comparison_figure({name: [run] for name, run in runs.items()}, tmp_path / "comparison.png")
    epochs.epochs_figure(dict.fromkeys(names, log_of(1.0, 0.5)), tmp_path / "epochs.png")
    active.active_figure([10, 20], {name: [[0.5, 0.6]] for name in names}, tmp_path / "active.png")
    pairs = {name: [(run.confidence, run.confidence - 1)] for name, run in runs.items()}
    detection_plots.detection_figures(detected(pairs, "d", "m", "a", "o"), tmp_path)
    assert len(figures) == 8
    for figure in figures.values():
        (legend,) = figure.legends
        box, picture = legend.get_window_extent(), figure.bbox
        assert picture.x0 <= box.x0 < box.x1 <= picture.x1
        assert picture.y0 <= box.y0
        for axes in filter(Axes.get_visible, figure.axes):
            assert not box.overlaps(axes.get_tightbbox())
            assert axes.bbox.height / figure.dpi > 1.5


@pytest.mark.parametrize("names", [OWN_RUNS, OWN_FILES])
def test_names_that_differ_at_their_end_look_different(names, figures, tmp_path):
    plots.paper_figures([analyse(name, samples()) for name in names], tmp_path)
    epochs.epochs_figure(dict.fromkeys(names, log_of(1.0, 0.5)), tmp_path / "epochs.png")
    expected = {f"cifar100-densenet-bc-crl-softmax-seed{k}" for k in range(8)}
    for name in ("risk_coverage", "reliability", "epochs", "confidence"):
        labels = [text.get_text() for text in figures[name].legends[0].get_texts()]
        assert set(labels) - {"right", "wrong"} == expected


def test_powers_of_ten_are_written_as_such(figures, tmp_path):
    plots.comparison_figure({"$a_{x$": [samples()]}, tmp_path / "comparison.png")
    epochs.epochs_figure({"a": log_of(1.0, 0.5)}, tmp_path / "epochs.png")
    label = figures["comparison"].axes[0].lines[0].get_label()
    assert re.fullmatch(r"\\\$a_{x\\\$ \(AURC ×10³ [\d.]+\)", label)
    assert [axes.get_ylabel() for axes in figures["epochs"].axes] == ["NLL ×10", "AURC ×10³"]


def test_a_file_name_that_is_no_text_is_drawn(figures, tmp_path):
    plots.comparison_figure({"caf\udce9": [samples()]}, tmp_path / "comparison.png", title="\udce9")
    assert figures["comparison"].axes[0].lines[0].get_label().startswith("caf\\udce9 (AURC")
    assert figures["comparison"].get_suptitle() == "\\udce9"


def test_bins_without_errors_or_with_few_samples_are_seen(figures, tmp_path):
    confidence = np.r_[0.1, 0.2, np.full(98, 0.95)]
    run = sample_values(confidence=confidence, correct=confidence > 0.15)
    plots.paper_figures([analyse("a", run)], tmp_path)
    plots.comparison_figure({"a": [run]}, tmp_path / "comparison.png")
    for axes in (figures["reliability"].axes[0], figures["comparison"].axes[1]):
        (dots,) = axes.collections
        assert dots.get_offsets()[:, 1].tolist() == [0, 1, 1]
        assert not dots.get_clip_on()
        one, other, most = dots.get_sizes()
        assert one == other < most / 4


@pytest.mark.parametrize("scale", [1, 10])
def test_an_empty_reliability_diagram_says_why(figures, tmp_path, scale):
    """A score above 1 is no probability, so there is nothing to draw."""
    run = sample_values(confidence=scale * np.linspace(0.1, 1, 50), correct=np.arange(50) % 3 > 0)
    plots.paper_figures([analyse("a", run)], tmp_path)
    plots.comparison_figure({"a": [run]}, tmp_path / "comparison.png")
    for axes in (figures["reliability"].axes[0], figures["comparison"].axes[1]):
        said = [text.get_text() for text in axes.texts]
        assert said == ([] if scale == 1 else ["no probabilities in this file"])


def test_a_curve_without_errors_is_off_the_axis(figures, tmp_path):
    run = sample_values(confidence=np.linspace(0.5, 1, 50), correct=np.ones(50, dtype=bool))
    plots.paper_figures([analyse("a", run)], tmp_path)
    plots.comparison_figure({"a": [run]}, tmp_path / "comparison.png")
    for name in ("risk_coverage", "comparison"):
        axes = figures[name].axes[0]
        points = axes.lines[0].get_transform().transform([(0.5, 0.0)])
        assert points[0, 1] - axes.bbox.y0 > 1.5 * figures[name].dpi / 72


def test_scores_of_many_digits_keep_their_labels_apart(figures, tmp_path):
    rng = np.random.default_rng(0)
    places = {"odin": (0.1012, 1.6e-4), "tiny": (0.1, 1e-7), "mahalanobis": (-280_000, 70_000), "energy": (12, 2)}
    detectors = {
        name: [(rng.normal(centre, scale, 500), rng.normal(centre - scale, scale, 500))]
        for name, (centre, scale) in places.items()
    }
    detection_plots.detection_figures(detected(detectors, "d", "m", "a", "o"), tmp_path)
    for axes in figures["scores-d-m-a-o"].axes:
        labels = tick_labels(axes.xaxis)
        assert len(labels) >= 2
        assert overlapping(labels, gap=6) == []


def test_a_long_title_stays_inside(figures, tmp_path):
    pairs = {"odin": [(np.arange(9), np.arange(5))]}
    detection_plots.detection_figures(detected(pairs, "cifar100", "densenet-bc", "crl-softmax", "x/" * 50), tmp_path)
    for figure in figures.values():
        box = figure._suptitle.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("factor", [1, 1.1, 3, 5, 7.9, 8.1, 100, 1e4])
def test_epochs_have_ticks_whatever_the_range(factor, figures, tmp_path):
    epochs.epochs_figure({"a": log_of(*np.geomspace(0.07 * factor, 0.07, 5))}, tmp_path / "epochs.png")
    axes = figures["epochs"].axes[1]
    labels = tick_labels(axes.yaxis)
    assert len(labels) >= 3
    assert overlapping(labels) == []
    assert all(line.get_visible() for line in axes.get_ygridlines())
    assert axes.get_yscale() == ("log" if factor > 4 else "linear")


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.5, 0.0), (0.4,)])
def test_epochs_without_errors_or_line(values, figures, tmp_path):
    epochs.epochs_figure({"a": log_of(*values)}, tmp_path / "epochs.png")
    for axes in figures["epochs"].axes:
        assert axes.lines[0].get_marker() == "."
        assert [label.get_text() for label in tick_labels(axes.xaxis)] == [str(k + 1) for k in range(len(values))]


def test_samples_that_were_never_examined_are_no_events(figures, tmp_path):
    history = CorrectnessHistory(1300)
    for answers in (torch.arange(50) >= 10, torch.arange(50) >= 25):
        history.update(torch.arange(40, 90), answers)
    images, labels = torch.zeros(1300, 4, 4, 1, dtype=torch.uint8), torch.zeros(1300, dtype=torch.int64)
    shown = events.Events(history.examined, history.correct, images, labels, ["a"])
    easiest, hardest = shown.extremes(12)
    assert hardest.tolist() == list(range(40, 52))
    assert easiest.tolist() == list(range(78, 90))
    events.events_figure(shown, tmp_path / "events.png")
    axes = figures["events"].axes[0]
    assert axes.get_title() == "50 samples, mean 0.650\n(1,250 never examined, left out)"
    assert sum(bar.get_height() for bar in axes.patches) == 50
    box = axes.title.get_window_extent()
    assert 0 <= box.x0 < box.x1 < figures["events"].axes[1].bbox.x0
    nothing = events.Events(np.zeros(3), np.zeros(3), images[:3], labels[:3], ["a"])
    with pytest.raises(ValueError, match="expected examined samples, but none of 3 was examined; train first"):
        events.events_figure(nothing, tmp_path / "events.png")


def test_colour_numbers_figures_may_be_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = events.Events(np.full(6, 6), np.arange(6), np.zeros((6, 2, 2, 1), dtype=np.uint8), [0] * 6, ["a"])
    plots.comparison_figure({"a": [samples()]}, "new/comparison.png")
    events.events_figure(shown, "new/events.png", count=3)
    epochs.epochs_figure({"a": log_of(1.0, 0.5)}, "new/epochs.png")
    paths = plots.paper_figures([analyse("a", samples())], "new")
    pairs = {"odin": [(np.arange(9), np.arange(5))]}
    paths += detection_plots.detection_figures(detected(pairs, "digits", "small", "baseline", "x"), "new")
    assert {*paths} | {Path(f"new/{name}.png") for name in ("comparison", "events", "epochs")} == {
        *Path("new").iterdir()
    }


def test_captions_of_images_fit(figures, tmp_path):
    names = ["aquarium_fish", "sweet_pepper", "pickup_truck", "a_class_with_a_long_name"]
    labels = np.arange(60) % len(names)
    shown = events.Events(np.full(60, 60), np.arange(60), np.zeros((60, 8, 8, 3), dtype=np.uint8), labels, names)
    events.events_figure(shown, tmp_path / "events.png")
    captions = [axes.title for axes in figures["events"].axes[1:]]
    assert {text.get_text() for text in captions} == {*names[:3], "a_class…g_name"}
    assert len(captions) == 48
    assert overlapping(captions) == []


def test_the_legend_has_the_mean_auroc_of_the_runs(figures, tmp_path):
    rng = np.random.default_rng(0)
    runs = [(rng.normal(shift, 1, 400), rng.normal(0, 1, 300)) for shift in (0.5, 2.0)]
    detection_plots.detection_figures(detected({"odin": runs}, "d", "m", "a", "o"), tmp_path)
    areas = [mannwhitneyu(inside, outside).statistic / (400 * 300) for inside, outside in runs]
    (label,) = [text.get_text() for text in figures["roc-d-m-a-o"].legends[0].get_texts()]
    assert label == f"odin (AUROC {100 * np.mean(areas):.1f}%)"
