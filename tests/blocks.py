"""The code blocks of a Markdown page, run in order in the current directory.

Python blocks share one namespace. In shell blocks `confrank` runs in this process and other lines run in bash; `make`
and `pip` lines are not run. A block after the comment `<!-- needs: data -->` (or gpu, cluster, minutes) is parsed
only. One after `<!-- exits: 3 -->` must end with that exit code. One after `<!-- output -->` is what the block before
it prints; one after `<!-- file: NAME -->` is written to that file.
"""

import contextlib
import doctest
import io
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from confrank.cli.app import main, parsed

FENCE = re.compile(r"(?:^<!-- (?P<note>[^>]+) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
LANGUAGES = {"python", "bash", "text", "csv", "yaml"}
NEEDS = {"data", "gpu", "cluster", "minutes"}
MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block with its language and the comment before it."""

    language: str
    text: str
    note: str | None

    @property
    def code(self):
        return int(self.note.removeprefix("exits: ")) if self.note and self.note.startswith("exits: ") else 0

    @property
    def needs(self):
        return self.note.removeprefix("needs: ") if self.note and self.note.startswith("needs: ") else None


def blocks(page):
    """The blocks of a page; each has a language, and each comment is one that we know.

    A fence that is not matched, e.g. an indented one, would never run: it is an error.
    """
    text = Path(page).read_text()
    found = [Block(match["language"], match["text"], match["note"]) for match in FENCE.finditer(text)]
    assert len(re.findall(r"^\s*```", text, re.M)) == 2 * len(found), f"{page}: a fence that would not be run"
    for block in found:
        assert block.language in LANGUAGES, (page, block)
        known = block.note is None or block.needs in NEEDS or block.note == "output"
        known = known or block.note[:6] == "file: " or block.note[:7] == "exits: "
        assert known, (page, block.note)
    return found


def run_page(page):
    """Run a page's blocks; returns the names that its Python blocks leave and what each block printed."""
    names, printed = {"__name__": "__page__"}, []
    for block in blocks(page):
        if block.note == "output":
            assert doctest.OutputChecker().check_output(block.text, printed[-1], MATCHING), (
                f"{page} shows\n{block.text}\nbut the block before it printed\n{printed[-1]}"
            )
        elif block.note and block.note.startswith("file: "):
            Path(block.note[6:]).parent.mkdir(parents=True, exist_ok=True)
            Path(block.note[6:]).write_text(block.text)
        elif block.needs:
            check_block(block, page)
        elif block.language in ("python", "bash"):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                if block.language == "python":
                    run_python(block.text, page, names)
                else:
                    run_shell(block.text, block.code)
            printed.append(output.getvalue())
    return names, printed


def run_python(code, page, names):
    exec(compile(code, str(page), "exec", dont_inherit=True), names)


def run_shell(text, code=0):
    for line in shell_lines(text):
        words = words_of(line)
        if words[0] == "confrank" and not set("|<>") & set(line):
            with pytest.raises(SystemExit) as stop:
                main(words[1:])
            assert stop.value.code == code, f"exit code {stop.value.code}: {line}"
        elif words[0] in ("make", "pip"):
            check_line(line)
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True, capture_output=True)


def check_block(block, page):
    """What needs more than this machine has must still be Python, or commands that exist with flags that exist."""
    if block.language == "python":
        compile(block.text, str(page), "exec")
    elif block.language == "bash":
        for line in shell_lines(block.text):
            check_line(line)


def check_line(line):
    words = words_of(line)
    if "confrank" in words[:8]:  # srun confrank study ...
        try:
            parsed(words[words.index("confrank") + 1 :])
        except ValueError as problem:
            raise AssertionError(f"{line}: {problem}") from None
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", Path(__file__).parents[1].joinpath("Makefile").read_text(), re.M)
        assert set(words[1:]) <= {*targets}, line
    else:
        subprocess.run(["bash", "-n", "-c", line], check=True)


def shell_lines(text):
    """The commands of a shell block: lines that end in a backslash go on, comments and empty lines are left out."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def words_of(line):
    """A command's words, with braces and patterns expanded as bash does."""
    if not set("*{$") & set(line):
        return shlex.split(line, comments=True)
    printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], check=True, capture_output=True, text=True)
    return printed.stdout.splitlines()
