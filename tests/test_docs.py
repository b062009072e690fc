"""The documents are run, and checked against the package and the results."""

import doctest
import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from blocks import MATCHING, blocks, run_page
from programs import program

from confrank import evaluate
from confrank.cli.app import reference
from confrank.predictions.roles import KEY_NAMES
from confrank.report.paper_table import render
from confrank.runs.trained import predict
from confrank.study.comparison import comparison_cells

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = ROOT / "docs/tutorial.md"
TRAIN, FRAMEWORKS = ROOT / "docs/how-to/train.md", ROOT / "docs/how-to/frameworks.md"
SEARCHED = ROOT / "experiments/demo_settings_epyc-2core_202611.md"
# These three pages have tests of their own below.
WITH_CODE = [page for page in DOCUMENTS if page not in (TUTORIAL, TRAIN, FRAMEWORKS) and "\n```" in page.read_text()]


def named(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to run a page in; the committed results are there, as in a checkout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for path in (ROOT / "results").iterdir():
        (tmp_path / "results" / path.name).symlink_to(path)
    return tmp_path


# Those that torchrun starts have tests in test_distributed.py.
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if "torchrun" not in path.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_code_of_a_page_runs(page, folder):
    run_page(page)


def test_the_tutorials_numbers_are_those_of_its_model(folder):
    names, printed = run_page(TUTORIAL)
    metrics = evaluate(probabilities=names["probability"], label=names["label"][600:]).metrics
    text = " ".join(TUTORIAL.read_text().split())
    for shown in (
        f"is {metrics['acc']:.1%}",
        f"is {metrics['aurc'] * 1000:.1f} × 10⁻³",
        f"error, is {metrics['ece']:.1%}",
    ):
        assert shown in text, shown
    calibrated = next(output for output in printed if "temperature" in output)
    before, after = re.search(r"ECE.*?([\d.]+) │ +([\d.]+)", calibrated).groups()
    assert f"ECE falls from {float(before):.1f}% to {float(after):.1f}%" in text
    before, after = re.search(r"│ AURC.*?([\d.]+) │ +([\d.]+)", calibrated).groups()
    assert f"AURC × 10³ is {float(before):.1f} before and {float(after):.1f} after" in text
    assert abs(float(before) - float(after)) < 1


def test_the_example_of_training_runs(folder):
    names, printed = run_page(TRAIN)
    metrics = json.loads(Path("runs/mine/metrics.json").read_text())["metrics"]
    assert f"{metrics['aurc']}\n" in printed
    shapes = [getattr(names["predictions"], name).shape for name in ("logits", "confidence", "label", "index")]
    assert shapes == [(900, 10), (900,), (900,), (900,)]
    answered, test = torch.cat(names["answers"]).numpy(), predict("runs/mine", "test")
    assert np.array_equal(answered, np.where(test.confidence >= 0.9, test.logits.argmax(1), -1))


@pytest.mark.filterwarnings("ignore")
def test_the_examples_in_lightning_and_transformers_run(folder):
    names, printed = run_page(FRAMEWORKS)
    assert names["ranking"].findings == [] and names["trainer"].findings == []
    assert names["again"].criterion.history.examined.tolist() == [5] * 500
    assert "'aurc': 0." in printed[-2] and float(re.search(r"'acc': ([0-9.]+)", printed[-2])[1]) > 0.5
    assert "'eval_aurc': 0." in printed[-1]
    assert names["trainer"].evaluate()["eval_acc"] > 0.8


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_an_example_prints_what_it_says(path, folder, capsys):
    module = runpy.run_path(str(path), run_name="__main__")
    expected = module["__doc__"].split("Expected output:\n\n")[1]
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(textwrap.dedent(expected), printed, MATCHING), printed


def test_the_readmes_three_lines_are_those_of_the_how_to():
    (readme,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    how_to = (ROOT / "docs/how-to/adoption.md").read_text()
    for line in readme.splitlines():
        assert line.split("  #")[0].strip() in re.sub(r" +#.*", "", how_to), line


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_architecture_lists_the_files_of_the_package():
    tree = re.search(r"^confrank/\n(.*?)^```$", (ROOT / "docs/architecture.md").read_text(), re.M | re.S)[1]
    named, package = set(), ""
    for indent, name in re.findall(r"^( +)(\S+)", tree, re.M):
        package = name if name.endswith("/") else package if len(indent) > 2 else ""
        named.add(package if name.endswith("/") else package + name)
    files = {path.relative_to(ROOT / "confrank") for path in (ROOT / "confrank").rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    packages = {f"{path.parts[0]}/" for path in files if len(path.parts) > 1 and "__pycache__" not in path.parts}
    inner = {name for name in expected if name.endswith("/__init__.py")}
    assert named == (expected - inner) | packages


def test_the_architecture_has_the_layers_of_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    table = re.search(r"^\| layer .*?\n\n", (ROOT / "docs/architecture.md").read_text(), re.M | re.S)[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:-1]]
    assert rows == [re.split(" [|:] ", layer) for layer in contract["layers"]]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target and target != "commands.md" and not target.endswith("reference/commands.md"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("folder", ["experiments", "benchmarks"])
def test_links_of_results_lead_to_files_of_the_site(folder):
    site = program("docs/hooks.py").linked_files()
    for document in site & {*(ROOT / folder).glob("*.md")}:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            assert "://" in target or (document.parent / target).resolve() in site, (document.name, target)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    listed = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in DOCUMENTS[1:]}
    assert listed == pages | {"reference/commands.md"}


def test_columns_that_identify_samples_are_listed_in_their_order():
    page = (ROOT / "docs/reference/prediction-files.md").read_text()
    listed = re.search(r"These columns identify samples: (.*?)\. ", page, re.S)[1]
    assert re.findall(r"`(\w+)`", listed) == list(KEY_NAMES)


def test_the_help_names_guides_that_exist():
    guides = re.findall(r"\[Guide\]\((\S+\.md)\)", reference())
    assert guides
    for guide in guides:
        assert (ROOT / "docs/reference" / guide).exists(), guide


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(https?:[^\"]+)", page.read_text())
        assert not loaded, (page, loaded)
    reference = "".join(page.read_text() for page in (tmp_path / "site/reference/api").glob("*.html"))
    for name in ("active", "analysis", "decisions", "metrics", "ood", "predictions", "scores", "training"):
        module = importlib.import_module(f"confrank.{name}")
        functions = [one for one in module.__all__ if inspect.isfunction(getattr(module, one))]
        missing = [one for one in functions if not re.search(rf'id="confrank\.{name}\.([\w.]+\.)?{one}"', reference)]
        assert functions and not missing, (name, missing)
    assert "--risk" in (tmp_path / "site/reference/commands.html").read_text()


def test_the_worked_example_shows_the_scores_of_its_file():
    results = json.loads((ROOT / "experiments/published_scores_202611.json").read_text())
    page = (ROOT / "docs/evidence/published-predictions.md").read_text()
    for table in runpy.run_path(str(ROOT / "experiments/published_scores.py"))["tables"](results):
        assert table in page


def test_the_worked_example_shows_what_its_commands_print():
    printed = " ".join((ROOT / "experiments/published_example_epyc-1core_202611.md").read_text().split())
    page = (ROOT / "docs/evidence/published-predictions.md").read_text()
    shown = "".join(re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)).splitlines()
    assert len(shown) == 8
    for line in shown:
        assert " ".join(line.split()) in printed, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_what_is_promised_is_called_a_guarantee(document):
    """`promise` is a name in files and in Python; `promises.py` is a module."""
    prose = re.sub(r"```.*?```|`[^`]*`|promises\.py", "", document.read_text(), flags=re.S)
    assert not re.findall(r"promise\w*", prose, re.I)


def test_nothing_names_a_machine():
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("needs a git checkout")
    for name in tracked:
        if name.endswith((".py", ".md", ".toml", ".txt", ".json", ".yml", "Makefile", "run")):
            text = Path(name).read_text()
            assert not re.search(r"(?<![\w.])/(work|root|home|Users)/\w", text), name


def test_the_gaps_are_those_of_the_results():
    printed = subprocess.run(
        [sys.executable, "experiments/gaps.py"], capture_output=True, text=True, check=True
    ).stdout
    assert printed == Path("experiments/gaps.md").read_text()


def test_the_reproduction_shows_what_the_results_hold():
    page = (ROOT / "docs/evidence/reproduction.md").read_text()
    tables = re.findall(r"^confrank table (\S+) --ours-only --format markdown$", page, re.MULTILINE)
    assert tables
    for table in tables:
        for line in render(comparison_cells(table, ROOT / "results"), "markdown", ours_only=True).splitlines():
            assert line in page, f"{table}: docs/evidence/reproduction.md lacks {line}"


@pytest.mark.parametrize(
    ("study", "plan", "page", "words"),
    [
        ("reproduction", r"(\d+) to train", "evidence/reproduction", "({} more)"),
        ("reproduction", r"(\d+) to train", "how-to/study", "trains what is missing: {} runs."),
        ("active", r"(\d+) runs in the missing", "evidence/active-learning", "It has not been run yet: {} runs."),
    ],
)
def test_a_page_names_what_a_study_lacks(study, plan, page, words, command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    command("study", study, "--dry-run")
    lacking = re.findall(plan, capsys.readouterr().out)[-1]
    assert words.format(lacking) in (ROOT / f"docs/{page}.md").read_text()


def test_times_of_the_reproduction_are_sums_of_epoch_logs():
    logs = [json.loads(path.read_text()).get("log", []) for path in (ROOT / "results").glob("*.json")]
    sums = {f"{sum(epoch['seconds'] for epoch in log):,.0f} s" for log in logs}
    page = " ".join((ROOT / "docs/evidence/reproduction.md").read_text().split())
    times = re.findall(r"\d[\d,]* s\b", re.search(r"\*\*Times\*\*.*?\*\*Confidence", page)[0])
    assert len(times) == 12
    assert set(times) <= sums


@pytest.mark.parametrize("name", ["cifar10-resnet18", "digits-small"])
def test_active_learning_shows_the_curves_of_its_files(name):
    page = re.sub(r" \([^|]*\)|\*\*", "", (ROOT / "docs/evidence/active-learning.md").read_text())
    curves = json.loads((ROOT / f"results/active/{name}.json").read_text())["curves"]
    for strategy, trials in curves.items():
        accuracy = 100 * np.array([[stage["metrics"]["acc"] for stage in trial] for trial in trials])
        cells = [f"{one.mean():.2f}" + (f"±{one.std(ddof=1):.2f}" if len(one) > 1 else "") for one in accuracy.T]
        number = f"{len(trials)} | " if len(trials) > 1 else ""
        assert f"| {strategy} | {number}{' | '.join(cells)} |" in page, strategy


@pytest.mark.parametrize("page", ["README.md", "docs/when-to-use.md", "docs/evidence/log.md"])
def test_the_demos_numbers_are_those_it_printed(page):
    printed = (ROOT / "experiments/demo_epyc-2core_202611.md").read_text()
    baseline, crl, difference = re.search(
        r"^\| AURC.*? \| (.+?) \| (.+?) \| (.+?) \|$", printed, re.MULTILINE
    ).groups()
    text = " ".join((ROOT / page).read_text().split())
    assert baseline in text and crl in text and f"paired difference of {difference}" in text


def test_the_guides_means_are_those_of_the_results():
    known = "".join((ROOT / f"docs/evidence/{name}.md").read_text() for name in ("reproduction", "log", "record"))
    shown = re.findall(r"\d+\.\d+ ± \d+\.\d+", (ROOT / "docs/guide.md").read_text())
    assert len(shown) > 20
    for value in shown:
        assert (
            value in known or value.replace(" ", "") in known or value in SEARCHED.read_text().replace("+-", "±")
        ), value


def test_the_searched_rows_of_when_to_use_are_those_it_printed():
    search = SEARCHED.read_text()
    rows = re.findall(
        r"^\| width (\d+), (\d+) epochs \| (\S+) \| (\S+) \| (.+) ± (.+) \|$",
        (ROOT / "docs/when-to-use.md").read_text(),
        re.M,
    )
    assert len(rows) == 4
    for width, epochs, error, aurc, difference, spread in rows:
        settings, measured = rf"mlp +{width} adamw +0.001 +1 +{epochs}", rf"{error} +\S+ +{aurc}"
        row = rf"^{settings} \| +{measured} \| .* \| {re.escape(difference)} \+- {spread} \|"
        assert re.search(row, search, re.M), (width, epochs)


def test_the_readmes_numbers_are_those_of_the_reproduction():
    reproduction = (ROOT / "docs/evidence/reproduction.md").read_text()
    shown = re.findall(r"^\| \S+ \| \S+ \| (\S+(?: of 3)?) \| \d+ \| (.+) \|$", reproduction, re.MULTILINE)
    known = [
        (method, [re.sub(r" [+-][\d.]+σ$|\*\*", "", cell).replace("±", " ± ") for cell in row.split(" | ")])
        for method, row in shown
    ]
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| [^|]*\| (\S+) \| (.+ ± .+) \|$", readme, re.MULTILINE)
    rows += re.findall(r"^\| [^|]*\| (ensemble\S+(?: of 3)?) \| (.+) \|$", readme, re.MULTILINE)
    assert len(rows) >= 9
    for method, row in rows:
        values = row.split(" | ")
        assert any(method == other and set(values) <= set(cells) for other, cells in known), (method, row)
