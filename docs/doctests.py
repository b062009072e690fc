"""Doctests in docstrings as code blocks of the API reference."""

import re
from typing import Any

import griffe

# From the first prompt of a paragraph to its end; expected output follows its prompt without an empty line.
DOCTEST = re.compile(r"^(>>> .*(?:\n(?!\n).+)*)", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Fences every doctest, which Markdown would take for a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\1\n```", obj.docstring.value)
