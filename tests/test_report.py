import json
import re
import statistics
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from confrank import compare, evaluate
from confrank.analysis import Repeats, histogram_of, repeats_of
from confrank.config import RunConfig
from confrank.metrics import Interval, Samples, reliability_bins, sample_values
from confrank.recipes import settings
from confrank.report import epochs, plots
from confrank.report.colours import COLOURS
from confrank.report.events import Events, events_figure
from confrank.report.repeats import repeats_verdict
from confrank.report.scales import SHOWN, shown
from confrank.report.table import NumbersTable, difference_table, evaluation_table, repeats_table, seeds_table
from confrank.study.figures import labels_of as report_labels
from confrank.study.results import Result, export_run


def text_of(table, width=160):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text()


def evaluation(shift):
    rng = np.random.default_rng(0)
    confidence = rng.random(200)
    return evaluate(confidence=confidence, correct=rng.random(200) < confidence + shift)


def test_every_metric_is_shown_scaled():
    result = evaluation(0.1)
    assert set(SHOWN) == set(result.metrics)
    text = text_of(evaluation_table({"mine": result}))
    assert f"{1000 * result.metrics['aurc']:.3f}" in text
    assert shown("nll", 0.25) == "2.50"


def cells_of(text):
    """The cells of each line of printed tables."""
    lines = [line[1:-1].replace("┃", "│") for line in text.splitlines() if line[:1] in ("│", "┃")]
    return [[cell.strip() for cell in line.split("│")] for line in lines]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("num_models", [1, 2, 6])
