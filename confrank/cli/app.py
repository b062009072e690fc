"""Find the command, run it, and turn mistakes into one line and an exit code."""

import codecs
import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from io import TextIOWrapper
from typing import Any, Literal, NoReturn, TextIO, get_args, get_origin

from cyclopts import App, exceptions

from confrank import __version__
from confrank.cli import decide, measure, research, train  # noqa: F401 - each declares its commands
from confrank.cli.options import APP, DOORS
from confrank.cli.terminal import Printable, drop_output, fail, make_console
from confrank.errors import did_you_mean, in_words

TITLES = {
    "measure": "measure how good a confidence is",
    "decide": "decide which answers to accept",
    "train": "train and predict",
    "research": "research: the paper's experiments, and your own",
}
# What people look for under other names.
ELSEWHERE = {
    **dict.fromkeys(("compare", "diff"), "; use confrank evaluate A.csv B.csv"),
    **dict.fromkeys(("test", "eval", "metrics", "measure"), "; did you mean evaluate?"),
    **dict.fromkeys(("plot", "page"), "; use confrank evaluate FILE --report page.html, or --figures FOLDER"),
    **dict.fromkeys(("policy", "decide"), "; use confrank threshold FILE --risk 0.05 --policy P.json, then apply"),
    **dict.fromkeys(("export", "onnx"), "; use confrank.decisions.export_onnx in Python, see docs/how-to/export.md"),
    **dict.fromkeys(("query", "label", "pool"), "; use confrank active query"),
    **dict.fromkeys(("classify", "infer"), "; did you mean predict?"),
    "fit": "; did you mean train?",
}
OTHER_FLAGS = dict.fromkeys(("--page", "--html"), "--report")
# Printed where the encoding has ASCII only.
SIMILAR = str.maketrans(
    {"×": "x", "²": "^2", "³": "^3", "±": "+-", "σ": " std", "…": "...", "↓": "v", "↑": "^", "†": "*"}
)
HELP_WIDTH = 80


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0, 1 if a run failed, 2 for a mistake of the user, 128 + signal if interrupted."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    _print_any_character(sys.stdout)
    words = list(sys.argv[1:] if argv is None else argv)
    with redirect_stdout(Printable(sys.stdout)), redirect_stderr(Printable(sys.stderr)):
        try:
            if not words or words[0] in ("-h", "--help"):
                print(overview())
            elif words[0] == "--version":
                print(f"confrank {__version__}")
            else:
                sys.exit(_run(words))
        except BrokenPipeError:
            _without_reader()
        finally:
            _flush()


