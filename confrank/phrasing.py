"""Numbers and lists in sentences for people."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "image"), counted(2000, "image")
    ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def named(names: Sequence[str], most: int = 5) -> str:
    """
    >>> named(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