def test_numbers_are_whole_at_any_width(width, num_models):
    """Every number of every model is in one cell of one line, and each line fits the terminal."""
    runs = {f"a/model number {number}.csv": evaluation(number / 20) for number in range(num_models)}
    intervals = {name: dict.fromkeys(SHOWN, Interval(0.123456, 0.654321, "gamma")) for name in runs}
    text = text_of(evaluation_table(runs, intervals), width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    for key, how in SHOWN.items():
        behind = f"({0.123456 * how.factor:.2f}, {0.654321 * how.factor:.2f})"
        rows = [row for row in cells_of(text) if row[0] == how.heading]
        values = [
            "-" if run.metrics[key] is None else f"{run.metrics[key] * how.factor:.3f}" for run in runs.values()
        ]
        assert [cell for row in rows for cell in row if "(" in cell] == [f"{value} {behind}" for value in values]
    assert text.count("lower is better") == 1 and text.count("meaning") == 1


def test_a_wide_table_repeats_its_names():
    table = NumbersTable(["site", "one", "two"], [["a long name of a site", "123456", "1,234,567"]], "by site", "end")
    assert "continued" not in text_of(table, 60)
    parts = text_of(table, 34).split("by site, continued")
    assert len(parts) == 2 and "end" not in parts[0] and "end" in parts[1]
    for part, number in zip(parts, ("123456", "1,234,567"), strict=True):
        names, numbers = zip(*cells_of(part), strict=True)
        assert " ".join(names[1:]) == "a long name of a site" and numbers[1] == number


def test_the_table_of_seeds_shows_mean_spread_and_paired_difference():
    first, second = [evaluation(0.0), evaluation(0.1)], [evaluation(0.05), evaluation(0.2)]
    text = text_of(repeats_table(Repeats({"a": first, "b": second}, {}), "title"))
    values = [[100 * run.metrics["acc"] for run in runs] for runs in (first, second)]
    gaps = np.subtract(values[1], values[0])
    assert f"{np.mean(values[0]):.2f} ± {np.std(values[0], ddof=1):.2f}" in text
    assert f"{gaps.mean():+.2f} ± {gaps.std(ddof=1) / np.sqrt(2):.2f}" in text
    assert "NLL" in text and re.search(r"NLL \S+ ↓ +│ +- +│ +- +│ +- ", text)


def drawn(monkeypatch):
    """The figures that are saved, instead of files."""
    figures = []
    for module in (plots, epochs):
        monkeypatch.setattr(module, "save_figure", lambda figure, path, dpi=150: figures.append(figure))
    return figures


def test_every_line_is_drawn(monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    rng = np.random.default_rng(0)
    runs = {f"run {k}": [sample_values(confidence=rng.random(50), correct=rng.random(50) < 0.7)] for k in range(10)}
    plots.comparison_figure(runs, tmp_path / "a.png")
    log = [{"epoch": 1, "test": {"nll": 1.0, "aurc": 0.5}}]
    epochs.epochs_figure(dict.fromkeys(runs, log), tmp_path / "b.png")
    for figure in figures:
        assert sum(line.get_label().startswith("run") for line in figure.axes[0].lines) == 10


def test_reliability_is_that_of_the_probabilities(monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    probability = np.linspace(0.05, 0.95, 300)
    samples = Samples(probability**3, np.arange(300) % 2 == 0, probability=probability)
    plots.comparison_figure({"margin": [samples]}, tmp_path / "a.png")
    (line,) = [line for line in figures[0].axes[1].lines if line.get_label() == "margin"]
    bins = reliability_bins(probability, samples.correct)
    assert line.get_xdata().tolist() == bins.confidence[bins.count > 0].tolist()


def kept_run(folder, method, seed, **settings):
    config = {"dataset": "cifar10", "model": "vgg16", "method": method, "seed": seed, **settings}
    log = [{"epoch": 1, "test": {"nll": 1.0, "aurc": 0.5}}]
    content = {"config": config, "environment": {}, "log": log, "metrics": {}, "undefined": {}}
    (folder / f"{method}-{seed}.json").write_text(json.dumps(content))
    np.savez(folder / f"{method}-{seed}.npz", confidence=np.linspace(0, 1, 9), correct=np.arange(9) % 2 == 0)
    return folder / f"{method}-{seed}.json"


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        ("baseline", [{"lr": 0.1}, {"lr": 0.01}], ["baseline", "baseline lr0.01"]),
        ("baseline", [{}, {"flip": False}, {"flip": None}], ["baseline", "baseline flipoff"]),
        ("ensemble-baseline", [{"members": ["a", "b", "c"]}], ["ensemble-baseline of 3"]),
    ],
)
def test_curves_of_different_settings_are_not_averaged(method, settings, expected, tmp_path, monkeypatch, command):
    figures = drawn(monkeypatch)
    runs = [kept_run(tmp_path, method, seed, **changed) for seed, changed in enumerate(settings)]
    command("report", "curves", *runs, "--out", tmp_path / "c.png")
    labels = [text.get_text().partition(" (")[0] for text in figures[0].legends[0].get_texts()]
    assert labels == [*expected, "calibrated"]


@pytest.mark.parametrize("what", ["curves", "epochs"])
def test_a_method_has_one_colour_and_one_entry(what, tmp_path, monkeypatch, command):
    figures = drawn(monkeypatch)
    settings = ("baseline", 0), ("baseline", 1), ("crl-softmax", 0), ("aes-10", 0)
    baseline, again, crl, other = (kept_run(tmp_path, *setting) for setting in settings)
    for runs in ([baseline, again, again, crl], [other, crl, again, baseline]):
        command("report", what, *runs, "--out", tmp_path / "c.png")
    for figure, others in zip(figures, ([], ["aes-10"]), strict=True):
        labels = [text.get_text().partition(" (")[0] for text in figure.legends[0].get_texts()]
        assert sorted(set(labels) - {"calibrated"}) == sorted(["baseline", "crl-softmax", *others])
        assert len(labels) == len({*labels})
        colours = {line.get_label().partition(" (")[0]: line.get_color() for line in figure.axes[0].lines}
        assert (colours["baseline"], colours["crl-softmax"]) == COLOURS[:2]
        assert {line.get_color() for line in figure.axes[0].lines} == {
            colours[name] for name in colours if name != "_"
        }
        assert figure._suptitle.get_text() == "cifar10, vgg16"


def test_names_are_text_and_no_markup():
    evaluation = evaluate(confidence=[0.5, 0.9], correct=[True, False])
    assert "preds[old].csv" in text_of(evaluation_table({"preds[old].csv": evaluation}))
    models = compare(*[{"confidence": np.arange(9), "correct": np.arange(9) > 3}] * 2, names=["x[/b].csv", "y[b]"])
    assert all(name in text_of(difference_table(models.models)) for name in ("x[/b].csv", "y[b]"))


def test_easiest_and_hardest(tmp_path):
    correct = np.array([5, 0, 3, 10, 1, 9])
    images = np.zeros((6, 4, 4, 3), dtype=np.uint8)
    events = Events(np.full(6, 10), correct, images, np.zeros(6, dtype=np.int64), ["$cat"])
    easiest, hardest = events.extremes(2)
    assert set(easiest) == {3, 5}
    assert set(hardest) == {1, 4}
    events_figure(events, tmp_path / "events.svg", count=4)
    assert "<svg" in (tmp_path / "events.svg").read_text()


def test_report_commands(tmp_path, capsys, command):
    command("train", "--epochs", 2, "--test-every", 1, "--device", "cpu", "--out", tmp_path / "run")
    for what in ("events", "epochs", "curves"):
        command("report", what, tmp_path / "run", "--out", tmp_path / f"{what}.png")
        assert (tmp_path / f"{what}.png").exists()
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert log[-1]["test"] == metrics
    kept = export_run(tmp_path / "run", tmp_path / "results")
    for what in ("events", "epochs", "curves"):
        command("report", what, kept, "--out", tmp_path / f"kept-{what}.png")
        assert (tmp_path / f"kept-{what}.png").read_bytes() == (tmp_path / f"{what}.png").read_bytes()
    capsys.readouterr()
    command("report", "events", tmp_path, code=2)
    assert "expected a run folder with a config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "scores",
    [
        np.full(4, 3.7, dtype=np.float32),
        np.array([5, np.nextafter(np.float32(5), np.float32(6))] * 2, dtype=np.float32),
        np.array([-3e38, 3e38, 0, 1], dtype=np.float32),
        np.array([-1.7e308, 1.7e308, 0, 1]),
    ],
)
def test_scores_of_any_width_fall_into_bins(scores):
    found = histogram_of(Samples(scores, np.array([True, False, True, False])))
    assert (found.right.sum(), found.wrong.sum()) == (2, 2)
    assert (np.diff(found.edges) > 0).all()
    assert found.edges[0] == max(float(scores.min()), -1e300)


