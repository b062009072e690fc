"""Unlabelled texts by name: a .csv, .tsv or .jsonl file with `text` and, optionally, `id`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from confrank.active.strategies import Numbered, Rows
from confrank.data.sets import DataSet
from confrank.data.texts import LabelledTexts, read_texts, text_data_set
from confrank.data.vocabulary import encode
from confrank.provenance import Provenance

# Texts are encoded in blocks of this size, so that a large pool is not in memory twice.
BLOCK = 1024


@dataclass(frozen=True)
class TextPool:
    """Texts [n]; a name is the `id` of a text or, without one, its row. `length` and below are for training."""

    path: Path
    names: Sequence[str]
    texts: Sequence[str]
    length: int
    vocabulary_size: int
    kind = "text"
    key = "id"

    def inputs(self, rows: Rows, record: Provenance) -> Iterator[NDArray[np.int32]]:
        """The texts of these rows in turn, as numbers of the words that the run knows."""
        for start in range(0, len(rows), BLOCK):
            texts = [self.texts[row] for row in rows[start : start + BLOCK].tolist()]
            yield from encode(texts, record.vocabulary, record.input_shape[0])

    def identity(self, row: int) -> str:
        """What scores of a row depend on."""
        return f"{self.names[row]}\0{self.texts[row]}\0"

    def columns(self, rows: Rows) -> dict[str, list[str]]:
        """What people need to label these rows; every line break is a plain one, which CSV readers agree on."""
        return {"text": ["\n".join(self.texts[row].splitlines()) for row in rows.tolist()]}

    def data_set(self, classes: tuple[str, ...], train: Numbered, test: Numbered) -> DataSet:
        """The data set of these rows and their class numbers."""
        parts = (
            LabelledTexts(
                [self.texts[row] for row in rows.tolist()], labels, rows, [self.names[row] for row in rows.tolist()]
            )
            for rows, labels in (train, test)
        )
        return text_data_set(self.path, classes, *parts, length=self.length, vocabulary_size=self.vocabulary_size)

    def changed(self, texts: Mapping[str, str]) -> list[str]:
        """The names whose text is another one in this pool, apart from spaces and line breaks."""
        row_of = {name: row for row, name in enumerate(self.names)}
        return [
            name
            for name, text in texts.items()
            if name in row_of and text.split() != self.texts[row_of[name]].split()
        ]


def read_text_pool(path: Path, length: int, vocabulary_size: int) -> TextPool:
    """The texts of a file; labels, if any, are not read."""
    content = read_texts(path, labelled=False)
    return TextPool(path, content.keys, content.texts, length, vocabulary_size)
