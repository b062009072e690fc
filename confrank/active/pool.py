"""Unlabelled samples by name: a folder of pictures, an .npz of images, texts, or a file of a model's outputs."""

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from confrank.active.image_pool import ArchivePool, FolderPool, ImagePool, image_header
from confrank.active.labelled import Labelled
from confrank.active.strategies import Rows
from confrank.active.text_pool import TextPool, read_text_pool
from confrank.config import TEXT_LENGTH, VOCABULARY_SIZE
from confrank.data.pictures import picture_files
from confrank.errors import InputError, ParameterError, about, named
from confrank.files import check_npz
from confrank.predictions import Array
from confrank.predictions.arrays import tensor
from confrank.predictions.roles import PREFIXES, role_of
from confrank.predictions.tables import Text, Wanted, open_table
from confrank.recipes import TEXT_SUFFIXES
from confrank.spreadsheet import filled, long_fields

SCORES = ("probabilities", "logits", "confidence")
# In addition to the roles in files of predictions.
POOL_ROLES = {"path": "path", "paths": "path", "id": "path", "features": "features", "embeddings": "features"}


@dataclass(frozen=True)
class TablePool:
    """A model's outputs for each sample: `probabilities` or `logits` [n, K], `confidence` [n], `features` [n, d]."""

    path: Path
    names: Sequence[str]
    arrays: dict[str, Array]
    key = "path"

    def columns(self, rows: Rows) -> dict[str, list[str]]:
        """Nothing that people could look at."""
        return {}


SamplePool = ImagePool | TextPool
Pool = SamplePool | TablePool