def _run(words: list[str]) -> int:
    """Run a command, turning mistakes into one line and signals into exit codes."""
    try:
        call = parsed(words)
        call()
    except KeyboardInterrupt:
        print("confrank: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        fail(_unwritten() or in_words(error))
    except MemoryError:
        fail("expected input that fits into memory, but it does not; use a smaller file or a larger machine")
    except RecursionError:
        fail("expected settings, metadata and JSON with few levels, but got brackets nested thousands deep")
    except RuntimeError as error:
        return _stopped_run(error)
    return 0


def overview() -> str:
    """The commands by what people do with them, one line each."""
    lines = ["usage: confrank [--version] [--help] COMMAND [options]", "", APP.help, ""]
    width = max(len(name) for names in DOORS.values() for name in names)
    for door, names in DOORS.items():
        lines += [f"{TITLES[door]}:", *(f"  {name:<{width}}  {_summary(name)}" for name in names), ""]
    return "\n".join([*lines, "`confrank COMMAND --help` explains a command."])


def _summary(name: str) -> str:
    first = (APP[name].help or "").splitlines()[0].rstrip(".")
    return f"{first[0].lower()}{first[1:]}"


def parsed(words: Sequence[str]) -> "partial[Any]":
    """The call that these words ask for; a mistake in them is a ValueError that names the remedy."""
    arguments = [_expanded(word) for word in words]
    asked = [word for word in arguments if word not in ("-h", "--help")]
    _, apps, rest = APP.parse_commands(asked)
    command = apps[-1]
    if command is not APP and len(asked) < len(arguments):
        return partial(APP.help_print, asked, console=make_console(width=HELP_WIDTH))
    if command.default_command is None:
        raise ValueError(_no_command(command, rest))
    try:
        function, bound, _ = APP.parse_args(_switched(command, arguments), exit_on_error=False, print_error=False)
    except exceptions.CycloptsError as error:
        raise ValueError(worded(error, command, rest)) from None
    return partial(function, *bound.args, **bound.kwargs)


def _expanded(argument: str) -> str:
    """An argument with ~/ replaced by the home folder, as shells do except in --flag=~/path."""
    return re.sub(r"^(--[\w-]+=)?~/", lambda match: (match[1] or "") + os.path.expanduser("~/"), argument)


def _switched(command: App, words: list[str]) -> list[str]:
    """The words with `--flag true` and `--flag false` written as one; an error if an option is unknown."""
    arguments = command.assemble_argument_collection()
    known = [name for one in arguments for name in one.names]
    switches = [name for one in arguments if bool in (one.hint, *get_args(one.hint)) for name in one.names]
    joined: list[str] = []
    for word in words:
        flag = word.partition("=")[0]
        if re.match("--?[A-Za-z]", flag) and flag.replace("_", "-") not in known:
            hint = _option_of(flag) or did_you_mean(OTHER_FLAGS.get(flag, flag), known) or "; see --help"
            raise ValueError(f"expected a known option, but got {flag!r}{hint}")
        if joined and joined[-1] in switches and word in ("true", "false"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _no_command(app: App, rest: Sequence[str]) -> str:
    if app is APP:
        names = [name for names in DOORS.values() for name in names]
        hint = ELSEWHERE.get(rest[0]) or did_you_mean(rest[0], names) or "; see confrank --help"
        return f"expected a command among {', '.join(names)}, but got {rest[0]!r}{hint}"
    names = [name for name in app.resolved_commands() if not name.startswith("-")]
    got = f"{rest[0]!r}{did_you_mean(rest[0], names)}" if rest else "nothing; see --help"
    return f"expected one of {', '.join(names)}, but got {got}"


def worded(error: exceptions.CycloptsError, command: App, rest: Sequence[str]) -> str:
    """A mistake in the words of a command, as one line: what was expected, what came, and what to do."""
    name = "" if error.argument is None else error.argument.name
    tokens = [] if error.argument is None else error.argument.tokens
    if isinstance(error, exceptions.MissingArgumentError):
        given = error.keyword or next((token.keyword for token in tokens), None)
        if given:
            return f"expected a value after {given}, but got none"
        return f"expected {name}, but got none; see --help"
    if isinstance(error, exceptions.ValidationError):
        return f"expected {name} {error.exception_message}"
    if isinstance(error, exceptions.UnusedCliTokensError) and error.unused_tokens:
        word = error.unused_tokens[0]
        before = rest[rest.index(word) - 1] if word in rest[1:] else ""
        if before.startswith("--"):
            return f"expected true or false for {before}, but got {word!r}"
        return f"expected no further argument, but got {word!r}; see --help"
    if isinstance(error, exceptions.CoercionError) and error.token is not None:
        if error.msg is not None:
            return str(error.msg)
        value, kind = error.token.value, error.target_type
        if get_origin(kind) is Literal:
            choices = [str(one) for one in get_args(kind)]
            hint = did_you_mean(value, choices)
            return f"expected {name} to be one of {', '.join(choices)}, but got {value!r}{hint}"
        return f"expected true or false for {name}, but got {value!r}"
    error.verbose = False
    return f"expected arguments as in --help, but got: {error}"


def _option_of(flag: str) -> str:
    """The end of a message about an option that another command has."""
    for names in DOORS.values():
        for name in names:
            app = APP[name]
            if app.default_command and any(flag in one.names for one in app.assemble_argument_collection()):
                return f"; {flag} is an option of confrank {name}"
    return ""


def _print_any_character(stream: TextIO) -> None:
    """Let a stream whose encoding lacks a character, such as ASCII, print a similar one or its code instead."""
    if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        codecs.register_error("confrank", _replacement)
        stream.reconfigure(errors="confrank")


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    try:
        return missing.encode("ascii", "surrogateescape"), error.end  # bytes of a path
    except UnicodeEncodeError:
        return missing.translate(SIMILAR).encode("ascii", "backslashreplace"), error.end


def _flush() -> None:
    """Write buffered output now, where a missing reader is not mistaken for an error."""
    try:
        if problem := _unwritten():
            fail(problem)
    except BrokenPipeError:
        _without_reader()


def _unwritten() -> str:
    """Why standard output cannot be written, in words, such as a full disk; empty if it can. It is dropped then."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output(sys.stdout)
        closed = error.errno == errno.EIO  # a closed terminal
        return "" if closed else f"expected to be able to write standard output, but got: {error.strerror}"
    return ""


def _without_reader() -> NoReturn:
    drop_output(sys.stdout)
    sys.exit(128 + signal.SIGPIPE)


def _stopped_run(error: RuntimeError) -> int:
    from torch import OutOfMemoryError

    from confrank.training import DivergedError, InterruptedRunError

    if isinstance(error, InterruptedRunError):
        with suppress(OSError):  # a closed terminal
            print(f"confrank: {error}", file=sys.stderr)
        return 128 + error.signal_number
    if isinstance(error, DivergedError):
        print(f"confrank: error: {in_words(error)}", file=sys.stderr)
        return 1
    if isinstance(error, OutOfMemoryError) or "can't allocate memory" in str(error):  # on a GPU, on a CPU
        remedy = "use smaller batches, fewer runs side by side, a smaller network or another --device"
        fail(f"expected a network and batches that fit into memory, but they do not; {remedy}")
    raise error


def reference() -> str:
    """The help of every command as Markdown, for the documentation."""

    def with_example(match: re.Match[str]) -> str:
        app = APP
        for name in match[1].split():
            app = app[name]
        if app.help_epilogue is None:
            return match[0]
        example, _, guide = app.help_epilogue.removeprefix("example: ").partition("\n\nguide: docs/")
        return f"{match[0]}\n\n```bash\n{example}\n```\n\n[Guide](../{guide})"

    return re.sub(r"^#+ confrank (.+)$", with_example, str(APP.generate_docs()), flags=re.MULTILINE)
