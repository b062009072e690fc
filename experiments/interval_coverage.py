"""How often does a 95% interval contain the true value?

    python experiments/interval_coverage.py [--repetitions 1000] [--seed 17]
    python experiments/interval_coverage.py --areas 19 1
    python experiments/interval_coverage.py --means 6 1.3

Models whose population is known: the probability p of being right is Beta-distributed with mean 0.8, and the
confidence is p with its logit multiplied: by 1 (calibrated), more (overconfident) or less (underconfident). The ECE's
target is the population's, with the same 15 bins. `percentiles` is the bootstrap that all metrics used to share;
`confrank` is what `confrank.metrics.intervals_of` gives now. Rows for comparison have a fifth of the repetitions.
`--areas` measures AURC, E-AURC and AUGRC instead, for a calibrated model with p ~ Beta(A, B), and compares scales for
Student's t. `--means` measures accuracy, NLL and Brier score for three classes: labels are drawn from normal logits
of this spread, and the model's logits are these times the second number. Prints a table of coverage, mean and median
width, then one JSON line.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax
from scipy.stats import beta, t

from confrank.metrics import Samples, bootstrap, ece, ece_interval, evaluation_of, intervals_of, sample_values
from confrank.metrics.areas import best_aurc
from confrank.metrics.calibration import bin_edges, bin_index

Floats = NDArray[np.float64]
RESAMPLES, BINS, GRID = 1000, 15, 1_000_000
Limits = tuple[float, float]
AREAS = ("aurc", "e_aurc", "augrc")
MEANS = ("acc", "nll", "brier")
# Other scales for Student's t than that of confrank; a resample without errors has an area of 0.
SCALES: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "linear": (lambda values: values, lambda values: values),
    "cube-root": (np.cbrt, lambda roots: roots**3),
    "logit": (lambda values: logit(np.clip(values, 1e-6, 1 - 1e-6)), expit),
}


@dataclass(frozen=True)
class Model:
    """p ~ Beta(a, b), and the confidence is p with its logit times `sharpness`."""

    a: float
    b: float
    sharpness: float

    @property
    def title(self) -> str:
        return f"Beta({self.a:g}, {self.b:g})"

    def confidence(self, p: Floats) -> Floats:
        return np.asarray(expit(self.sharpness * logit(p)))

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
        p = np.clip(rng.beta(self.a, self.b, size), 1e-12, 1 - 1e-12)
        return p, rng.random(size) < p

    def population(self) -> Floats:
        """Equally likely values of p, in increasing order."""
        values = beta.ppf((np.arange(GRID) + 0.5) / GRID, self.a, self.b)
        return np.asarray(np.clip(values, 1e-12, 1 - 1e-12))


CALIBRATED, OVERCONFIDENT = Model(4, 1, 1), Model(4, 1, 2)
MODELS = {
    "calibrated": CALIBRATED,
    "overconfident": OVERCONFIDENT,
    "overconfident, most near 1": Model(1.2, 0.3, 2),
    "slightly overconfident": Model(4, 1, 1.3),
    "underconfident": Model(8, 2, 0.6),
}


def true_ece(model: Model) -> float:
    p = model.population()
    confidence = model.confidence(p)
    return float(np.abs(np.bincount(bin_index(confidence, bin_edges(BINS)), p - confidence)).sum() / GRID)


def true_ranking(model: Model) -> dict[str, float]:
    p = model.population()
    wrong, flagged = np.cumsum(1 - p), np.arange(1, GRID + 1)
    accepted_wrong = np.cumsum(1 - p[::-1])
    area = float((accepted_wrong / flagged).mean())
    return {
        "aurc": area,
        "e_aurc": area - float(best_aurc(accepted_wrong[-1:] / GRID)[0]),
        "augrc": float(accepted_wrong.mean() / GRID),
        "auroc": float((p * wrong).sum() / (p.sum() * wrong[-1])),
        "aupr_error": float(((1 - p) * wrong / flagged).sum() / wrong[-1]),
    }


def resampled_ece(confidences: Iterable[Floats], correct: NDArray[np.bool_], seed: int) -> list[Floats]:
    """The ECE of each set of confidences on the same resamples of the rows."""
    size, rng, surpluses = len(correct), np.random.default_rng(seed), []
    for confidence in confidences:
        surplus = np.zeros((size, BINS))
        surplus[np.arange(size), bin_index(confidence, bin_edges(BINS))] = correct - confidence
        surpluses.append(surplus)
    blocks: list[list[Floats]] = [[] for _ in surpluses]
    for _ in range(10):
        rows = RESAMPLES // 10
        draws = rng.integers(0, size, (rows, size)) + np.arange(rows)[:, None] * size
        counts = np.bincount(draws.ravel(), minlength=rows * size).reshape(rows, size).astype(float)
        for block, surplus in zip(blocks, surpluses, strict=True):
            block.append(np.abs(counts @ surplus).sum(axis=1) / size)
    return [np.concatenate(block) for block in blocks]


def percentiles(resampled: Floats, value: float, lowest: float) -> Limits:
    resampled = resampled[np.isfinite(resampled)]
    low, high = np.quantile(resampled, [0.025, 0.975], method="weibull") - (resampled.mean() - value)
    return max(lowest, float(low)), float(high)


def repeat(
    one: Callable[[np.random.Generator, int], dict[str, Limits | None]],
    truth: dict[str, float],
    count: int,
    seed: int,
) -> dict[str, dict[str, float]]:
    """Coverage and mean width of each kind of interval over `count` data sets; `truth` by the name's first word."""
    limits: dict[str, list[Limits]] = {}
    for repetition in range(count):
        for name, pair in one(np.random.default_rng([seed, repetition]), repetition).items():
            if pair is not None:
                limits.setdefault(name, []).append(pair)
    summaries = {}
    for name, pairs in limits.items():
        low, high = np.array(pairs).T
        true = truth[name.split()[0]]
        above, below = float((low > true).mean()), float((high < true).mean())
        summaries[name] = {
            "coverage": 1 - above - below, "too_high": above, "too_low": below, "width": float((high - low).mean()),
            "median_width": float(np.median(high - low)), "repetitions": len(pairs),
        }  # fmt: skip
    return summaries


