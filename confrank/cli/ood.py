"""How well detectors separate out-of-distribution images from those of a trained network."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confrank.cli.command import (
    Arguments,
    Command,
    Format,
    Parser,
    add_device,
    add_option,
    add_root,
    at_least,
    device_of,
    listed,
    root_of,
)
from confrank.cli.names import with_names
from confrank.cli.terminal import plain, terminal_width
from confrank.errors import about
from confrank.runs.outputs import folder_path, json_path, keep_inputs, keep_out_of_data

if TYPE_CHECKING:
    import numpy as np
    from jsonargparse._core import ArgumentGroup
    from numpy.typing import NDArray

    from confrank.ood import OodResult, Protocol
    from confrank.provenance import Provenance
    from confrank.runs.trained import TrainedOn


def _ood_arguments(parser: Parser) -> None:
    runs = "run folders, or .safetensors weights (with --model and --dataset if the file has no config)"
    parser.add_argument("runs", type=str, nargs="+", metavar="RUN", help=runs)
    data = parser.add_argument_group("data")
    against = "out-of-distribution data: data sets by name, folders of images, .npz files, files of texts"
    text = with_names(against, "images", "dataset")
    data.add_argument("--against", type=str, nargs="+", required=True, metavar="DATA", help=text)
    add_option(data, "--image-size", int, "N", "crop images to their central square and scale it to N pixels")
    add_root(data)
    _detector_arguments(parser.add_argument_group("detectors"))
    weights = parser.add_argument_group("weights without a config")
    for name, what in (("model", "network"), ("dataset", "data set"), ("method", "method")):
        add_option(weights, f"--{name}", str, "NAME", with_names(f"{what} that the weights belong to", name))
    output = parser.add_argument_group("output")
    add_option(output, "--format", Format, "NAME", "format of the table", "terminal")
    add_option(output, "--json", str, "FILE", "write all results to this file (.json)")
    add_option(output, "--figures", str, "FOLDER", "draw ROC curves and histograms into this folder")
    computing = parser.add_argument_group("computing")
    add_option(computing, "--batch-size", int, "N", "images per forward pass", 500)
    add_device(computing)


def _detector_arguments(group: "ArgumentGroup") -> None:
    detectors = with_names("only these detectors (default: all; for texts, those of the logits)", "detector")
    group.add_argument("--detectors", type=str, nargs="+", default=None, metavar="NAME", help=detectors)
    neighbours = "k of the nearest-neighbour detector (default: 50, or the number of training images if that is less)"
    add_option(group, "--neighbours", int, "N", neighbours)
    layers = "layers of your own network to read features from, e.g. stem,stage1"
    group.add_argument("--layers", type=str, nargs="+", default=None, metavar="NAME", help=layers)
    tuning = "paper: tune on images of each out-set; none: use no out-of-distribution image before the test"
    tuning += " (default: paper for published data sets and with --tuning-images, else none)"
    add_option(group, "--tuning", Literal["paper", "none"], "NAME", tuning)
    tuning_images = "images of each set to tune on; they are left out of the test (default: 1000)"
    add_option(group, "--tuning-images", int, "N", tuning_images)
    add_option(group, "--seed", int, "N", "seed that draws the tuning images", 0)
    add_option(group, "--aupr", Literal["average", "trapezoid"], "NAME", "AUPR estimator", "average")


def _ood(arguments: Arguments) -> None:
    from confrank.data import load_images, same_data
    from confrank.data.texts import is_text_file
    from confrank.environment import environment
    from confrank.files import is_stream, write_atomically
    from confrank.report.detection_plots import detection_figures
    from confrank.report.paper_table import render
    from confrank.study.ood import by_group, detection_json, ood_cells
    from confrank.training.loop import EAGER

    # A table that is piped somewhere has the output to itself.
    show = partial(print, file=sys.stdout if arguments.format == "terminal" else sys.stderr, flush=True)
    # Check everything that can be checked before the long part.
    against = arguments.against
    table, figures = json_path(arguments.json), folder_path(arguments.figures)
    keep_inputs([*arguments.runs, *against], table)
    keep_out_of_data([*arguments.runs, *against], figures)
    if any(same_data(one, other) for one, other in combinations(against, 2)):
        raise ValueError(f"expected each out-set once, but got {' '.join(against)}")
    records = _records(arguments.runs)
    datasets = [record.config.dataset for record in records.values()]
    protocol = _protocol(arguments, [*against, arguments.dataset or "", *datasets])
    root, size = root_of(arguments), arguments.image_size
    # Texts are read for each run, by its vocabulary.
    images = {
        name: None if is_text_file(Path(name)) else load_images(name, root, image_size=size) for name in against
    }
    _check_sizes(records, images)
    results: list[OodResult] = []

    def write() -> None:
        assert table is not None
        write_atomically(table, detection_json(results, protocol, environment(device_of(arguments.device), EAGER)))

    def add(result: "OodResult") -> None:
        """Write the results so far, so that a stopped command leaves them. A stream gets them at the end."""
        results.append(result)
        if table and not is_stream(table):
            write()

    for run in arguments.runs:
        _examine(arguments, run, images, protocol, show, add)
    cells = ood_cells(results)
    notes = _notes(results, protocol, with_paper=any(cell.paper for cell in cells))
    # Files first: the reader of the output may stop after a few lines.
    written = []
    if table and is_stream(table):
        write()
    if figures:
        paths = detection_figures(by_group(results), figures)
        written.append(f"figures: {len(paths)} files in {figures}")
    print(render(cells, arguments.format, width=terminal_width()), end="", file=plain(sys.stdout))
    for line in (protocol.describe(), *notes, *written):
        show(line)


def _protocol(arguments: Arguments, data: Sequence[str]) -> "Protocol":
    """What to measure; the defaults depend on the data of the runs and the out-sets."""
    from confrank.data import IMAGE_SETS, LOADERS
    from confrank.data.texts import is_text_file
    from confrank.ood import DETECTORS, Protocol
    from confrank.ood.logits import LOGIT_SCORES

    names = [*filter(None, data)]
    detectors = tuple(LOGIT_SCORES) if any(is_text_file(Path(name)) for name in names) else DETECTORS
    is_tuned = arguments.tuning_images is not None or {*names} <= {*LOADERS, *IMAGE_SETS}
    tuning = arguments.tuning or ("paper" if is_tuned else "none")
    at_least(1, arguments, "tuning_images", "batch_size", "neighbours")
    at_least(0, arguments, "seed")
    return Protocol(
        detectors=listed(arguments.detectors) or detectors,
        num_tuning=(arguments.tuning_images or Protocol.num_tuning) if tuning == "paper" else 0,
        seed=arguments.seed,
        neighbours=arguments.neighbours or Protocol.neighbours,
        aupr=arguments.aupr,
        batch_size=arguments.batch_size,
    )


def _records(runs: Sequence[str]) -> "dict[str, Provenance]":
    """What each run is, if it says so; raise if one is not a run, or is given twice."""
    from confrank.data import changed_settings
    from confrank.runs.trained import load_trained, read_provenance

    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise ValueError(f"expected each run once, but got {' '.join(runs)}")
    records: dict[str, Provenance] = {}
    for run in map(Path, runs):
        if record := load_trained(run).provenance if run.is_dir() else read_provenance(run):
            records[str(run)] = record
    for (one, record), (other, another) in combinations(records.items(), 2):
        if not changed_settings(record.config.as_dict(), another.config.as_dict()):
            raise ValueError(f"expected each run once, but {one} and {other} have the same settings and seed")
    return records


def _examine(
    arguments: Arguments,
    run: str,
    images: "dict[str, NDArray[np.uint8] | None]",
    protocol: "Protocol",
    show: Callable[[str], None],
    on_result: "Callable[[OodResult], None]",
) -> None:
    """Every detector of one network on every out-set."""
    from confrank.data import same_data
    from confrank.ood import Classifier, examine

    trained = _trained(arguments, run)
    dataset, root = trained.config.dataset, root_of(arguments)
    out_sets = {name: _out_set(run, trained, name, pixels) for name, pixels in images.items()}
    if any(same_data(dataset, name) or _is_part(name, dataset, root) for name in out_sets):
        raise ValueError(f"expected out-sets other than the network's own data, but got {dataset}")
    classifier = Classifier.of_run(trained, run, listed(arguments.layers))
    kind = "texts" if trained.data.is_text else "images"
    show(f"{run}: {len(classifier.train):,} training and {len(classifier.test):,} test {kind}")
    if arguments.neighbours is None and len(classifier.train) < protocol.neighbours:
        protocol = replace(protocol, neighbours=len(classifier.train))
        if "knn" in protocol.detectors:
            show(f"{run}: k of knn is {protocol.neighbours}, the number of training images (--neighbours)")
    examine(classifier, out_sets, protocol, lambda text: show(f"{run}: {text}"), on_result)


def _check_sizes(records: "dict[str, Provenance]", images: "dict[str, NDArray[np.uint8] | None]") -> None:
    """Raise if a run takes images of another size than an out-set has, before anything is scored."""
    import numpy as np

    from confrank.ood.examination import check_pixels

    of_images = {
        run: one.input_shape for run, one in records.items() if one.input_kind == "image" and one.input_shape
    }
    for (run, shape), (name, pixels) in product(of_images.items(), images.items()):
        if pixels is not None:
            with about(run):
                check_pixels(name, pixels, np.empty((0, *shape), dtype=np.uint8))


def _out_set(run: str, trained: "TrainedOn", name: str, pixels: "NDArray[np.uint8] | None") -> "NDArray[Any]":
    """An out-set in the form of the run's input."""
    from confrank.data.texts import read_texts
    from confrank.data.vocabulary import encode

    if trained.data.is_text == (pixels is not None):
        kinds = ("texts", "images") if trained.data.is_text else ("images", "texts")
        raise ValueError(f"expected {kinds[0]}, as {run} was trained on, but {name} holds {kinds[1]}")
    if pixels is not None:
        return pixels
    record = trained.provenance
    return encode(read_texts(Path(name), labelled=False).texts, record.vocabulary, record.input_shape[0])


