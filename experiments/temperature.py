"""Does temperature scaling after training do what CRL does in training?

    python experiments/temperature.py RUN_FOLDER... [--split test]

For the predictions of finished runs: fits a temperature on one random half of the samples and measures it on the
other, and the other way round; prints the mean of both halves, before and after scaling. Folders whose names differ
only in the seed are summarised. Both rank by the largest probability.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from confrank.analysis.repeats import Summary, summarise
from confrank.decisions import fit_temperature, random_split, scaled_logits
from confrank.metrics import evaluation_of, sample_values
from confrank.predictions import load_predictions
from confrank.report.paper_table import markdown_table
from confrank.report.scales import SHOWN, with_spread

METRICS = ("aurc", "ece", "nll", "brier")


def halves(path: Path) -> dict[str, list[float]]:
    """The mean over both halves of each metric, before and after scaling, and of the temperature."""
    predictions = load_predictions(path)
    assert predictions.logits is not None and predictions.label is not None
    halved = defaultdict(list)
    one, other = random_split(len(predictions), 0.5)
    for fitted, measured in ((one, other), (other, one)):
        temperature = fit_temperature(predictions.logits[fitted], predictions.label[fitted])
        halved["temperature"].append([temperature])
        for name, divisor in (("as predicted", 1.0), ("scaled", temperature)):
            logits = scaled_logits(predictions.logits[measured], divisor)
            metrics = evaluation_of(sample_values(logits=logits, label=predictions.label[measured])).metrics
            halved[name].append([metrics[metric] * SHOWN[metric].factor for metric in METRICS])
    return {name: list(np.mean(values, axis=0)) for name, values in halved.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    groups = defaultdict(list)
    for run in arguments.runs:
        groups[run.name.rsplit("-seed", 1)[0]].append(halves(run / "predictions" / f"{arguments.split}.safetensors"))
    rows = []
    for setting, runs in groups.items():
        for name in ("as predicted", "scaled"):
            columns = zip(*(values[name] for values in runs), strict=True)
            cells = [_shown(summarise(list(column))) for column in columns]
            temperature = _shown(summarise([values["temperature"][0] for values in runs])) if name == "scaled" else ""
            rows.append([setting, str(len(runs)), name, temperature, *cells])
    headings = ["setting", "runs", "", "temperature"]
    print(markdown_table([*headings, *(SHOWN[metric].heading for metric in METRICS)], rows))


def _shown(summary: Summary) -> str:
    return with_spread(summary.mean, summary.std, 1.0, mark=" ± ")


if __name__ == "__main__":
    main()
