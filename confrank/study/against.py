"""Networks of runs against out-of-distribution data: all that can be checked first, then every detector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from confrank.config import RunConfig
from confrank.data import IMAGE_SETS, LOADERS, changed_settings, custom_path, load_images, same_data
from confrank.data.custom import image_folders
from confrank.data.texts import is_text_file, read_texts
from confrank.data.vocabulary import encode
from confrank.errors import about
from confrank.ood import DETECTORS, Classifier, OodResult, Protocol, examine
from confrank.ood.examination import check_pixels
from confrank.ood.logits import LOGIT_SCORES
from confrank.provenance import Provenance
from confrank.runs.trained import TrainedOn, load_run, load_trained, read_provenance

Show = Callable[[str], None]
Pixels = Mapping[str, NDArray[np.uint8] | None]


@dataclass(frozen=True)
class Against:
    """Runs and the out-sets to test them against, read and checked; `config` is that of weights without one."""

    runs: Sequence[str]
    images: Pixels
    protocol: Protocol
    config: RunConfig | None = None
    layers: Sequence[str] = ()
    root: Path | None = None
    own_neighbours: bool = False

    def results(self, device: torch.device, show: Show, on_result: Callable[[OodResult], None]) -> None:
        """Every detector of each network on every out-set."""
        for run in self.runs:
            trained = load_run(Path(run), self.config, root=self.root, device=device)
            dataset = trained.config.dataset
            out_sets = {name: _out_set(run, trained, name, pixels) for name, pixels in self.images.items()}
            if any(same_data(dataset, name) or _is_part(name, dataset, self.root) for name in out_sets):
                raise ValueError(f"expected out-sets other than the network's own data, but got {dataset}")
            classifier, protocol = Classifier.of_run(trained, run, [*self.layers]), self.protocol
            kind = "texts" if trained.data.is_text else "images"
            show(f"{run}: {len(classifier.train):,} training and {len(classifier.test):,} test {kind}")
            if not self.own_neighbours and len(classifier.train) < protocol.neighbours:
                protocol = replace(protocol, neighbours=len(classifier.train))
                if "knn" in protocol.detectors:
                    show(f"{run}: k of knn is {protocol.neighbours}, the number of training images (--neighbours)")

            def note(text: str, run: str = run) -> None:
                show(f"{run}: {text}")

            examine(classifier, out_sets, protocol, note, on_result)


def against(
    runs: Sequence[str],
    out_sets: Sequence[str],
    *,
    weights_of: tuple[str | None, str | None, str | None] = (None, None, None),
    image_size: int | None = None,
    detectors: Sequence[str] = (),
    layers: Sequence[str] = (),
    neighbours: int | None = None,
    tuning: Literal["paper", "none"] | None = None,
    tuning_images: int | None = None,
    root: Path | None = None,
    **settings: Any,
) -> Against:
    """Read and check runs and out-sets; the defaults of the protocol depend on both.

    `weights_of` are the network, data set and method of weights that do not say so.
    """
    if any(same_data(one, other) for one, other in combinations(out_sets, 2)):
        raise ValueError(f"expected each out-set once, but got {' '.join(out_sets)}")
    records = _records(runs)
    model, dataset, method = weights_of
    data = [*out_sets, *([] if dataset is None else [dataset]), *(one.config.dataset for one in records.values())]
    usual = tuple(LOGIT_SCORES) if any(is_text_file(Path(name)) for name in data) else DETECTORS
    if tuning is None:
        is_tuned = tuning_images is not None or {*data} <= {*LOADERS, *IMAGE_SETS}
        tuning = "paper" if is_tuned else "none"
    protocol = Protocol(
        detectors=tuple(detectors) or usual,
        num_tuning=(tuning_images or Protocol.num_tuning) if tuning == "paper" else 0,
        neighbours=neighbours or Protocol.neighbours,
        **settings,
    )
    # Texts are read for each run, by its vocabulary.
    images = {
        name: None if is_text_file(Path(name)) else load_images(name, root, image_size=image_size)
        for name in out_sets
    }
    _check_sizes(records, images)
    config = None
    if (model, dataset, method) != (None, None, None):
        others = [run for run in runs if not run.endswith(".safetensors")]
        if model is None or dataset is None or others:
            got = others[0] if others else runs[0]
            raise ValueError(f"expected --model and --dataset together with a .safetensors file, but got {got}")
        config = RunConfig(dataset=dataset, model=model, method=method or "baseline")
    return Against(runs, images, protocol, config, layers, root, own_neighbours=neighbours is not None)


def result_notes(results: Sequence[OodResult], protocol: Protocol, *, with_paper: bool) -> list[str]:
    """The legend of a table with the paper's numbers, and what to know of each run."""
    tuned = "" if protocol.num_tuning else "; the paper tunes ODIN and Mahalanobis on the out-set, this run does not"
    legend = [f"ours (paper's mean±std of five runs), gap in the paper's std{tuned}"] if with_paper else []
    return [*legend, *{f"{result.run}: {note}": None for result in results for note in result.notes}]


def _records(runs: Sequence[str]) -> dict[str, Provenance]:
    """What each run is, if it says so; raise if one is not a run, or is given twice."""
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


def _check_sizes(records: Mapping[str, Provenance], images: Pixels) -> None:
    """Raise if a run takes images of another size than an out-set has, before anything is scored."""
    of_images = {
        run: one.input_shape for run, one in records.items() if one.input_kind == "image" and one.input_shape
    }
    for (run, shape), (name, pixels) in product(of_images.items(), images.items()):
        if pixels is not None:
            with about(run):
                check_pixels(name, pixels, np.empty((0, *shape), dtype=np.uint8))


def _out_set(run: str, trained: TrainedOn, name: str, pixels: NDArray[np.uint8] | None) -> NDArray[Any]:
    """An out-set in the form of the run's input."""
    if trained.data.is_text == (pixels is not None):
        kinds = ("texts", "images") if trained.data.is_text else ("images", "texts")
        raise ValueError(f"expected {kinds[0]}, as {run} was trained on, but {name} holds {kinds[1]}")
    if pixels is not None:
        return pixels
    record = trained.provenance
    return encode(read_texts(Path(name), labelled=False).texts, record.vocabulary, record.input_shape[0])


def _is_part(out: str, dataset: str, root: Path | None) -> bool:
    """Whether an out-set is the custom data set of the run, or part of its training or test pictures."""
    data, path = custom_path(dataset, root), Path(out).resolve()
    if data is None:
        return False
    parts = {part.resolve() for part in image_folders(data)}
    return path == data.resolve() or not parts.isdisjoint((path, *path.parents))
