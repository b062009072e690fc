"""How long to train on few texts: epochs of a bag of embeddings, with the other defaults of texts.

    python experiments/text_epochs.py [--seeds 0,1,2]

The texts are paragraphs of the docstrings of four installed packages, and the package is the class. 2,000 paragraphs
are the test split; the same ones for every number of training texts.
"""

import argparse
import ast
import csv
import importlib.util
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import torch

from confrank.recipes import settings
from confrank.training import train

PACKAGES = ("matplotlib", "scipy", "sklearn", "torch")
NUM_TEST, METRICS = 2000, {"acc": 100, "aurc": 1000, "ece": 100, "nll": 10}


def paragraphs(package: str) -> Iterator[str]:
    """The paragraphs of 60 to 600 characters in the docstrings of a package."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None
    for file in sorted(Path(found.origin).parent.rglob("*.py")):
        if "test" in str(file):  # some of these are for other versions of Python
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                texts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", ast.get_docstring(node) or ""))
                yield from (text for text in texts if 60 < len(text) < 600 and ">>>" not in text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    seeds = [int(seed) for seed in parser.parse_args().seeds.split(",")]
    torch.set_num_threads(1)
    rows = [(text, package) for package in PACKAGES for text in sorted({*paragraphs(package)})]
    random.Random(0).shuffle(rows)
    print(f"| texts | epochs | steps | n | {' | '.join(METRICS)} |\n{'|---' * (4 + len(METRICS))}|", flush=True)
    for num_texts in (80, 240, 800, 2400):
        for epochs in (20, 60, 200, 600)[: 3 if num_texts == 2400 else 4]:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "docstrings.csv"
                used = [(*row, "test") for row in rows[:NUM_TEST]]
                used += [(*row, "train") for row in rows[NUM_TEST : NUM_TEST + num_texts]]
                with file.open("w", newline="") as out:
                    csv.writer(out).writerows([("text", "label", "split"), *used])
                configs = [settings("paper", dataset=str(file), epochs=epochs, seed=seed) for seed in seeds]
                runs = [train(one, Path(folder) / one.run_name, device="cpu") for one in configs]
            values = {name: [run.evaluations["test"].metrics[name] or 0.0 for run in runs] for name in METRICS}
            cells = [
                f"{by * mean(values[name]):.1f} ± {by * stdev(values[name]):.1f}" for name, by in METRICS.items()
            ]
            steps = -(-num_texts // configs[0].batch_size) * epochs
            print(f"| {num_texts} | {epochs} | {steps} | {len(seeds)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
