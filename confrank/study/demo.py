"""The demo: does the correctness ranking loss help a small network on embedded data?

Command: `confrank demo`. Run time: under 2 minutes on 2 cores. Baseline and crl-softmax, five seeds each, on
`digits`; the settings were chosen on held-out training data with other seeds (docs/evidence/log.md).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from confrank.config import RunConfig
from confrank.metrics import Evaluation, Samples, sample_values
from confrank.predictions import load_predictions
from confrank.run_folder import RunFolder
from confrank.training import train

METHODS = ("baseline", "crl-softmax")
EPOCHS = 200


def demo_configs(seeds: Sequence[int], epochs: int = EPOCHS) -> list[RunConfig]:
    """The runs of the demo, method by method."""
    return [
        RunConfig(dataset="digits", model="small", method=method, epochs=epochs, seed=seed)
        for method in METHODS
        for seed in seeds
    ]


def run_demo(
    configs: Sequence[RunConfig],
    out: Path,
    on_epoch: Callable[[RunConfig, dict[str, float]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, list[Evaluation]]:
    """Train what is not there yet and return the test evaluations by method, in the order of the seeds."""
    results: dict[str, list[Evaluation]] = {}
    for config in configs:
        finished = train(config, out / config.run_name, on_epoch=on_epoch, on_note=on_note)
        results.setdefault(config.method, []).append(finished.evaluations["test"])
    return results


def first_runs(configs: Sequence[RunConfig], out: Path) -> list[Path]:
    """The run folder of each method's first seed."""
    first: dict[str, Path] = {}
    for config in configs:
        first.setdefault(config.method, out / config.run_name)
    return list(first.values())


def load_samples(configs: Sequence[RunConfig], out: Path) -> dict[str, list[Samples]]:
    """The test split of each finished run, by method."""
    samples: dict[str, list[Samples]] = {}
    for config in configs:
        predictions = load_predictions(RunFolder(out / config.run_name).predictions("test"))
        samples.setdefault(config.method, []).append(sample_values(**predictions.evaluation_inputs()))
    return samples