def test_seeds_have_a_column_each_and_their_mean():
    draw = np.random.default_rng(0)
    runs = [evaluate(confidence=draw.random(50), correct=draw.random(50) < 0.7) for _ in range(3)]
    text = text_of(seeds_table({f"seed {number}": run for number, run in enumerate(runs)}, "test split"))
    accuracies = [100 * run.metrics["acc"] for run in runs]
    row = next(line for line in text.splitlines() if "accuracy %" in line)
    assert [f"{value:.3f}" in row for value in accuracies] == [True] * 3
    assert f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f}" in row
    assert re.search(r"NLL ×10 +│ +- │ +- │ +- │ +- │", text)
    assert "seed 2" in text and "meaning" not in text


def test_runs_are_labelled_by_what_differs():
    def labels(*configs):
        return report_labels([Result("run", config.as_dict(), {}, [], {}, {}) for config in configs])

    plain = RunConfig(method="baseline", epochs=5)
    assert labels(plain, replace(plain, seed=1), replace(plain, method="crl-softmax")) == [
        "baseline", "baseline", "crl-softmax",
    ]  # fmt: skip
    weighted = replace(plain, method="crl-softmax", weight=0.5)
    best = settings("best", dataset="digits", model="small", epochs=5)
    assert labels(plain, weighted, best) == ["baseline", "crl-softmax weight0.5", "baseline best"]
    first, second = (replace(plain, dataset=f"{folder}/photos") for folder in ("old", "new"))
    assert labels(first, second, replace(first, model="mlp", optimizer="adamw", lr_drops=(0.5,))) == [
        "old small baseline",
        "new small baseline",
        "old mlp baseline lrdrops0.5 adamw",
    ]


def test_the_verdict_over_seeds_makes_two_claims_of_each_pair():
    """Of three methods, b has fewer errors and c better scores; the scores of a and b are noise."""
    runs = {"a": [], "b": [], "c": []}
    for seed in range(6):
        random = np.random.default_rng(seed)
        for name, accuracy, skill in (("a", 0.7, 0), ("b", 0.9, 0), ("c", 0.7, 2)):
            right = random.random(2000) < accuracy
            runs[name].append(Samples(random.normal(size=2000) + skill * right, right))
    said = [sentence.removeprefix("Over 6 seeds, ").split(":")[0] for sentence in repeats_verdict(repeats_of(runs))]
    assert said[0] == "b has fewer errors among the accepted than a"
    assert said[2] == "c has fewer errors among the accepted than a"
    assert said[1::2] == [
        "no clear difference in AUROC % between b and a",
        "c separates right from wrong better than a",
        "c separates right from wrong better than b",
    ]