def ece_once(
    model: Model, size: int, num_percentiles: int
) -> Callable[[np.random.Generator, int], dict[str, Limits | None]]:
    def once(rng: np.random.Generator, repetition: int) -> dict[str, Limits | None]:
        p, correct = model.draw(size, rng)
        confidence = model.confidence(p)
        limits: dict[str, Limits | None] = {}
        if repetition < num_percentiles:
            (resampled,) = resampled_ece([confidence], correct, repetition)
            limits["ece percentiles"] = percentiles(resampled, ece(confidence, correct) or 0.0, 0.0)
        interval = ece_interval(confidence, correct, seed=repetition)
        return limits | {"ece confrank": interval and (interval.low, interval.high)}

    return once


def ranking_once(model: Model, size: int) -> Callable[[np.random.Generator, int], dict[str, Limits | None]]:
    def once(rng: np.random.Generator, repetition: int) -> dict[str, Limits | None]:
        p, correct = model.draw(size, rng)
        samples = Samples(p, correct)
        (resampled,), metrics = bootstrap([samples], RESAMPLES, seed=repetition), evaluation_of(samples).metrics
        intervals, limits = intervals_of(resampled, metrics, samples=samples), {}
        for key in ("auroc", "aupr_error"):
            interval, value = intervals[key], metrics[key]
            if interval is not None and value is not None:
                limits[f"{key} percentiles"] = percentiles(resampled[key], value, 0.0)
                limits[f"{key} confrank"] = interval.low, interval.high
        return limits

    return once


def areas_once(model: Model, size: int) -> Callable[[np.random.Generator, int], dict[str, Limits | None]]:
    def once(rng: np.random.Generator, repetition: int) -> dict[str, Limits | None]:
        p, correct = model.draw(size, rng)
        samples = Samples(p, correct)
        (resampled,), metrics = bootstrap([samples], RESAMPLES, seed=repetition), evaluation_of(samples).metrics
        intervals, limits = intervals_of(resampled, metrics, samples=samples), {}
        quantile = t.ppf(0.975, max(1, min(correct.sum(), (~correct).sum()) - 1))
        for key in AREAS:
            interval, value = intervals[key], metrics[key]
            if interval is not None and value is not None:
                lowest = -1.0 if key == "e_aurc" else 0.0
                limits[f"{key} percentiles"] = percentiles(resampled[key], value, lowest)
                limits[f"{key} confrank"] = interval.low, interval.high
                for name in SCALES:
                    if key != "e_aurc" or name != "logit":  # which may be negative
                        limits[f"{key} {name}"] = scaled(name, resampled[key], value, quantile)
        return limits

    return once


def drawn_tables(spread: float, sharpness: float, size: int, rng: np.random.Generator) -> Samples:
    logits = rng.normal(0, spread, (size, 3))
    label = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return sample_values(probabilities=softmax(sharpness * logits, axis=1), label=label)


def means_once(
    spread: float, sharpness: float, size: int
) -> Callable[[np.random.Generator, int], dict[str, Limits | None]]:
    def once(rng: np.random.Generator, repetition: int) -> dict[str, Limits | None]:
        samples = drawn_tables(spread, sharpness, size, rng)
        (resampled,), metrics = bootstrap([samples], RESAMPLES, seed=repetition), evaluation_of(samples).metrics
        intervals, limits = intervals_of(resampled, metrics, samples=samples), dict[str, Limits | None]()
        for key in MEANS:
            interval, value = intervals[key], metrics[key]
            limits[f"{key} confrank"] = interval and (interval.low, interval.high)
            if value is not None and resampled[key].min() < resampled[key].max():
                limits[f"{key} percentiles"] = percentiles(resampled[key], value, 0.0)
        return limits

    return once