def open_pool(
    path: Path,
    image_size: int | None = None,
    *,
    text_length: int = TEXT_LENGTH,
    vocabulary_size: int = VOCABULARY_SIZE,
    prefer_texts: bool = False,
) -> Pool:
    """The pool at a path; its names are unique, and it is not empty.

    With `prefer_texts`, a CSV with texts and scores is a pool of texts, otherwise one of a model's outputs.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in picture_files(path)]
        pool: Pool = FolderPool(path, names, image_size)
    elif not path.is_file() or suffix not in (*READERS, *TEXT_SUFFIXES):
        state = "" if path.exists() else ", which does not exist"
        known = ", ".join(dict.fromkeys((*READERS, *TEXT_SUFFIXES)))
        wanted = f"to be a folder of images or a file ending in {known}, but got {path}{state}"
        raise ParameterError("pool", wanted)
    elif _holds_texts(path, prefer_texts):
        if image_size is not None:
            raise InputError(
                f"expected an image size only for images, but {path} holds texts", "leave out {image_size}"
            )
        pool = read_text_pool(path, text_length, vocabulary_size)
    else:
        try:
            pool = READERS[suffix](path)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise ValueError(f"expected an intact {suffix} file, but {path} cannot be read: {error}") from None
    if not pool.names:
        raise ValueError(f"expected samples in the pool, but {path} is empty")
    if unfit := [name for name in pool.names if not name or name != name.strip().encode(errors="ignore").decode()]:
        raise ValueError(
            f"expected names in UTF-8 without spaces around them in {path}, but got {unfit[0]!a}; rename it"
        )
    if len({*pool.names}) < len(pool.names):
        repeated = [name for name, number in Counter(pool.names).items() if number > 1]
        raise ValueError(f"expected each {pool.key} once in {path}, but got {named(repeated)} more than once")
    return pool


def kind_of(path: Path) -> str:
    """What a pool to train on holds, "image" or "text", by its path; anything else counts as images."""
    return TextPool.kind if path.is_file() and _holds_texts(path, prefer_texts=True) else ImagePool.kind


def check_texts(pool: Pool, labelled: Labelled) -> None:
    """Raise if the file of labels repeats texts, and the pool has others under their names."""
    if isinstance(pool, TextPool) and (changed := pool.changed(labelled.texts)):
        raise ValueError(
            f"expected the texts of {pool.path} in {labelled.path}, but got another text for {named(changed)};"
            " use the pool of these labels, and a column id, so that names do not depend on the rows of the file"
        )


def _holds_texts(path: Path, prefer_texts: bool) -> bool:
    """Whether a file is a pool of texts: JSON lines, or a CSV with a column text and no scores, unless preferred."""
    if path.suffix.lower() != ".csv":
        return path.suffix.lower() in TEXT_SUFFIXES
    # Read leniently: what is wrong with a file of texts is reported by whoever reads it next.
    with path.open("rb") as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with path.open(newline="", encoding=encoding, errors="replace") as file, long_fields(), suppress(csv.Error):
        cells = next(filled(csv.reader(file)), [])
        header = [name.strip() for name in (cells if len(cells) != 1 else re.split(r"[;\t|]", cells[0]))]
        return "text" in map(str.lower, header) and (prefer_texts or not {*_columns(header)} - {"path"})
    return False


def _roles(names: Iterable[str]) -> dict[str, str]:
    """The name of the array or column for each role, as in files of predictions; the role's own name wins.

    >>> _roles(["Paths", "probs", "confidence", "score", "label"])
    {'path': 'Paths', 'probabilities': 'probs', 'confidence': 'confidence'}
    """
    candidates: dict[str, list[str]] = {}
    for name in names:
        plain = name.strip().lower()
        role = POOL_ROLES.get(plain) or role_of(plain)
        if role in (*SCORES, *POOL_ROLES.values()):
            candidates.setdefault(role, []).append(name)
    roles = {}
    for role, given in candidates.items():
        chosen = [name for name in given if name.strip().lower() == role] or given
        if len(given) > 1 and chosen is given:
            raise ValueError(f"expected one {role}, but got {', '.join(given)}")
        roles[role] = chosen[0]
    return roles


def _from_npz(path: Path) -> ArchivePool | TablePool:
    with zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist()]
        if "images" in keys:
            with archive.open("images.npy") as stream:
                (length, *_), _ = image_header(stream, path)
    if "images" not in keys:
        check_npz(path)
    with np.load(path, allow_pickle=False) as file:
        arrays = {role: file[key] for role, key in _roles(keys).items()}
    if "images" not in keys:
        return _table(path, arrays)
    return ArchivePool(path, _names(path, arrays, length))


def _from_safetensors(path: Path) -> TablePool:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {role: tensor(path, file, key) for role, key in _roles(file.keys()).items()}
    except (SafetensorError, OSError, TypeError) as error:  # raised for unsupported content
        raise ValueError(f"expected a safetensors file, but {path} cannot be read: {error}") from None
    return _table(path, arrays)


def _from_csv(path: Path) -> TablePool:
    """Columns `path`, and `confidence`, `probability_NAME`, `logit_NAME` or `feature_NAME`."""
    with about(path):
        opened = open_table(path)
    groups = _columns(opened.names)
    if "path" not in groups or len(groups) < 2:
        raise ValueError(
            f"expected the columns path and confidence, probability_*, logit_* or feature_*, or text, in {path},"
            f" but got {', '.join(opened.names) or 'nothing'}"
        )
    numbers = [opened.names[column] for role, columns in groups.items() if role != "path" for column in columns]
    name = opened.names[groups["path"][0]]
    with about(path):
        content = opened.load(Wanted(words=[name], classes=numbers))
    paths, table = content.named[name], content.classes
    assert table is not None and isinstance(paths, Text)
    arrays: dict[str, Array] = {"path": np.array(paths.values, dtype=object)[paths.codes]}
    start = 0
    for role, group in groups.items():
        if role != "path":
            part = table[:, start : start + len(group)]
            arrays[role] = part[:, 0] if role == "confidence" else part
            start += len(group)
    return _table(path, arrays)


def _columns(header: Sequence[str]) -> dict[str, list[int]]:
    """The columns of each role; several columns with one prefix are a table, a single one is not."""
    groups = {role: [header.index(name)] for role, name in _roles(header).items()}
    for role, prefixes in {**PREFIXES, "features": ("feature_",)}.items():
        for prefix in prefixes:
            columns = [number for number, name in enumerate(header) if name.strip().lower().startswith(prefix)]
            if len(columns) > 1:
                groups[role] = columns
                break
    return groups


READERS = {".npz": _from_npz, ".safetensors": _from_safetensors, ".csv": _from_csv}


def _table(path: Path, given: dict[str, Array]) -> TablePool:
    arrays = {role: values for role, values in given.items() if role != "path"}
    if not arrays:
        raise ValueError(f"expected images, {', '.join(SCORES)} or features in {path}, but it has none of them")
    lengths = {key: len(np.atleast_1d(values)) for key, values in arrays.items()}
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{length} in {key}" for key, length in lengths.items())
        raise ValueError(f"expected the same number of rows in each array of {path}, but got {shown}")
    for key, values in arrays.items():
        if values.ndim != (1 if key == "confidence" else 2) or values.dtype.kind not in "fiu":
            raise ValueError(f"expected {key} of numbers in {path}, but got {values.dtype} {list(values.shape)}")
    return TablePool(path, _names(path, given, next(iter(lengths.values()))), arrays)


def _names(path: Path, arrays: dict[str, Array], length: int) -> list[str]:
    """The file's `path` array if it has one, otherwise the row numbers."""
    given = arrays.get("path")
    if given is None:
        return [str(row) for row in range(length)]
    if given.shape != (length,):
        raise ValueError(f"expected a path for each of {length} samples in {path}, but got {list(given.shape)}")
    return [name.decode() if isinstance(name, bytes) else str(name) for name in given.tolist()]
