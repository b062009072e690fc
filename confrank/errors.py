"""Errors that say what to do, and counts, lists of names and tables as text."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path


class Remedied(Exception):
    """An error with a problem, and a remedy that names parameters in braces.

    Python callers read the parameter's name; the command line replaces it with its flag.

    >>> error = InputError("expected a new folder, but runs holds other files", "choose another {out}")
    >>> print(error)
    expected a new folder, but runs holds other files; choose another `out`
    >>> error.worded("--{}".format)
    'expected a new folder, but runs holds other files; choose another --out'
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(self.worded("`{}`".format))

    def __reduce__(self) -> tuple[type["Remedied"], tuple[str, str]]:
        """Pickle both parts: an error may come from another process."""
        return type(self), (self.problem, self.remedy)

    def worded(self, parameter: Callable[[str], str]) -> str:
        """The message, with each parameter of the remedy worded by `parameter`."""
        remedy = re.sub(r"\{(\w+)\}", lambda match: parameter(match[1]), self.remedy)
        return f"{self.problem}; {remedy}" if remedy else self.problem


class InputError(Remedied, ValueError):
    """A user's mistake."""


class ParameterError(InputError):
    """A parameter with a value that it cannot have. The command line names its flag.

    >>> error = ParameterError("batch_size", "to be at least 1, but got 0")
    >>> print(error)
    expected batch_size to be at least 1, but got 0
    >>> error.worded("--{}".format)
    'expected --batch_size to be at least 1, but got 0'
    """

    def __init__(self, name: str, wanted: str) -> None:
        self.name, self.wanted = name, wanted
        super().__init__(f"expected {name} {wanted}")

    def __reduce__(self) -> tuple[type["ParameterError"], tuple[str, str]]:
        return type(self), (self.name, self.wanted)

    def __str__(self) -> str:
        return self.problem

    def worded(self, parameter: Callable[[str], str]) -> str:
        return f"expected {parameter(self.name)} {self.wanted}"


@contextmanager
def about(name: object) -> Iterator[None]:
    """Begin errors with what they are about, in one line.

    >>> with about("a.csv"):
    ...     raise ValueError("expected labels,\\nbut there are none")
    Traceback (most recent call last):
    ValueError: a.csv: expected labels, but there are none
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {' '.join(error.problem.splitlines())}", error.remedy) from None
    except ValueError as error:
        raise ValueError(f"{name}: {' '.join(str(error).splitlines())}") from None


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its kind if it says nothing.

    >>> first_line(RuntimeError("out of luck\\nat 0x7f")), first_line(RuntimeError())
    ('out of luck', 'RuntimeError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def similar_path(path: Path) -> str:
    """The end of a message that suggests a path with a similar name in the same folder; empty if there is none.

    A path with a suffix is taken for a file.

    >>> similar_path(Path(__file__).with_name("erors.py")) == f"; did you mean {__file__}?"
    True
    """
    entries = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [entry.name for entry in entries if entry.is_file() or not path.suffix]
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "image"), counted(2000, "image"), counted(2, "class")
    ('1 image', '2,000 images', '2 classes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def named(names: Sequence[str], most: int = 5) -> str:
    """
    >>> named(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
_SIGNS |= dict.fromkeys(range(128, 160), 0xFFFD)


def printable(text: str) -> str:
    """Text with signs in place of the control characters that a terminal would obey.

    >>> printable("\\x1b[2J.csv")
    '␛[2J.csv'
    """
    return text.translate(_SIGNS)


def joined(words: Sequence[str]) -> str:
    """
    >>> joined(["a score"]), joined(["a score", "a threshold", "sets"])
    ('a score', 'a score, a threshold and sets')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def class_text(names: Sequence[str] | None, number: int) -> str:
    """The name of a class, or its number as text if it has none.

    >>> class_text(["cat", "dog"], 1), class_text(None, 1)
    ('dog', '1')
    """
    return names[number] if names and 0 <= number < len(names) else str(number)


def sentence(text: str) -> str:
    """
    >>> sentence("the guarantee holds")
    'The guarantee holds.'
    """
    return f"{text[0].upper()}{text[1:]}."


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message that suggests the nearest known word, or one that starts like it; empty if none does.

    Suffixes of files are never suggested.

    >>> did_you_mean("crl", ["baseline", "crl-softmax"]), did_you_mean("x", ["baseline"])
    ('; did you mean crl-softmax?', '')
    """
    words = [one for one in known if not one.startswith(".")]
    close = get_close_matches(word, words, n=1) or [one for one in words if len(word) > 1 and one.startswith(word)]
    return f"; did you mean {close[0]}?" if close else ""


def flag_of(parameter: str) -> str:
    """
    >>> flag_of("batch_size")
    '--batch-size'
    """
    return f"--{parameter.replace('_', '-')}"


def in_words(error: Exception, flag: Callable[[str], str] = flag_of) -> str:
    """An error as one line: what was expected, what came, and the nearest known name where a name is unknown.

    `flag` words the parameters of a remedy.

    >>> in_words(PermissionError(13, "Permission denied", "runs"))
    'expected to be able to read or write runs, but got: Permission denied; fix that or choose another path'
    >>> in_words(NotADirectoryError(20, "Not a directory", "runs/a"))
    'expected a folder, but runs/a is a file or inside one; choose another path'
    >>> in_words(ValueError("expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'"))
    "expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'; did you mean vgg16?"
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
        return _system_words(error, path.parent if path.name.startswith(".") and path.suffix == ".part" else path)
    if isinstance(error, OSError) and error.strerror:  # an unbuffered standard output, or a connection
        return f"expected to be able to read and write, but got: {error.strerror}; fix that and try again"
    message = error.worded(flag) if isinstance(error, Remedied) else str(error)
    match = re.fullmatch(r"expected [\w ]+ among (.*), but got '([^']*)'", message)
    return message + did_you_mean(match[2], re.split(r", (?:or )?| or ", match[1])) if match else message


def _system_words(error: OSError, path: Path) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"expected a folder, but {path} is a file or inside one; choose another path"
    if isinstance(error, IsADirectoryError):
        return f"expected a file, but {path} is a folder; choose another path"
    why = f"{error.strerror}; fix that or choose another path"
    return f"expected to be able to read or write {path}, but got: {why}"