def scaled(scale: str, resampled: Floats, value: float, quantile: float) -> Limits:
    """Student's t times the standard error on another scale."""
    forward, backward = SCALES[scale]
    values = forward(np.append(resampled, value))
    reach = quantile * values[:-1].std(ddof=1)
    low, high = backward(values[-1] + np.array([-reach, reach]))
    return float(low), float(high)


def difference_once(model: Model, size: int) -> Callable[[np.random.Generator, int], dict[str, Limits | None]]:
    def once(rng: np.random.Generator, repetition: int) -> dict[str, Limits | None]:
        p, correct = OVERCONFIDENT.draw(size, rng)
        confidences = [OVERCONFIDENT.confidence(p), model.confidence(p)]
        first, second = resampled_ece(confidences, correct, repetition)
        value = (ece(confidences[1], correct) or 0.0) - (ece(confidences[0], correct) or 0.0)
        return {"difference percentiles": percentiles(second - first, value, -1.0)}

    return once


Report = Callable[[str, int, dict[str, dict[str, float]], dict[str, float]], None]


def measure_areas(model: Model, many: int, seed: int, report: Report) -> None:
    truth = true_ranking(model)
    for size, count in ((30, many), (100, many), (500, 2 * many // 5), (2000, many // 5)):
        report(model.title, size, repeat(areas_once(model, size), truth, count, seed), truth)


def measure_means(spread: float, sharpness: float, many: int, seed: int, report: Report) -> None:
    population = evaluation_of(drawn_tables(spread, sharpness, GRID, np.random.default_rng([seed, many]))).metrics
    truth = {key: value for key in MEANS if (value := population[key]) is not None}
    for size in (20, 100, 500):
        once = means_once(spread, sharpness, size)
        report(f"spread {spread:g}, times {sharpness:g}", size, repeat(once, truth, many, seed), truth)


def measure_others(many: int, seed: int, report: Report) -> None:
    few = many // 5
    for model in (CALIBRATED, Model(1.2, 0.3, 1)):
        truth = true_ranking(model)
        report(model.title, 100, repeat(ranking_once(model, 100), truth, many, seed), truth)
    for title, model in MODELS.items():
        truth, main_model = {"ece": true_ece(model)}, model in (CALIBRATED, OVERCONFIDENT)
        for size in (100, 400, 2000):
            once = ece_once(model, size, few if main_model else 0)
            report(title, size, repeat(once, truth, many if main_model else few, seed), truth)
    for title in ("calibrated", "slightly overconfident"):
        truth = {"difference": true_ece(MODELS[title]) - true_ece(OVERCONFIDENT)}
        for size in (100, 400, 2000):
            summaries = repeat(difference_once(MODELS[title], size), truth, few, seed)
            report(f"{title} - overconfident", size, summaries, truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--areas", type=float, nargs=2, metavar=("A", "B"))
    parser.add_argument("--means", type=float, nargs=2, metavar=("SPREAD", "SHARPNESS"))
    arguments = parser.parse_args()
    start, results = time.perf_counter(), []

    def report(title: str, size: int, summaries: dict[str, dict[str, float]], truth: dict[str, float]) -> None:
        for name, one in summaries.items():
            key, method = name.split()
            shares = " | ".join(f"{100 * one[share]:.1f}" for share in ("coverage", "too_high", "too_low"))
            widths = " | ".join(f"{one[width]:.4f}" for width in ("width", "median_width"))
            print(
                f"| {title} | {key} | {truth[key]:.4f} | {size:,} | {method} | {one['repetitions']:,} |"
                f" {shares} | {widths} |",
                flush=True,
            )
            results.append({"model": title, "key": key, "true": truth[key], "n": size, "method": method, **one})

    headings = ("model", "metric", "true", "n", "interval", "repetitions", "covered %", "too high %", "too low %")
    print(f"| {' | '.join(headings)} | mean width | median |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    if arguments.areas:
        measure_areas(Model(*arguments.areas, 1), arguments.repetitions, arguments.seed, report)
    elif arguments.means:
        measure_means(*arguments.means, arguments.repetitions, arguments.seed, report)
    else:
        measure_others(arguments.repetitions, arguments.seed, report)
    print(f"\n{arguments.repetitions} repetitions, {time.perf_counter() - start:.0f} s\n")
    print(json.dumps({"seed": arguments.seed, "repetitions": arguments.repetitions, "results": results}))


if __name__ == "__main__":
    main()
