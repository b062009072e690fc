"""What an object prints, and what a notebook shows for it: lines of text, tables and curves, defined once for both.

The HTML has no colours of its own except those of curves, which are readable on white and on black: text and lines
take the colour of the notebook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from confrank.axes import SIZE, Tick, line, risk_axis_limit, ticks

COLOURS = ("#4285f4", "#e0701a", "#1a9e7c", "#c455be", "#a88400", "#e04d74")
# Points of a curve that a small chart can show.
NUM_POINTS = 200
WIDTH, HEIGHT = 400, 240
CELL = "padding:0.15em 0.7em;vertical-align:top;white-space:pre-line;text-align:"
RULE = "border-bottom:1px solid rgba(128,128,128,0.5);"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Rows of cells, the first of which names the row, and the headings above them, if there are any.

    In a notebook, all columns but the first `words` are aligned to the right.
    """

    rows: Sequence[Sequence[str]]
    heading: Sequence[str] = ()
    words: int = 1

    def text(self) -> str:
        return aligned([self.heading, *self.rows] if self.heading else self.rows)

    def html(self) -> str:
        head = f'<thead><tr style="{RULE}">{self._cells(self.heading, "th")}</tr></thead>' if self.heading else ""
        body = "".join(f"<tr>{self._cells(row, 'td')}</tr>" for row in self.rows)
        return f'<table style="border-collapse:collapse;margin:0.4em 0">{head}<tbody>{body}</tbody></table>'

    def _cells(self, row: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="{CELL}{"left" if column < self.words else "right"}">{escape(cell)}</{tag}>'
            for column, cell in enumerate(row)
        )


@dataclass(frozen=True)
class Curves:
    """Risk-coverage curves by name, as (coverage, risk), for notebooks only."""

    curves: Mapping[str, tuple[Floats, Floats]]

    @property
    def limit(self) -> float:
        """The top of the axis of error rates: the few most confident predictions do not decide it."""
        tops = [risk[coverage >= 0.02].max(initial=0.0) for coverage, risk in self.curves.values()]
        return risk_axis_limit(map(float, tops))

    def html(self) -> str:
        down = [tick for tick in ticks(self.limit, count=4) if tick.position <= 100]
        grid = "".join(_rule(0, SIZE * (1 - tick.position / 100), SIZE, 0) for tick in down)
        paths = "".join(self._path(*each, number) for number, each in enumerate(self.curves.values()))
        labels = "".join(_text(-8, HEIGHT * (1 - tick.position / 100) + 4, tick, "end") for tick in down)
        labels += "".join(_text(WIDTH * tick.position / 100, HEIGHT + 16, tick, "middle") for tick in ticks(1.0))
        box = f'<svg x="0" y="0" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {SIZE} {SIZE}"'
        names = ", ".join(self.curves)
        return (
            f'<svg role="img" aria-label="{escape(f"risk-coverage curve of {names}")}" width="{WIDTH + 80}"'
            f' height="{HEIGHT + 50}" viewBox="-60 -10 {WIDTH + 80} {HEIGHT + 50}"'
            ' style="max-width:100%;font:12px system-ui,sans-serif;fill:currentColor">'
            f'{box} preserveAspectRatio="none" style="overflow:hidden">{grid}{paths}</svg>{labels}'
            f'<text x="{WIDTH / 2}" y="{HEIGHT + 34}" text-anchor="middle">coverage</text>'
            f'<text transform="translate(-48 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
            f"error rate among accepted</text></svg>{self._legend()}"
        )

    def _path(self, coverage: Floats, risk: Floats, number: int) -> str:
        last = len(coverage) - 1
        kept = np.unique(np.linspace(0, last, min(NUM_POINTS, last + 1)).round().astype(np.int64))
        shape = line(coverage[kept], np.minimum(risk[kept], 2 * self.limit), y_limit=self.limit)
        return (
            f'<path d="{shape}" fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"'
            ' vector-effect="non-scaling-stroke"/>'
        )

    def _legend(self) -> str:
        if len(self.curves) < 2:
            return ""
        entries = [
            f'<span style="margin-right:1em"><span style="color:{COLOURS[number % len(COLOURS)]}">&#9632;</span>'
            f" {escape(name)}</span>"
            for number, name in enumerate(self.curves)
        ]
        return f'<div style="margin-left:60px">{"".join(entries)}</div>'


def _rule(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<path d="M{x:g} {y:g}l{width:g} {height:g}" stroke="currentColor" stroke-opacity="0.2"'
        ' vector-effect="non-scaling-stroke"/>'
    )


def _text(x: float, y: float, tick: Tick, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{tick.text}</text>'


Shown = str | Grid | Curves


class Displayed:
    """An object that is printed and shown in a notebook as the parts that its class gives."""

    def _display(self) -> Sequence[Shown]:
        raise NotImplementedError

    def __repr__(self) -> str:
        parts = [part for part in self._display() if not isinstance(part, Curves)]
        return "\n".join(part if isinstance(part, str) else part.text() for part in parts)

    def _repr_html_(self) -> str:
        shown = [
            f'<p style="margin:0.4em 0;max-width:50em">{escape(part)}</p>' if isinstance(part, str) else part.html()
            for part in self._display()
            if part
        ]
        return f"<div>{''.join(shown)}</div>"


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
