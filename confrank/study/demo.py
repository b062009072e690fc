"""The demo: does the correctness ranking loss help a small network on embedded data?

Command: `confrank demo`. Run time: under 2 minutes on 2 cores. Trains baseline and crl-softmax on `digits`, six seeds
each. The settings were chosen on held-out training images with other seeds (`experiments/demo_settings.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from confrank.analysis.repeats import summarise
from confrank.config import RunConfig
from confrank.decisions import OperatingPoint, UnreachableError, guaranteed_threshold, measured_at
from confrank.metrics import Samples, sample_values
from confrank.predictions import load_predictions
from confrank.report.scales import with_spread
from confrank.runs.folder import RunFolder
from confrank.training import train

COMPARED = ("baseline", "crl-softmax")
# On held-out images, by experiments/demo_settings.py.
OVERFITTED = (
    "These networks are trained until they fit every training image; that is where CRL helps. A baseline that stopped"
    " earlier, at a lower learning rate, ranked its answers better than either on held-out images:"
    " experiments/demo_settings_epyc-2core_202611.md"
)
STOPPED_EARLY = (
    "These networks classify {share} of the training images correctly; CRL helps where a network fits all of them,"
    " as in the demo without --epochs."
)
SEEDS, EPOCHS = 6, 200
SETTINGS: dict[str, Any] = {"dataset": "digits", "model": "mlp", "optimizer": "adamw", "lr": 0.003, "holdout": 0.2}
# The guarantee of the threshold at the end: an error rate of at most RISK among accepted, with probability 1 - DELTA.
RISK, DELTA = 0.25, 0.05


@dataclass(frozen=True)
class Threshold:
    """A guaranteed threshold: what it does to the held-out images it was chosen on, and to the test images."""

    chosen: OperatingPoint
    test: OperatingPoint


def demo_configs(seeds: Sequence[int], epochs: int = EPOCHS) -> list[RunConfig]:
    """The runs of the demo, method by method."""
    return [RunConfig(**SETTINGS, method=method, epochs=epochs, seed=seed) for method in COMPARED for seed in seeds]


def _folder(config: RunConfig, out: Path) -> Path:
    """The folder of a run, named without the held-out share, which all of them have."""
    return out / replace(config, holdout=0.0).run_name


def run_demo(
    configs: Sequence[RunConfig],
    out: Path,
    on_epoch: Callable[[RunConfig, dict[str, float]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Train the runs that are not finished yet."""
    for config in configs:
        train(config, _folder(config, out), on_epoch=on_epoch, on_note=on_note)


def first_runs(configs: Sequence[RunConfig], out: Path) -> list[Path]:
    """The run folder of each method's first seed."""
    first: dict[str, Path] = {}
    for config in configs:
        first.setdefault(config.method, _folder(config, out))
    return list(first.values())


def load_samples(configs: Sequence[RunConfig], out: Path, split: str = "test") -> dict[str, list[Samples]]:
    """The predictions of each finished run on a split, by method, in the order of the seeds."""
    samples: dict[str, list[Samples]] = {}
    for config in configs:
        predictions = load_predictions(RunFolder(_folder(config, out)).predictions(split))
        samples.setdefault(config.method, []).append(sample_values(**predictions.evaluation_inputs()))
    return samples


def training_accuracy(configs: Sequence[RunConfig], out: Path) -> float:
    """The mean accuracy of the finished runs on their training images, in the last epoch."""
    return fmean(RunFolder(_folder(config, out)).read_log()[-1]["acc"] for config in configs)


def choose_threshold(held_out: Samples, test: Samples) -> Threshold | None:
    """The threshold that RISK and DELTA ask for; None if these held-out images cannot guarantee it."""
    try:
        chosen = guaranteed_threshold(held_out.confidence, held_out.correct, RISK, delta=DELTA)
    except UnreachableError:
        return None
    return Threshold(chosen, measured_at(test.confidence, test.correct, chosen.threshold))


def fit_line(accuracy: float) -> str:
    """Whether the networks fit their training images, in words."""
    share = f"{accuracy:.0%}"
    return OVERFITTED if share == "100%" else STOPPED_EARLY.format(share=share)


def threshold_lines(thresholds: Mapping[str, Sequence[Threshold | None]], held_out: int) -> list[str]:
    """The guaranteed threshold of the last method's first network in words, then what each method accepts."""
    (*_, (method, (first, *_))) = thresholds.items()
    guarantee = f"an error rate of at most {RISK:.0%} among accepted answers, with {1 - DELTA:.0%} probability"
    if first is None:
        return [f"Threshold: none on the {held_out} held-out images guarantees {guarantee}, for {method}, seed 0."]
    chosen, test = first.chosen, first.test
    first_line = (
        f"Threshold: accept an answer of {method}, seed 0, if its confidence is at least {chosen.threshold:.6g}. This"
        f" guarantees {guarantee}. It was chosen on {chosen.num_samples:,} images held out of training. On the"
        f" {test.num_samples:,} test images it accepts {test.coverage:.1%} of the answers; {test.risk or 0:.1%}"
        " of the accepted ones are wrong."
    )
    return [first_line, *(_accepted(name, points) for name, points in thresholds.items())]


def _accepted(name: str, thresholds: Sequence[Threshold | None]) -> str:
    """What the guaranteed thresholds of a method's networks accept of the test images; without one, nothing."""
    points = [one.test for one in thresholds if one is not None]
    shares = summarise([0.0 if one is None else one.test.coverage or 0.0 for one in thresholds])
    accepted, wrong = sum(point.accepted for point in points), sum(point.wrong for point in points)
    none = " (0% without a guarantee)" if len(points) < len(thresholds) else ""
    share = with_spread(shares.mean, shares.std, 100, mark=" ± ")
    return (
        f"  {name}: {len(points)} of {len(thresholds)} networks can guarantee it. On average, a network accepts"
        f" {share}% of the test answers{none}; {wrong / max(accepted, 1):.1%} of the accepted ones are wrong"
    )
