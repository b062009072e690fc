"""Characters that the current font lacks: use another installed font that has them, or draw their codes."""

from collections.abc import Iterable
from functools import cache

from matplotlib import rcParams
from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager, get_font


def drawable(text: str) -> str:
    """The text as it can be drawn, after adding fonts if needed.

    >>> drawable("modèle ж \\U000f0000")
    'modèle ж \\\\U000f0000'
    """
    missing = _missing(text)
    return "".join(char.encode("unicode_escape").decode() if char in missing else char for char in text)


def font_notes(texts: Iterable[str]) -> list[str]:
    """A note if characters of these texts are drawn as codes."""
    missing = "".join(sorted(_missing("".join(texts))))
    return [f"no installed font has {missing[:20]}: figures show their codes instead"] if missing else []


def _missing(text: str) -> set[str]:
    """The characters that no installed font has; fonts that have some of the others are added to those in use."""
    missing = {*text} - {"\n"}
    for family in rcParams["font.family"]:
        missing -= letters_of(findfont(FontProperties(family=[family])))
    for char in sorted(missing):
        if char in missing and (font := _font_with(char, len(fontManager.ttflist))):
            rcParams["font.family"] = [*rcParams["font.family"], font.name]
            missing -= letters_of(font.fname)
    return missing


@cache
def letters_of(path: str) -> frozenset[str]:
    """The characters that the font in a file has."""
    font = get_font(path)
    return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()


@cache
def _font_with(char: str, num_fonts: int) -> FontEntry | None:
    """The first font that has a character, of `num_fonts` installed; matplotlib's last resort draws boxes only."""
    upright = (font for font in fontManager.ttflist if font.style == "normal" and font.weight == 400)
    fonts = (font for font in upright if not font.name.startswith("Last Resort") and char in letters_of(font.fname))
    return next(fonts, None)
