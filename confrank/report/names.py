"""Names of files and models, short enough to show and still distinct."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from confrank.analysis import Analysis

MAX_NAME = 60


def with_short_names(analyses: Sequence[Analysis]) -> list[Analysis]:
    """The same analyses under their `short_names`."""
    names = short_names([model.name for model in analyses])
    return [replace(model, name=name) for model, name in zip(analyses, names, strict=True)]


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each path or, where that is the same for all, the parts in which the paths differ.

    >>> short_names(["runs/a-seed0/predictions/test.npz", "runs/a-seed1/predictions/test.npz"])
    ['a-seed0', 'a-seed1']
    >>> short_names(["old/a.csv", "old/b.csv"]), short_names(["old/a.csv", "new/a.csv", "new/b.csv"])
    (['a.csv', 'b.csv'], ['old/a.csv', 'new/a.csv', 'new/b.csv'])
    """
    parts = [Path(name).parts for name in names]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({path[-1] for path in parts}) == 1:
        parts = [path[:-1] for path in parts]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        ends = ["/".join(path[-depth:]) for path in parts]
        if all(ends) and len(set(ends)) == len(ends):
            return ends
    return list(names)


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """A long text without its middle, since names often differ only at the end.

    >>> shortened("a/very/long/path", 9)
    'a/ve…path'
    """
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[-half:]}"


def chart_paths(folder: str | Path) -> list[Path]:
    """The files that `paper_figures` writes: PNG and SVG of each chart."""
    paths = [Path(folder) / name for name in ("risk_coverage", "reliability", "confidence")]
    return [path.with_suffix(suffix) for path in paths for suffix in (".png", ".svg")]
