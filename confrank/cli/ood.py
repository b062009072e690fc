"""How well a trained network's detectors tell foreign images."""

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import Command, add_device, add_root, at_least, device_of, listed, root_of, terminal_width
from confrank.cli.paths import folder_path, json_path, keep_inputs, keep_out_of_data, page_path

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse import ArgumentParser, Namespace
    from numpy.typing import NDArray

    from confrank.ood import Protocol
    from confrank.report.detection import Scored
    from confrank.study.ood import ExaminedRun
    from confrank.trained import TrainedOn


def _ood_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "runs", type=str, nargs="+", help="run folders, or .safetensors weights (with --model and --dataset if bare)"
    )
    parser.add_argument(
        "--out", type=str, nargs="+", required=True, help="out-sets: data sets by name, folders of pictures, .npz"
    )
    parser.add_argument(
        "--tuning",
        type=Literal["paper", "none"],
        default="paper",
        help="paper: choose settings on images of each out-set; none: use no foreign image before the test",
    )
    parser.add_argument(
        "--tuning-images", type=int, default=1000, help="images of each set to tune on, left out of the test"
    )
    parser.add_argument(
        "--detectors", type=str, nargs="+", default=None, help="only these, e.g. energy,knn (default: all)"
    )
    parser.add_argument("--neighbours", type=int, default=50, help="k of the nearest-neighbour detector")
    parser.add_argument(
        "--layers", type=str, nargs="+", default=None, help="layers to look at in one's own network, e.g. stem,stage1"
    )
    parser.add_argument("--aupr", type=Literal["average", "trapezoid"], default="average", help="which AUPR")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of tuning images")
    parser.add_argument(
        "--image-size", type=int | None, default=None, help="cut pictures to their central square, scaled to this"
    )
    parser.add_argument("--batch-size", type=int, default=500, help="images a forward pass")
    for name, what in (("model", "network"), ("dataset", "data set"), ("method", "method")):
        parser.add_argument(f"--{name}", type=str | None, default=None, help=f"{what} of a bare weights file")
    parser.add_argument(
        "--format", type=Literal["terminal", "markdown", "latex", "csv"], default="terminal", help="of the table"
    )
    parser.add_argument("--json", type=str | None, default=None, help="write everything to this file")
    parser.add_argument(
        "--report", type=str | None, default=None, help="write a page of curves and histograms (.html)"
    )
    parser.add_argument("--figures", type=str | None, default=None, help="draw ROC curves and histograms here")
    add_root(parser)
    add_device(parser)


def _ood(arguments: "Namespace") -> None:
    from confrank.atomic import is_stream, write_atomically
    from confrank.data import load_images
    from confrank.environment import environment
    from confrank.report.detection_page import detection_page
    from confrank.report.detection_plots import detection_figures
    from confrank.report.fonts import font_notes
    from confrank.report.paper_table import render
    from confrank.study.ood import ExaminedRun, found_in, ood_cells, ood_json
    from confrank.training.loop import EAGER

    # A table to be piped somewhere stands alone on the output.
    show = partial(print, file=sys.stdout if arguments.format == "terminal" else sys.stderr, flush=True)
    # Whatever can be wrong should be found before the long part.
    report, table, figures = page_path(arguments.report), json_path(arguments.json), folder_path(arguments.figures)
    keep_inputs([*arguments.runs, *arguments.out], report, table)
    keep_out_of_data([*arguments.runs, *arguments.out], figures)
    protocol = _protocol(arguments)
    _check_names(arguments)
    root, size = root_of(arguments), arguments.image_size
    out_sets = {out: load_images(out, root, image_size=size) for out in arguments.out}
    runs: list[ExaminedRun] = []

    def write(path: Path, found: list[ExaminedRun]) -> None:
        where = environment(device_of(arguments.device), EAGER)
        write_atomically(path, json.dumps(ood_json(found, protocol, where), indent=1))

    def keep(current: ExaminedRun) -> None:
        """Write what is there so far: whoever stops the command has it. A stream gets the whole at the end."""
        if table and not is_stream(table):
            write(table, [*runs, current])

    for name in arguments.runs:
        runs += [_examined(arguments, name, out_sets, protocol, show, keep)]
    cells = ood_cells(found_in(runs, protocol))
    notes = _notes(runs, protocol, beside_paper=any(cell.paper for cell in cells))
    # Files first: whoever reads the output may stop reading after a few lines.
    written, scored = [], _scored(runs)
    if table and is_stream(table):
        write(table, runs)
    if figures:
        paths = detection_figures(scored, figures)
        written += [f"figures: {len(paths)} files in {figures}", *font_notes(item.title for item in scored)]
    if report:
        write_atomically(report, detection_page(scored, cells, protocol.describe(), notes, protocol.tuned))
        written.append(f"report: {report}")
    print(render(cells, arguments.format, width=terminal_width()), end="")
    for line in (protocol.describe(), *notes, *written):
        show(line)


def _protocol(arguments: "Namespace") -> "Protocol":
    from confrank.ood import DETECTORS, Protocol

    at_least(1, arguments, "tuning_images", "batch_size", "neighbours")
    at_least(0, arguments, "seed")
    return Protocol(
        detectors=listed(arguments.detectors) or DETECTORS,
        num_tuning=arguments.tuning_images if arguments.tuning == "paper" else 0,
        seed=arguments.seed,
        neighbours=arguments.neighbours,
        aupr=arguments.aupr,
        batch_size=arguments.batch_size,
    )


