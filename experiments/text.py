"""Does CRL help on texts? Bag of embeddings, baseline and crl-softmax, on a file of `experiments/text_data.py`.

    python experiments/text.py imdb.csv [--length 400] [--lrs 0.001 0.003] [--epochs 6 15] [--seeds 3]
    python experiments/text.py spam.csv --shifted hard-ham.csv

For each method, learning rate and number of epochs are chosen by AURC on a fifth of the training texts (seed 100),
unless one of each is given.
Then it trains on all training texts with new seeds, and reads the test split for the first time. `--shifted` is a
file of texts of one class that look like another; it is predicted, never trained on. Intervals of one run are
bootstrap intervals over the test texts; differences are paired over the texts, and over the seeds (Student's t).
"""

import argparse
import itertools
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t

from confrank import compare, evaluate
from confrank.config import RunConfig
from confrank.data import DataSet, Split, hold_out, load, split_of
from confrank.data.texts import read_texts
from confrank.data.vocabulary import encode
from confrank.methods import predict_split
from confrank.metrics import auroc
from confrank.predictions import Predictions
from confrank.training import Run

METHODS = ("baseline", "crl-softmax")
CHOICE_SEED, HELD_OUT = 100, 0.2
SHOWN = ("acc", "aurc", "ece", "nll")


def trained(config: RunConfig, data: DataSet) -> Run:
    """A run after its last step."""
    run = Run(config, data, torch.device("cpu"))
    while not run.finished:
        run.step()
        if run.next_step == run.num_steps:
            run.finish_epoch()
    return run


def predicted(run: Run, split: Split) -> Predictions:
    return predict_split(run.method, run.model, split, (), ())


def metrics_of(predictions: Predictions) -> dict[str, float]:
    metrics = evaluate(**predictions.evaluation_inputs()).metrics
    return {name: value for name in SHOWN if (value := metrics[name]) is not None}


def shown(metrics: dict[str, float]) -> str:
    scales = {"acc": 100, "aurc": 1000, "ece": 100, "nll": 10}
    return "  ".join(f"{scales[name] * value:8.3f}" for name, value in metrics.items())


def choose(config: RunConfig, data: DataSet, lrs: list[float], epochs: list[int]) -> tuple[RunConfig, list[Any]]:
    """The config of least AURC on held-out training texts, and all that were tried; a single one is not tried."""
    if len(lrs) == len(epochs) == 1:
        return replace(config, lr=lrs[0], epochs=epochs[0]), []
    used, held = hold_out(data, HELD_OUT, CHOICE_SEED)
    assert held is not None
    tried: list[tuple[RunConfig, dict[str, float]]] = []
    for lr, number in itertools.product(lrs, epochs):
        one = replace(config, lr=lr, epochs=number, seed=CHOICE_SEED)
        tried.append((one, metrics_of(predicted(trained(one, used), held))))
        print(f"held out  {config.method:12} lr {lr:<6g} epochs {number:3d}  {shown(tried[-1][1])}", flush=True)
    best = min(tried, key=lambda pair: pair[1]["aurc"])[0]
    return best, [{"lr": one.lr, "epochs": one.epochs, **metrics} for one, metrics in tried]


def shift(run: Run, vocabulary: tuple[str, ...], length: int, path: Path, test: Predictions) -> dict[str, float]:
    """Accuracy on shifted texts, and how well low confidence tells them from usual texts."""
    content = read_texts(path, labelled=True)
    names = ("ham", "spam")
    labels = np.array([names.index(label) for label in content.labels or ()])
    predictions = predicted(run, split_of(encode(content.texts, vocabulary, length), labels))
    assert predictions.logits is not None and predictions.confidence is not None and test.confidence is not None
    confidence = np.concatenate([test.confidence, predictions.confidence])
    usual = np.arange(len(confidence)) < len(test.confidence)
    correct = predictions.logits.argmax(axis=1) == labels
    return {
        "acc": float(correct.mean()),
        "errors_surer_than_0.9": float(((predictions.confidence > 0.9) & ~correct).mean()),
        "auroc_usual_shifted": float(auroc(confidence, usual) or 0),
        "auroc_right_wrong": float(auroc(predictions.confidence, correct) or 0),
    }


def over_seeds(values: list[float]) -> dict[str, float]:
    """Mean and 95% Student interval; one value has none."""
    if len(values) == 1:
        return {"mean": values[0], "low": float("nan"), "high": float("nan")}
    mean, half = np.mean(values), t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--model", default="bag-of-embeddings")
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.001, 0.003])
    parser.add_argument("--epochs", type=int, nargs="+", default=[6, 15])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    arguments, start = parsed(), time.monotonic()
    torch.set_num_threads(1)
    data = load(arguments.file, text_length=arguments.length)
    base = RunConfig(
        dataset=arguments.file, model=arguments.model, optimizer="adamw", weight_decay=0.0, schedule="cosine",
        text_length=arguments.length,
    )  # fmt: skip
    print("                                                acc %  AURC x10^3     ECE %   NLL x10")
    chosen, tried = {}, {}
    for method in METHODS:
        chosen[method], tried[method] = choose(replace(base, method=method), data, arguments.lrs, arguments.epochs)
    used, _ = hold_out(data, 0)
    runs: list[dict[str, Any]] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        both, shifts = [], {}
        for method in METHODS:
            run = trained(replace(chosen[method], seed=seed), used)
            both.append(predicted(run, used.test))
            print(f"test      {method:12} seed {seed:19d}  {shown(metrics_of(both[-1]))}", flush=True)
            if arguments.shifted:
                shifts[method] = shift(run, used.vocabulary, arguments.length, arguments.shifted, both[-1])
                print(f"shifted   {method:12} {shifts[method]}", flush=True)
        result = compare(*both)
        runs.append({
            "seed": seed,
            **{
                method: {name: [metrics[name], *_ends(intervals[name])] for name in SHOWN}
                for method, metrics, intervals in zip(METHODS, result.metrics, result.intervals, strict=True)
            },
            "difference": {
                name: [gap.value, gap.low, gap.high] for name in SHOWN if (gap := result.differences[0][name])
            },
            "shifted": shifts,
        })  # fmt: skip
    summary: dict[str, Any] = {
        method: {name: over_seeds([run[method][name][0] for run in runs]) for name in SHOWN} for method in METHODS
    }
    summary["difference"] = {
        name: over_seeds([run["crl-softmax"][name][0] - run["baseline"][name][0] for run in runs]) for name in SHOWN
    }
    for name, row in summary.items():
        for metric, value in row.items():
            print(f"{name:12} {metric:5} {value['mean']:+.5f} [{value['low']:+.5f}, {value['high']:+.5f}]")
    facts = {"python": platform.python_version(), "torch": torch.__version__, "seconds": time.monotonic() - start}
    sizes = {"train": len(used.train), "test": len(used.test), "vocabulary": len(used.vocabulary)}
    settings = {method: {"lr": one.lr, "epochs": one.epochs} for method, one in chosen.items()}
    print(json.dumps({**facts, **sizes, "chosen": settings, "tried": tried, "runs": runs, "summary": summary}))


def _ends(interval: Any) -> list[float]:
    return [] if interval is None else [interval.low, interval.high]


if __name__ == "__main__":
    main()
