"""The documents are run and checked against the tree."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from confrank.predict import predict
from confrank.report.paper_table import render
from confrank.study.comparison import kept_cells

PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_adoption_tutorial_runs(capsys):
    code = "\n".join(PYTHON_BLOCK.findall(Path("docs/how-to/adoption.md").read_text()))
    exec(compile(code, "docs/how-to/adoption.md", "exec"), {})
    assert capsys.readouterr().out.startswith("ok: 500 samples")


def test_the_example_of_training_runs(tmp_path, monkeypatch, capsys):
    code = "\n".join(PYTHON_BLOCK.findall(Path("docs/how-to/train.md").read_text()))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "docs/how-to/train.md", "exec"), names)
    metrics = json.loads(Path("runs/mine/metrics.json").read_text())["metrics"]
    assert capsys.readouterr().out == f"{metrics['aurc']}\n"
    shapes = [getattr(names["predictions"], name).shape for name in ("logits", "confidence", "label", "index")]
    assert shapes == [(900, 10), (900,), (900,), (900,)]
    answered, test = torch.cat(names["answers"]).numpy(), predict("runs/mine", "test")
    assert np.array_equal(answered, np.where(test.confidence >= 0.9, test.logits.argmax(1), -1))


@pytest.mark.filterwarnings("ignore")
def test_the_example_in_lightning_runs(capsys):
    code, _ = PYTHON_BLOCK.findall(Path("docs/how-to/frameworks.md").read_text())
    names = {}
    exec(compile(code, "docs/how-to/frameworks.md", "exec"), names)
    assert names["ranking"].findings == []
    assert names["trainer"].callback_metrics["acc"] > 0.5
    assert "'aurc': 0." in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_the_example_in_transformers_runs(tmp_path, monkeypatch, capsys):
    _, code = PYTHON_BLOCK.findall(Path("docs/how-to/frameworks.md").read_text())
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "docs/how-to/frameworks.md", "exec"), names)
    assert names["trainer"].findings == []
    assert "'eval_aurc': 0." in capsys.readouterr().out
    assert names["trainer"].evaluate()["eval_acc"] > 0.8


def test_the_readmes_three_lines_are_those_of_the_tutorial():
    (readme,) = PYTHON_BLOCK.findall(Path("README.md").read_text())
    tutorial = Path("docs/how-to/adoption.md").read_text()
    for line in readme.splitlines():
        assert line.split("  #")[0].strip() in re.sub(r" +#.*", "", tutorial), line


def test_the_architecture_lists_every_file_of_the_package():
    readme = Path("docs/architecture.md").read_text()
    for path in Path("confrank").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.name != "__init__.py":
            assert f" {'/'.join(path.parts[2:]) or path.name} " in readme, path


@pytest.mark.parametrize("document", ["README.md", *map(str, Path("docs").rglob("*.md"))])
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", Path(document).read_text()):
        if "://" not in target:
            assert (Path(document).parent / target).exists(), target


def test_commands_in_documents_exist():
    from confrank.cli import COMMANDS

    for document in ["README.md", *map(str, Path("docs").rglob("*.md"))]:
        for command in re.findall(r"^confrank (\w+)", Path(document).read_text(), re.MULTILINE):
            assert command in COMMANDS, (document, command)


def test_nothing_names_a_machine():
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False).stdout.split()
    for name in tracked:
        if name.endswith((".py", ".md", ".toml", ".txt", ".json", "Makefile", "run")):
            text = Path(name).read_text()
            assert not re.search(r"(?<![\w.])/(work|root|home|Users)/\w", text), name


def test_the_gaps_are_those_of_the_results():
    printed = subprocess.run(
        [sys.executable, "experiments/gaps.py"], capture_output=True, text=True, check=True
    ).stdout
    assert printed == Path("experiments/gaps.md").read_text()


def test_the_reproduction_shows_what_the_results_hold():
    page = Path("docs/evidence/reproduction.md").read_text()
    tables = re.findall(r"^confrank table (\S+) --ours-only --format markdown$", page, re.MULTILINE)
    assert tables
    for table in tables:
        for line in render(kept_cells(table, Path("results")), "markdown", ours_only=True).splitlines():
            assert line in page, f"{table}: docs/evidence/reproduction.md lacks {line}"


def test_the_readmes_numbers_are_those_of_the_reproduction():
    shown = re.findall(
        r"^\| \S+ \| \S+ \| (\S+) \| \d+ \| (.+) \|$", Path("docs/evidence/reproduction.md").read_text(), re.MULTILINE
    )
    known = [
        (method, [cell.rsplit(" ", 1)[0].replace("±", " ± ") for cell in row.split(" | ")]) for method, row in shown
    ]
    rows = re.findall(r"^\| [^|]*\| (\S+) \| (.+ ± .+) \|$", Path("README.md").read_text(), re.MULTILINE)
    assert len(rows) >= 5
    for method, row in rows:
        values = row.split(" | ")
        assert any(method == other and set(values) <= set(cells) for other, cells in known), (method, row)
