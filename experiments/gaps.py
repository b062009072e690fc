"""Where do our results differ from the paper's tables by more than chance?

    python experiments/gaps.py [--results results] > experiments/gaps.md

Prints, for classification, detection and active learning, every value beyond two of the paper's standard deviations,
or, where we have more than one seed, with a p-value below 0.05 in Welch's test on both means; then how low the share
of correct examinations of any training sample is at the end of each CRL run (experiments/rate_range.py: why it
matters).
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import ttest_ind_from_stats

from confrank.analysis.repeats import Summary
from confrank.report.paper_table import markdown_table
from confrank.report.scales import ALL_SHOWN, with_spread
from confrank.study.comparison import comparison_cells
from confrank.study.tables import Cell

TABLES = {
    "Classification": ("stable-clf-perf-cifar10", "stable-clf-perf-cifar100", "stable-clf-perf-svhn"),
    "Out-of-distribution detection": ("stable-ood-perf",),
    "Active learning": ("stable-al-perf",),
}
LIMIT, LEVEL = 2.0, 0.05


def chance(ours: Summary, paper: Summary) -> float | None:
    """The p-value of Welch's test for equal means; None with a single seed."""
    if ours.std is None or paper.std is None:
        return None
    first, second = ((one.mean, one.std, one.n) for one in (ours, paper))
    return float(ttest_ind_from_stats(*first, *second, equal_var=False).pvalue)


def stands_out(cell: Cell) -> bool:
    if cell.ours is None or cell.paper is None or cell.deviations is None:
        return False
    p = chance(cell.ours, cell.paper)
    return abs(cell.deviations) > LIMIT or (p is not None and p < LEVEL)


def scale(metric: str) -> tuple[float, str]:
    """Factor and heading of a metric; active learning has the accuracy of each stage."""
    name, _, stage = metric.partition("_stage")
    one = ALL_SHOWN[name] if stage else ALL_SHOWN[metric]
    return one.factor, f"{one.heading}, stage {stage}" if stage else one.heading


def shown(cell: Cell) -> list[str]:
    assert cell.ours is not None and cell.paper is not None and cell.deviations is not None
    factor, heading = scale(cell.metric)
    values = [with_spread(one.mean, one.std, factor, mark=" ± ") for one in (cell.ours, cell.paper)]
    p = chance(cell.ours, cell.paper)
    method = f"{cell.method}, {cell.out_set}" if cell.out_set else cell.method
    setting = [cell.dataset, cell.model, method, heading]
    return [*setting, *values, f"{cell.deviations:+.1f}", str(cell.ours.n), "" if p is None else f"{p:.2g}"]


def print_gaps(title: str, cells: list[Cell]) -> None:
    beyond = [cell for cell in cells if abs(cell.deviations or 0) > LIMIT]
    chosen = [cell for cell in cells if stands_out(cell)]
    print(
        f"## {title}\n\n{len(beyond)} of {len(cells)} values lie beyond {LIMIT:g} of the paper's standard deviations,"
        f" {len(chosen) - len(beyond)} more have p < {LEVEL:g}.\n"
    )
    header = ["data set", "network", "method", "metric", "ours", "paper", "gap in std", "seeds", "p (Welch)"]
    print(markdown_table(header, [shown(cell) for cell in chosen]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    folder = parser.parse_args().results
    print("# Gaps to the paper's tables\n\nPrinted by `python experiments/gaps.py` from results/.\n")
    for title, tables in TABLES.items():
        cells = [cell for table in tables for cell in comparison_cells(table, folder)]
        print_gaps(title, [cell for cell in cells if cell.deviations is not None])
    print("## Lowest share of correct examinations\n")
    shares = []
    for path in sorted(folder.glob("*-crl-*-seed*.npz")):
        with np.load(path) as arrays:
            share = float((arrays["history_correct"] / arrays["history_examined"]).min())
        shares.append([path.stem, f"{share:.3f}", f"{1 / (1 - share):.2f}"])
    print(markdown_table(["run", "lowest share", "1 / (1 - share)"], shares), end="")


if __name__ == "__main__":
    main()