def _check_names(arguments: "Namespace") -> None:
    """Raise if a run is not there or is none, or a run or an out-set is named twice."""
    from confrank.config import RunConfig
    from confrank.data import changed_settings, same_data
    from confrank.run_folder import load_config
    from confrank.weights import config_if_readable

    if any(same_data(one, other) for one, other in combinations(arguments.out, 2)):
        raise ValueError(f"expected each out-set once, but got {' '.join(arguments.out)}")
    configs: dict[str, RunConfig | None] = {}
    for run in map(Path, arguments.runs):
        if not run.exists():
            raise ValueError(f"expected a run folder or a .safetensors file, but {run} does not exist")
        configs[str(run)] = load_config(run) if run.is_dir() else config_if_readable(run)
    if len({Path(run).resolve() for run in arguments.runs}) < len(arguments.runs):
        raise ValueError(f"expected each run once, but got {' '.join(arguments.runs)}")
    for (one, config), (other, another) in combinations(configs.items(), 2):
        if config and another and not changed_settings(config.as_dict(), another.as_dict()):
            raise ValueError(f"expected each run once, but {one} and {other} are of the same settings and seed")


def _examined(
    arguments: "Namespace",
    name: str,
    out_sets: "dict[str, NDArray[np.uint8]]",
    protocol: "Protocol",
    show: Callable[[str], None],
    keep: "Callable[[ExaminedRun], None]",
) -> "ExaminedRun":
    """One network with every detector on every out-set; `keep` gets what is there after each."""
    from confrank.data import same_data
    from confrank.ood import Classifier, Outcome, examine
    from confrank.study.ood import ExaminedRun

    trained = _trained(arguments, name)
    own, root = trained.config.dataset, root_of(arguments)
    if any(same_data(own, out) or _is_part(out, own, root) for out in arguments.out):
        raise ValueError(f"expected out-sets other than the network's own data, but got {own}")
    classifier = Classifier(
        trained.network,
        trained.data.train,
        trained.data.test.images,
        trained.provenance.mean,
        trained.provenance.std,
        listed(arguments.layers),
    )
    show(f"{name}: {len(classifier.train):,} training and {len(classifier.test):,} test images")
    outcomes: list[Outcome] = []

    def add(outcome: Outcome) -> None:
        outcomes.append(outcome)
        keep(ExaminedRun(name, trained.config, outcomes))

    examine(classifier, out_sets, protocol, lambda text: show(f"{name}: {text}"), add)
    return ExaminedRun(name, trained.config, outcomes)


def _is_part(out: str, dataset: str, root: Path | None) -> bool:
    """Whether an out-set is one's own data set, or among its training or test pictures."""
    from confrank.data import own_place

    data, place = own_place(dataset, root), Path(out).resolve()
    if data is None:
        return False
    parts = {(data / name).resolve() for name in ("train", "test")}
    return place == data.resolve() or not parts.isdisjoint((place, *place.parents))


def _trained(arguments: "Namespace", name: str) -> "TrainedOn":
    from confrank.config import RunConfig
    from confrank.trained import load_run, load_weights_file

    device, root = device_of(arguments.device), root_of(arguments)
    if (arguments.model, arguments.dataset, arguments.method) == (None, None, None):
        return load_run(Path(name), root=root, device=device)
    if arguments.model is None or arguments.dataset is None or not name.endswith(".safetensors"):
        raise ValueError(f"expected --model and --dataset together with a .safetensors file, but got {name}")
    config = RunConfig(dataset=arguments.dataset, model=arguments.model, method=arguments.method or "baseline")
    return load_weights_file(Path(name), config, root=root, device=device)


def _notes(runs: "list[ExaminedRun]", protocol: "Protocol", *, beside_paper: bool) -> list[str]:
    tuned = "" if protocol.num_tuning else "; the paper's ODIN and Mahalanobis are tuned on the out-set, ours not"
    legend = [f"ours (paper's mean±std of five runs), gap in the paper's std{tuned}"] if beside_paper else []
    return [*legend, *{f"{run.name}: {note}": None for run in runs for one in run.outcomes for note in one.notes}]


def _scored(runs: "list[ExaminedRun]") -> "list[Scored]":
    """Scores by data set, network, method and out-set; of each detector a pair for each run."""
    from confrank.report.detection import Scored
    from confrank.study.tables import label_of

    found: dict[tuple[str, str, str, str], dict[str, list[tuple[Any, Any]]]] = {}
    for run in runs:
        for one in run.outcomes:
            place = run.config.dataset, run.config.model, label_of(run.config.as_dict()), one.out_set
            found.setdefault(place, {}).setdefault(one.detector, []).append((one.inside, one.outside))
    return [Scored(*place, detectors) for place, detectors in found.items()]


OOD = Command(
    "tell foreign images: ODIN, Mahalanobis and the cheap detectors, beside the paper's numbers",
    "confrank ood runs/cifar10-resnet110-crl-softmax-seed0 --out tinyimagenet svhn --root data",
    _ood_arguments,
    _ood,
)
