"""Find the command, run it, and turn mistakes into one line and an exit code."""

import codecs
import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from typing import NoReturn, TextIO

from confrank import __version__
from confrank.cli.active import ACTIVE
from confrank.cli.apply import APPLY
from confrank.cli.calibrate import CALIBRATE
from confrank.cli.command import Command, make_parser
from confrank.cli.data import DATA
from confrank.cli.demo import DEMO
from confrank.cli.evaluate import EVALUATE
from confrank.cli.monitor import MONITOR
from confrank.cli.ood import OOD
from confrank.cli.predict import PREDICT
from confrank.cli.report import REPORT
from confrank.cli.scores import SCORES
from confrank.cli.select import SELECT
from confrank.cli.sets import SETS
from confrank.cli.study import STUDY, TABLE
from confrank.cli.terminal import Printable, drop_output, fail
from confrank.cli.threshold import THRESHOLD
from confrank.cli.train import TRAIN
from confrank.errors import did_you_mean, in_words

GROUPS: dict[str, dict[str, Command]] = {
    "start here": {"demo": DEMO},
    "train and predict": {"train": TRAIN, "predict": PREDICT},
    "evaluate and decide": {
        "evaluate": EVALUATE,
        "scores": SCORES,
        "calibrate": CALIBRATE,
        "threshold": THRESHOLD,
        "sets": SETS,
        "select": SELECT,
        "apply": APPLY,
        "monitor": MONITOR,
    },
    "go further": {"ood": OOD, "active": ACTIVE},
    "reproduce the paper": {"study": STUDY, "table": TABLE, "report": REPORT, "data": DATA},
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
# Printed where the encoding has ASCII only.
SIMILAR = str.maketrans(
    {"×": "x", "²": "^2", "³": "^3", "±": "+-", "σ": " std", "…": "...", "↓": "v", "↑": "^", "†": "*"}
)
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0, 1 if a run failed, 2 for a mistake of the user, 128 + signal if interrupted."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    _print_any_character(sys.stdout)
    with redirect_stdout(Printable(sys.stdout)), redirect_stderr(Printable(sys.stderr)):
        try:
            _run(list(sys.argv[1:] if argv is None else argv))
        except BrokenPipeError:
            _without_reader()
        except OSError as error:  # a help text that cannot be printed
            fail(_unwritten() or in_words(error))
        finally:
            _flush()


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


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return
    if arguments[0] == "--version":
        print(f"confrank {__version__}")
        return
    name, rest = arguments[0], [*map(_expanded, arguments[1:])]
    if name not in COMMANDS:
        hint = ELSEWHERE.get(name) or did_you_mean(name, COMMANDS) or "; see confrank --help"
        fail(f"expected a command among {', '.join(COMMANDS)}, but got {name!r}{hint}")
    sys.exit(_guarded(COMMANDS[name], name, rest))


def _expanded(argument: str) -> str:
    """An argument with ~/ replaced by the home folder, as shells do except in --flag=~/path."""
    return re.sub(r"^(--[\w-]+=)?~/", lambda match: (match[1] or "") + os.path.expanduser("~/"), argument)


def _guarded(command: "Command", name: str, arguments: list[str]) -> int:
    """Run a command, turning mistakes into one line and signals into exit codes."""
    try:
        command.run(make_parser(command, f"confrank {name}").parse_args(arguments))
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


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["usage: confrank [--version] [--help] COMMAND [options]", ""]
    lines += ["Train classifiers whose confidence ranks right predictions above wrong ones; evaluate any model.", ""]
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"  {name:<{width}}  {command.summary}" for name, command in commands.items()]
        lines.append("")
    return "\n".join([*lines, "`confrank COMMAND --help` explains a command."])
