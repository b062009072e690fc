"""What `--help` says: every command by its door, every option in a few words, within 80 columns."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from confrank.active.strategies import STRATEGIES
from confrank.cli.app import parsed, reference
from confrank.cli.options import APP, DOORS
from confrank.data import IMAGE_SETS, LOADERS
from confrank.methods import METHODS
from confrank.models import MODELS, TEXT_MODELS
from confrank.ood import DETECTORS
from confrank.recipes import RECIPES


def commands():
    found = {}
    for name in (name for names in DOORS.values() for name in names):
        actions = {one: app for one, app in APP[name].resolved_commands().items() if not one.startswith("-")}
        found |= {f"{name} {one}": app for one, app in actions.items()} if actions else {name: APP[name]}
    return found


COMMANDS = commands()


@pytest.fixture
def help_of(command, capsys):
    """The help of a command, without the lines of its boxes."""

    def read(name):
        command(*name.split(), "--help")
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= 80
        return " ".join(re.sub("[─│╭╮╰╯]", " ", printed).split())

    return read


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_each_option_is_for_without_words_of_the_program(name, help_of):
    printed = help_of(name)
    assert printed.startswith(f"Usage: confrank {name}")
    assert not re.search(r"None|False|Literal|<|\{| STR| INT| FLOAT", printed)
    for argument in COMMANDS[name].assemble_argument_collection(parse_docstring=True).filter_by(parse=True):
        if argument.children:
            continue
        assert argument.parameter.help and len(argument.parameter.help.split()) > 1, argument.name
        assert argument.name in printed


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_can_be_parsed_and_a_guide_that_exists(name):
    example, guide = COMMANDS[name].help_epilogue.split("\n\n")
    words = shlex.split(example.removeprefix("example: "))
    assert words[: 1 + len(name.split())] == ["confrank", *name.split()]
    parsed(words[1:])
    assert Path(guide.removeprefix("guide: ")).is_file()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("train", (*LOADERS, *MODELS, *TEXT_MODELS, *METHODS, *RECIPES)),
        ("ood", (*LOADERS, *IMAGE_SETS, *DETECTORS)),
        ("active run", STRATEGIES),
        ("active query", STRATEGIES),
        ("data fetch", [name for name in (*LOADERS, *IMAGE_SETS) if name != "digits"]),
    ],
)
def test_help_lists_the_names_that_an_option_takes(name, known, help_of):
    printed = re.split(r"[ ,;:]+", help_of(name))
    assert {*known} - {"ensemble"} <= {*printed}


def test_the_overview_lists_every_command_behind_its_door_and_imports_little():
    code = "import sys, confrank.cli as c; c.main(['--help']); print(sorted(HEAVY & {*sys.modules}))"
    heavy = "HEAVY = {'torch', 'numpy', 'rich', 'sklearn', 'matplotlib', 'yaml', 'pyarrow'};"
    done = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=True)
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == [name for names in DOORS.values() for name in names]
    assert list(DOORS) == ["measure", "decide", "train", "research"]
    assert max(map(len, lines)) <= 80


def test_the_reference_has_every_command_with_all_its_options():
    text = reference()
    for name, app in COMMANDS.items():
        assert f"confrank {name}" in text
        for argument in app.assemble_argument_collection():
            assert argument.children or argument.name in text


def test_a_plain_evaluate_imports_only_what_it_needs(tmp_path):
    (tmp_path / "p.csv").write_text("confidence,correct\n" + "0.9,1\n0.8,0\n0.7,1\n" * 20)
    code = f"""
import sys, confrank.cli as c
try:
    c.main(["evaluate", {str(tmp_path / "p.csv")!r}, "--resamples", "0"])
except SystemExit as stop:
    assert stop.code == 0
packages = {{name.partition(".")[0] for name in sys.modules}}
print(sorted({{"torch", "matplotlib", "sklearn", "scipy", "jinja2", "PIL"}} & packages))
rooms = {{name.split(".")[1] for name in sys.modules if name.startswith("confrank.")}}
print(sorted({{"decisions", "data", "models", "training", "study", "ood", "active", "scores"}} & rooms))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]
