"""Draw what happened in training."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import Command, add_data_flags, picture_path

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from confrank.report.events import Events


def _report_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "what",
        type=Literal["events", "epochs"],
        help="events: histogram of correct events, easiest and hardest images of a run;"
        " epochs: test AURC and NLL over the epochs of runs trained with --test-every",
    )
    parser.add_argument("runs", type=str, nargs="+", help="run folders")
    add_data_flags(parser)
    parser.add_argument("--out", type=str | None, default=None, help="picture to write (default: into the first run)")


def _report(arguments: "Namespace") -> None:
    from confrank.report.epochs import epochs_figure
    from confrank.report.events import events_figure

    runs = [Path(run) for run in arguments.runs]
    picture = picture_path(arguments.out or str(runs[0] / f"{arguments.what}.png"))
    if arguments.what == "epochs":
        epochs_figure({run.name: _epoch_log(run) for run in runs}, picture)
    else:
        if len(runs) > 1:
            raise ValueError(f"expected one run for the events figure, but got {len(runs)}")
        events_figure(_events(runs[0], arguments.root), picture, runs[0].name)
    print(f"figure: {picture}")


def _epoch_log(run: Path) -> list[dict[str, Any]]:

    from confrank.config import RunFolder

    if not RunFolder(run).log.exists():
        raise ValueError(f"expected a run folder with a log.jsonl, but {run} has none")
    return [json.loads(line) for line in RunFolder(run).log.read_text().splitlines()]


def _events(run: Path, root: str | None) -> "Events":
    import numpy as np

    from confrank.config import RunFolder, load_config
    from confrank.data import load
    from confrank.report.events import Events

    if not RunFolder(run).history.exists():
        raise ValueError(f"expected a finished run with a history.npz, but {run} has none")
    config = load_config(run)
    data = load(config.dataset, None if root is None else Path(root), image_size=config.image_size)
    with np.load(RunFolder(run).history) as counts:
        split = data.train.select(counts["index"])
        return Events(counts["examined"], counts["correct"], split.images, split.labels, data.class_names)


REPORT = Command(
    "draw what happened in training: events per sample, metrics over epochs",
    "confrank report events runs/digits-small-crl-softmax-seed1",
    _report_arguments,
    _report,
)
