import re
import shlex
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path

import pytest
from confrank.cli.main import COMMANDS, GROUPS
from confrank.cli.reference import markdown

from confrank.active.strategies import STRATEGIES
from confrank.cli.command import make_parser
from confrank.cli.help import Option, _two_columns, help_of, help_text
from confrank.cli.names import NAMES
from confrank.data import IMAGE_SETS, LOADERS
from confrank.methods import METHODS
from confrank.models import MODELS, TEXT_MODELS
from confrank.ood import DETECTORS
from confrank.recipes import RECIPES

ALL = {
    **COMMANDS,
    **{f"{name} {action}": item for name, command in COMMANDS.items() for action, item in command.actions.items()},
}
METAVAR = re.compile(r"[A-Z]+(=[A-Z]+)?(,?\.\.\.)?|\[[A-Z]+\]|\[true\|false\]")

THRESHOLD = """\
usage: confrank threshold FILE [options]

Choose a confidence threshold with a guaranteed error rate, or of least cost.

arguments:
  FILE                    predictions on data that the model was not trained on, or a run folder

reading:
  --columns ROLE=COLUMN,...
                          what columns hold, as in
                          label=gold,prediction=answer,confidence=conf,probability:cat=p1
  --truth FILE            take the labels from this file
  --on COLUMN             column to join --truth by, or COLUMN=COLUMN if the names differ
  --positive CLASS        the score is the probability of this class
  --scale X               divide probabilities and confidence by this, e.g. 100; log: logarithms
  --logits                class columns hold logits
  --probabilities         class columns hold probabilities
  --skip-missing          leave out rows without a label, prediction or score, and count them
  --max-gigabytes X       refuse a compressed file that unpacks to more (default: 2, or
                          $CONFRANK_MAX_GIGABYTES)

threshold:
  --risk SHARE            error rate among accepted predictions to guarantee
  --delta SHARE           largest probability that the guarantee does not hold (default: 0.001)
  --coverage SHARE        share of predictions to accept, instead of --risk
  --sample-weight COLUMN  weight of each row, for --coverage and costs; a guarantee takes none

groups and classes:
  --by COLUMN             a threshold for each value of this column, with --risk for each
  --per-class             a threshold for each predicted class

costs:
  --cost-error X          cost of an accepted error, for the threshold of least cost
  --cost-reject X         cost of a rejected prediction
  --cost-table FILE       costs of errors by class: columns label (the true class), prediction or
                          both, and cost (.csv, .json)
  --folds N               folds to measure the cost: each with the threshold of the others
                          (default: 5; --split uses none)

check:
  --split SHARE           share of the rows to check the threshold on; it is chosen on the others
  --seed N                seed of the split (default: 0)

policy:
  --policy FILE           add the result to this policy (.json); create it if it does not exist
  --replace               replace the part that the policy already has, and drop the parts that
                          depend on it

output:
  --json FILE             write the numbers to this file (.json)

other:
  -h, --help              show this help and exit

example: confrank threshold predictions.npz --risk 0.01 --delta 0.001
guide: docs/how-to/threshold.md
"""


def help_for(name):
    command = ALL[name]
    return help_of(make_parser(command, f"confrank {name}"), command.example, command.guide)


@pytest.mark.parametrize("name", ALL)
def test_help_has_no_parser_noise(name, command, capsys):
    command(*name.split(), "--help")
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: confrank {name}") and f"\nexample: {ALL[name].example[:40]}" in printed
    assert not re.search(r"type:|null|None|Literal|\{", printed)


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_takes_and_what_it_does(name):
    for options in help_for(name).groups.values():
        for option in options:
            assert len(option.text.split()) > 1, option
            for value in option.form.split()[1:]:
                assert value == "--help" or METAVAR.fullmatch(value), option


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_in_a_named_group(name):
    ungrouped = [option.form for option in help_for(name).groups["other"]]
    assert ungrouped == ["-h, --help", *(["--config FILE"] if name == "train" else [])]


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_listed(name):
    options = [option for group in help_for(name).groups.values() for option in group]
    listed = {word.rstrip(",") for option in options for word in option.form.split()}
    actions = make_parser(ALL[name], f"confrank {name}")._actions
    assert {flag for action in actions if action.help != SUPPRESS for flag in action.option_strings} <= listed


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_a_guide(name):
    assert (Path("docs") / ALL[name].guide).is_file()


@pytest.mark.parametrize("name", ALL)
def test_every_example_is_a_command_that_can_be_parsed(name):
    example = shlex.split(ALL[name].example)
    assert example[: 1 + len(name.split())] == ["confrank", *name.split()]
    make_parser(COMMANDS[example[1]], f"confrank {example[1]}").parse_args(example[2:])


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("dataset", LOADERS),
        ("images", IMAGE_SETS),
        ("model", (*MODELS, *TEXT_MODELS)),
        ("method", METHODS),
        ("recipe", RECIPES),
        ("strategy", STRATEGIES),
        ("detector", DETECTORS),
    ],
)
def test_listed_names_are_those_of_the_registry(kind, registry):
    assert NAMES[kind] == tuple(registry)


def test_train_lists_networks_methods_and_data_sets():
    text = " ".join(help_text(help_for("train"), 100).split())
    for kind in ("dataset", "model", "method"):
        assert f"names: {', '.join(NAMES[kind])} (default:" in text


def test_the_help_of_threshold_to_the_letter(monkeypatch, capsys, command):
    monkeypatch.setenv("COLUMNS", "100")
    command("threshold", "--help")
    assert capsys.readouterr().out == THRESHOLD


def test_a_long_option_has_its_line_to_itself():
    assert _two_columns(Option("--out FILE", "file to write (default: a.csv)"), 50).splitlines() == [
        "  --out FILE              file to write",
        "                          (default: a.csv)",
    ]
    assert _two_columns(Option("--checkpoint-minutes MINUTES", "how often"), 50).splitlines() == [
        "  --checkpoint-minutes MINUTES",
        "                          how often",
    ]


def test_the_overview_lists_every_command_under_its_group_and_imports_little():
    code = "import sys, confrank.cli as c; c.main(['--help']); print(sorted(HEAVY & {*sys.modules}))"
    heavy = "HEAVY = {'torch', 'numpy', 'rich', 'jsonargparse', 'sklearn', 'matplotlib', 'yaml'};"
    done = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=True)
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert listed == list(COMMANDS)
    assert [line[:-1] for line in lines if line.endswith(":")] == list(GROUPS)
    assert max(map(len, lines)) <= 100


def test_the_reference_has_every_command_with_all_its_options():
    sections = dict(re.findall(r"^### `confrank ([\w ]+)`\n(.*?)(?=^##|\Z)", markdown(), re.MULTILINE | re.DOTALL))
    assert set(sections) == set(ALL)
    for name, text in sections.items():
        assert f"```bash\n{ALL[name].example}\n```" in text
        for option in (option for options in help_for(name).groups.values() for option in options):
            form = option.form.replace("|", "\\|")
            assert (f"| `{form}` | " in text) == ("--help" not in form)
