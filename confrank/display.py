"""Tables in what an object prints."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines of text, with each column as wide as its longest cell.

    >>> print(aligned([["", "a"], ["acc", "0.95"], ["fpr95", "-"]]))
           a
    acc    0.95
    fpr95  -
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(one.rstrip() for one in lines)
