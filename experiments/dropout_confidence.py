"""Do the dropout methods rank better by the largest mean probability than by the entropy?

    python experiments/dropout_confidence.py [--results results]

The paper ranks mcdropout and aleatoric-mc by the entropy of the mean probabilities and every other method by the
largest probability. The results hold both, so this ranks each run both ways (test split, 10,000 images).
"""

import argparse
from pathlib import Path

import numpy as np

from confrank import evaluate
from confrank.report.paper_table import markdown_table
from confrank.report.scales import SHOWN

METRICS = ("aurc", "e_aurc", "aupr_error", "fpr95")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    rows = []
    for path in sorted(parser.parse_args().results.glob("*.npz")):
        if "mcdropout" not in path.stem and "aleatoric" not in path.stem:
            continue
        with np.load(path) as arrays:
            for name, column in (("entropy", "confidence"), ("largest probability", "probability")):
                metrics = evaluate(confidence=arrays[column], correct=arrays["correct"]).metrics
                cells = (f"{metrics[metric] * SHOWN[metric].factor:.2f}" for metric in METRICS)
                rows.append([path.stem, name, *cells])
    print(markdown_table(["run", "ranked by", *(SHOWN[metric].heading for metric in METRICS)], rows))


if __name__ == "__main__":
    main()