def _is_part(out: str, dataset: str, root: Path | None) -> bool:
    """Whether an out-set is the custom data set of the run, or part of its training or test pictures."""
    from confrank.data import custom_path
    from confrank.data.custom import image_folders

    data, path = custom_path(dataset, root), Path(out).resolve()
    if data is None:
        return False
    parts = {part.resolve() for part in image_folders(data)}
    return path == data.resolve() or not parts.isdisjoint((path, *path.parents))


def _trained(arguments: Arguments, name: str) -> "TrainedOn":
    from confrank.config import RunConfig
    from confrank.runs.trained import load_run

    device, root = device_of(arguments.device), root_of(arguments)
    if (arguments.model, arguments.dataset, arguments.method) == (None, None, None):
        return load_run(Path(name), root=root, device=device)
    if arguments.model is None or arguments.dataset is None or not name.endswith(".safetensors"):
        raise ValueError(f"expected --model and --dataset together with a .safetensors file, but got {name}")
    config = RunConfig(dataset=arguments.dataset, model=arguments.model, method=arguments.method or "baseline")
    return load_run(Path(name), config, root=root, device=device)


def _notes(results: "list[OodResult]", protocol: "Protocol", *, with_paper: bool) -> list[str]:
    tuned = "" if protocol.num_tuning else "; the paper tunes ODIN and Mahalanobis on the out-set, this run does not"
    legend = [f"ours (paper's mean±std of five runs), gap in the paper's std{tuned}"] if with_paper else []
    return [*legend, *{f"{result.run}: {note}": None for result in results for note in result.notes}]


OOD = Command(
    "measure how well detectors separate out-of-distribution inputs from the run's test data",
    "confrank ood runs/cifar10-resnet110-crl-softmax-seed0 --against tinyimagenet svhn --root data",
    _ood_arguments,
    _ood,
    guide="how-to/ood.md",
)
