"""The repository: metadata that is stated twice agrees, and scripts outside the package still work with it."""

import ast
import re
import runpy
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import confrank

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load(Path("CITATION.cff").read_text())
    assert citation["version"] == confrank.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["references"][0]["url"] == PROJECT["urls"]["Paper"]


def test_hosted_ci_runs_make_test_on_the_declared_pythons():
    (job,) = yaml.safe_load(Path(".github/workflows/test.yml").read_text())["jobs"].values()
    assert {"make test", "make test-slow"} <= {step.get("run") for step in job["steps"]}
    declared = [item.rpartition(" ")[2] for item in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", item)]
    assert job["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"


def test_the_development_tools_include_every_extra():
    extras = dict(PROJECT["optional-dependencies"])
    tools = extras.pop("dev")
    assert {item for items in extras.values() for item in items} <= set(tools)


def test_every_requirement_is_pinned():
    def plain(text):
        return re.split(r"[\[<>=!; ]", text)[0].lower().replace("_", "-")

    pinned = {plain(line) for line in Path("constraints.txt").read_text().splitlines()}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    assert {plain(item) for item in wanted} <= pinned


@pytest.mark.parametrize(
    "path", sorted([*Path("benchmarks").glob("*.py"), *Path("experiments").glob("*.py")]), ids=str
)
def test_scripts_still_fit_the_package(path, monkeypatch):
    """A script whose imports are gone cannot repeat its result."""
    if "confrank.training.kernels" in path.read_text() and find_spec("triton") is None:
        pytest.skip("the kernels need Triton")
    monkeypatch.syspath_prepend(path.parent)  # as for `python benchmarks/kernels.py`
    names = runpy.run_path(str(path), run_name="imported")
    assert callable(names["main"])
    assert names["__doc__"]


def test_names_that_once_meant_several_things_are_defined_once():
    names = ["KEYS", "METHODS", "Rows", "examine", "Scored", "Labelled", "logits_of", "read_npz", "evaluating"]
    defined = Counter(
        name for path in Path("confrank").rglob("*.py") for name in definitions(ast.parse(path.read_text()))
    )
    assert {name: defined[name] for name in names if defined[name] > 1} == {}
    assert defined["METHODS"] == defined["Rows"] == 1


def definitions(module: ast.Module) -> Iterator[str]:
    """The names of functions, classes and variables at the top of a module."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
