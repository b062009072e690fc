"""Out-of-distribution detection as cells of a study: what the results have, and measuring the rest."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.config import RunConfig
from confrank.data import changed_settings, load_images
from confrank.files import write_atomically
from confrank.ood.protocol import Protocol
from confrank.ood.results import OodResult, read_results
from confrank.runs.folder import RunFolder
from confrank.study.ood import OOD, detection_json, stored_results

if TYPE_CHECKING:
    import torch

PAPER = Protocol()


@dataclass(frozen=True)
class Detection:
    """A cell that tests the network of a run against one out-set, with every detector."""

    run: RunConfig
    out_set: str

    @property
    def name(self) -> str:
        return f"{self.run.run_name}-against-{Path(self.out_set).stem}"


def missing_detectors(items: Sequence[Detection], results: Path) -> dict[Detection, tuple[str, ...]]:
    """The detectors without a result of the paper's protocol, for each cell that lacks one."""
    stored = stored_results(results / OOD)
    missing = {item: tuple(name for name in PAPER.detectors if not _has(stored, item, name)) for item in items}
    return {item: names for item, names in missing.items() if names}


def _has(stored: Sequence[OodResult], item: Detection, detector: str) -> bool:
    settings = item.run.as_dict()
    return any(
        (one.detector, one.out_set) == (detector, item.out_set) and not changed_settings(settings, one.config)
        for one in stored
    )


def network_of(run: RunConfig, out: Path, results: Path) -> Path | None:
    """The network of a run: its weights in results/weights, or its folder if it is finished; None without either."""
    weights, folder = results / "weights" / f"{run.run_name}.safetensors", out / run.run_name
    if weights.exists():
        return weights
    return folder if RunFolder(folder).history.exists() else None  # written at the end


def measure(
    item: Detection,
    detectors: Sequence[str],
    out: Path,
    results: Path,
    *,
    root: Path | None = None,
    device: "torch.device",
    on_note: Callable[[str], None] = lambda text: None,
) -> None:
    """Test the network with these detectors; each result is written as soon as it is computed."""
    from confrank.environment import environment
    from confrank.ood.examination import Classifier, examine
    from confrank.runs.trained import load_run
    from confrank.training.loop import EAGER

    network = network_of(item.run, out, results)
    if network is None:
        raise ValueError(f"expected the network of {item.run.run_name}, but it is not trained")
    here = environment(device, EAGER)
    path = _file(item, results / OOD, here)
    done = read_results(path) if path.exists() else []
    classifier = Classifier.of_run(load_run(network, root=root, device=device), network.name)

    def add(result: OodResult) -> None:
        done.append(result)
        write_atomically(path, detection_json(done, PAPER, here))

    path.parent.mkdir(parents=True, exist_ok=True)
    images, protocol = {item.out_set: load_images(item.out_set, root)}, replace(PAPER, detectors=detectors)
    examine(classifier, images, protocol, lambda text: on_note(f"{item.name}: {text}"), add)


def _file(item: Detection, folder: Path, here: dict[str, Any]) -> Path:
    """The file of a cell; results that another machine has measured stay in theirs."""
    paths = (folder / f"{item.name}{f'-{number}' if number > 1 else ''}.json" for number in count(1))
    return next(path for path in paths if not path.exists() or json.loads(path.read_text())["environment"] == here)
