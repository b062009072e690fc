"""Figures of what happened in training, from run folders or from result files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confrank.config import RECORDED, RunConfig, tag, usual_settings
from confrank.data import check_digests, hold_out, load_of
from confrank.errors import did_you_mean
from confrank.metrics import Samples
from confrank.report.epochs import epochs_figure
from confrank.report.events import Events, events_figure
from confrank.report.names import short_names
from confrank.report.plots import comparison_figure
from confrank.study.results import Result, read_run, samples_in
from confrank.study.tables import size_of

FIGURES = ("events", "epochs", "curves")


def check_figure(what: str) -> None:
    """Raise unless this is the name of a figure."""
    if what in FIGURES:
        return
    hint = f"; confrank evaluate {what} --report page.html writes a page" if Path(what).exists() else ""
    raise ValueError(
        f"expected a figure among {', '.join(FIGURES)}, but got {what!r}{hint or did_you_mean(what, FIGURES)}"
    )


def draw(what: str, paths: Sequence[Path], picture: Path, root: Path | None = None) -> None:
    """Draw a figure of runs: histogram of `events`, metrics over `epochs`, or risk-coverage `curves`."""
    check_figure(what)
    runs = [read_run(path) for path in paths]
    labels = labels_of([result for result, _ in runs])
    if what == "epochs":
        logs = {str(path): result.log for path, (result, _) in zip(paths, runs, strict=True)}
        epochs_figure(logs, picture, labels, _common(runs))
    elif what == "curves":
        together: dict[str, list[Samples]] = {}
        for label, (_, arrays) in zip(labels, runs, strict=True):
            together.setdefault(label, []).append(samples_in(arrays))
        comparison_figure(together, picture, _common(runs))
    else:
        if len(runs) > 1:
            raise ValueError(f"expected one run for the events figure, but got {len(runs)}")
        events_figure(_events(*runs[0], root), picture, runs[0][0].name)


def labels_of(results: Sequence[Result]) -> list[str]:
    """Data set and network where they differ, the method, and what else differs, as in the names of runs."""
    # Older results lack newer settings, which then have their defaults.
    settings = [{**RunConfig().as_dict(), **result.config} for result in results]
    ignored = ("seed", "method", "members", "member_epochs", *RECORDED)
    known = [key for key in dict.fromkeys(key for each in settings for key in each) if key not in ignored]
    differing = [key for key in known if len({str(each.get(key)) for each in settings}) > 1]
    paths = [*dict.fromkeys(str(each["dataset"]) for each in settings)]
    datasets = dict(zip(paths, short_names(paths), strict=True))
    return [_label(each, datasets[str(each["dataset"])], differing) for each in settings]


def _label(config: Mapping[str, Any], dataset: str, differing: Sequence[str]) -> str:
    """What differs from other runs; settings that are usual for the recipe are left out."""
    usual = {**usual_settings(config), "recipe": "paper"}
    plain = {"dataset": dataset, "model": config["model"]}
    tags = [
        str(config[key]) if key in ("recipe", "optimizer") else tag(key, config[key])[1:]
        for key in differing
        if key not in plain and config.get(key) != usual.get(key)
    ]
    return " ".join([*(plain[key] for key in plain if key in differing), config["method"] + size_of(config), *tags])


def _common(runs: Sequence[tuple[Result, dict[str, Any]]]) -> str:
    """The data set and network that all runs share, as a title."""
    settings = [{result.config[key] for result, _ in runs} for key in ("dataset", "model")]
    return ", ".join(str(values.pop()) for values in settings if len(values) == 1)


def _events(result: Result, arrays: dict[str, Any], root: Path | None) -> Events:
    if "history_correct" not in arrays:
        raise ValueError(f"expected a run with a history of events, but {result.name} averages other runs")
    config = result.config
    data = load_of(result.name, config["dataset"], root, image_size=config.get("image_size"))
    if data.is_text:
        raise ValueError(f"expected a run on images, whose events can be shown, but {config['dataset']} holds texts")
    # The first results have no index: their runs used the complete training split.
    index = arrays.get("history_index")
    used, _ = hold_out(data, config.get("holdout", 0.0), config["seed"])
    check_digests(Path(result.name), result.environment, data=used.digest())
    if index is not None and index.max() >= len(data.train):  # the first formats have no digest
        raise ValueError(f"expected the data that {result.name} was trained on, but {config['dataset']} holds others")
    split = data.train if index is None else data.train.select(index)
    return Events(arrays["history_examined"], arrays["history_correct"], split.images, split.labels, data.class_names)
