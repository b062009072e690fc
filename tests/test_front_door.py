"""What users import: which names there are, what each of them loads, and what a type checker sees."""

import ast
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import confrank
from confrank import metrics, training

ROOT = Path(confrank.__file__).parents[1]
# torch imports the others itself.
ALLOWED = ("torch", "torchgen", "functorch", "numpy", "typing_extensions", "confrank")
BLOCK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package == "fcntl" or package not in sys.stdlib_module_names and package not in {ALLOWED}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")

for name in [name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names]:
    if name != "__main__":
        del sys.modules[name]
sys.modules.pop("fcntl", None)
sys.meta_path.insert(0, Blocked())
"""
# Every name of the front door that needs nothing but torch and numpy, and every metric.
USE = """
import numpy as np
import torch
import confrank
from confrank import CorrectnessHistory, CorrectnessRankingLoss, IndexedDataset, SharedHistory, evaluate, metrics
from confrank import leave_counters_alone, ranking_loss

data = IndexedDataset([(torch.tensor([2.0, 0.0]), 0), (torch.tensor([0.5, 0.0]), 1)])
history = CorrectnessHistory(len(data))
criterion = CorrectnessRankingLoss(history)
logits, label, index = (torch.stack([torch.as_tensor(item[k]) for item in data]) for k in range(3))
assert criterion(logits, label, index).isfinite()
SharedHistory(history).add_up()
leave_counters_alone(criterion)
assert history.audit(epochs=1).ok
assert ranking_loss(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 1.0])) == 1

confidence, correct = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
probabilities, labels = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])
for name in ("aurc", "e_aurc", "augrc", "aupr_error", "fpr_at_tpr", "auroc", "ece", "adaptive_ece"):
    assert getattr(metrics, name)(confidence, correct) is not None, name
    assert getattr(metrics, name)(torch.tensor(confidence), torch.tensor(correct)) is not None, name
assert metrics.accuracy(correct) == 0.5
assert metrics.nll(probabilities, labels) > 0 and metrics.brier(probabilities, labels) > 0
assert metrics.classwise_ece(probabilities, labels) > 0
assert metrics.naurc(confidence, correct) >= 0
assert metrics.ece_interval(confidence, correct).high > metrics.ece(confidence, correct)
assert metrics.at_or_above(confidence, 0.8).tolist() == [True, True, False, False]
assert metrics.coverage_at_risk(confidence, correct, 0.1) == metrics.risk_at_coverage(confidence, correct, 0.5) / 2
assert metrics.detection(confidence, confidence - 0.1).metrics["auroc"] > 0.5
assert metrics.roc_curve(confidence, confidence - 0.1).tpr[-1] == 1
assert metrics.reliability_bins(confidence, correct).count.sum() == 4
assert metrics.risk_coverage_curve(confidence, correct).accepted[-1] == 4
samples = metrics.sample_values(logits=logits, label=label)
assert len(metrics.class_summaries(samples)) == 2
resampled = metrics.bootstrap([samples, samples], 20)
values = metrics.evaluation_of(samples).metrics
metrics.intervals_of(samples, values, resampled[0]), metrics.paired_differences(*resampled, values, values)
assert evaluate(logits=logits, label=label).metrics["acc"] == 0.5

from confrank.models import CosineHead
from confrank.training import Sharpness, SoftLabels, WeightAverage
from confrank.training import change, epoch_changes, epoch_mixing, mix, mixed_loss

head, soft = CosineHead(2, 2), SoftLabels(len(data), 2)
average, sharpness = WeightAverage(head), Sharpness(head.parameters(), 0.05)
soft.record(head(logits), index)
assert torch.allclose(soft.of(label, index).sum(1), torch.ones(2))
mixed, share = mix(logits[:, :, None, None], epoch_mixing("mixup", 0, 0, 1, 1, 1).at(0))
mixed_loss(head(mixed[:, :, 0, 0]), label, share).backward()
sharpness.climb(), sharpness.descend(), average.add(), average.apply()
assert change(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), epoch_changes(0, 0, 2, 8, 8)).shape == (2, 8, 8, 3)
print("works", confrank.__file__)
"""


def python(code: str, *arguments: str, executable: str | Path = sys.executable, cwd: Path = ROOT) -> str:
    result = subprocess.run(
        [executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_top_level_names():
    assert confrank.__all__ == [
        "ArrayLike", "Audit", "Comparison", "ConfidenceName", "CorrectnessHistory", "CorrectnessRanking",
        "CorrectnessRankingLoss", "Evaluation", "IndexedDataset", "SelectiveClassifier", "SharedHistory",
        "SharedRing", "compare", "evaluate", "leave_counters_alone", "metrics", "ranking_loss",
    ]  # fmt: skip
    for name in confrank.__all__:
        value = getattr(confrank, name)
        # The types have no name of their own.
        assert name in ("ArrayLike", "ConfidenceName") or value.__name__ in (name, f"confrank.{name}")
    assert dir(confrank) == sorted([*confrank.__all__, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'Evaluate'"):
        confrank.Evaluate  # noqa: B018


def test_every_name_of_training_can_be_imported():
    for name in training.__all__:
        assert getattr(training, name) is not None
    assert sorted(name for names in training._NAMES.values() for name in names) == sorted(training.__all__)
    with pytest.raises(AttributeError, match=r"module 'confrank.training' has no attribute 'soften'"):
        training.soften  # noqa: B018


def test_metric_names():
    assert metrics.__all__ == [
        "KEYS", "ArrayLike", "AuprEstimator", "AurcEstimator", "ClassSummary", "Detection", "Evaluation",
        "Interval", "IntervalMethod", "PairedDifference", "ReliabilityBins", "RiskCoverageCurve", "RocCurve",
        "Samples", "accuracy", "adaptive_ece", "at_or_above", "augrc", "aupr_error", "aurc", "auroc", "bootstrap",
        "brier", "class_summaries", "classwise_ece", "coverage_at_risk", "detection", "e_aurc", "ece",
        "ece_interval", "evaluation_of", "fpr_at_tpr", "intervals_of", "naurc", "nll",
        "paired_differences",
        "reliability_bins", "risk_at_coverage", "risk_coverage_curve", "roc_curve", "sample_values",
    ]  # fmt: skip
    assert all(hasattr(metrics, name) for name in metrics.__all__)


def test_torch_and_numpy_are_enough_on_any_platform():
    functions = {name for name in metrics.__all__ if name.islower()}
    assert all(re.search(rf"\b{name}\b", USE) for name in functions)
    assert python(BLOCK + USE).startswith("works")
    refused = "import safetensors"
    with pytest.raises(AssertionError, match="safetensors is not installed here"):
        python(BLOCK + refused)


def test_a_name_loads_only_its_own_modules():
    loss = ["confidence", "forms", "history", "loss"]
    expected = {
        "__version__": [],
        "ConfidenceName": ["confidence"],
        "CorrectnessHistory": ["history"],
        "IndexedDataset": ["indexed"],
        "SharedHistory": ["distributed", "history"],
        "SharedRing": ["distributed", "history"],
        "leave_counters_alone": ["distributed", "history"],
        "CorrectnessRanking": loss,
        "CorrectnessRankingLoss": loss,
        "ranking_loss": loss,
    }
    code = """if True:
        import sys
        for name in sys.argv[1:]:
            for module in [module for module in sys.modules if module.startswith("confrank")]:
                del sys.modules[module]
            import confrank
            getattr(confrank, name)
            print(name, *sorted(module[9:] for module in sys.modules if module.startswith("confrank.")))
    """
    lines = [line.split() for line in python(code, *expected).splitlines()]
    assert {name: modules for name, *modules in lines} == expected


def test_evaluating_arrays_loads_no_torch():
    code = (
        "import sys; import numpy as np; from confrank import evaluate;"
        "evaluate(confidence=np.array([0.9, 0.1]), correct=np.array([True, False]));"
        "evaluate(logits=np.array([[2.0, 0.0], [1.0, 3.0]]), label=[0, 0]);"
        "names = {name.split('.')[1] for name in sys.modules if name.startswith('confrank.')};"
        "print('torch' in sys.modules, sorted(names))"
    )
    assert python(code).strip() == "False ['errors', 'evaluation', 'metrics']"


USER_SCRIPT = """
import numpy as np
import torch
import confrank
from confrank import active, ood
from confrank.metrics import aurc, detection, roc_curve

history = confrank.CorrectnessHistory(2)
criterion = confrank.CorrectnessRankingLoss(history, "margin")
reveal_type(criterion(torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([0, 1])))
reveal_type(history.rate(torch.tensor([0])))
reveal_type(history.audit())
reveal_type(confrank.IndexedDataset([(1, 2)]))
reveal_type(confrank.evaluate(confidence=np.array([0.9]), correct=[True]))
reveal_type(confrank.evaluate(logits=torch.zeros(2, 3), label=torch.tensor([0, 1])).metrics["aurc"])
reveal_type(confrank.metrics.ece([0.9, 0.1], torch.tensor([True, False])))
reveal_type(aurc(np.array([0.9]), [1], estimator="trapezoid"))
reveal_type(detection([0.9], [0.1], aupr="trapezoid"))
reveal_type(roc_curve([0.9], [0.1]))
reveal_type(confrank.ranking_loss(torch.zeros(2), torch.zeros(2)))
reveal_type(confrank.compare({}, {}))
reveal_type(confrank.compare({}))
aurc("0.9", [True])
aurc([0.9], [True], estimator="simpson")
confrank.CorrectnessRankingLoss(history, "softmax")
confrank.Evaluate
active.selekt
ood.Odim
"""
REVEALED = [
    "torch._tensor.Tensor", "torch._tensor.Tensor", "confrank.history.Audit", "confrank.indexed.IndexedDataset",
    "confrank.metrics.evaluation.Evaluation", "float | None", "float | None", "float | None",
    "confrank.metrics.separation.Detection", "confrank.metrics.separation.RocCurve", "torch._tensor.Tensor",
    "confrank.analysis.comparison.Comparison", "confrank.analysis.comparison.Comparison",
]  # fmt: skip
REFUSED = ["arg-type", "arg-type", "arg-type", "attr-defined", "attr-defined", "attr-defined"]


def check_types(script: Path, *options: str, cwd: Path = ROOT) -> None:
    """mypy --strict reveals the types above for the user's script and refuses its last six lines."""
    script.write_text(USER_SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", *options, script]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    lines = [line for line in result.stdout.splitlines() if script.name in line]
    revealed = [line.split('"')[1] for line in lines if "Revealed type" in line]
    assert [kind.replace("builtins.", "") for kind in revealed] == REVEALED, result.stdout
    refused = [line.rpartition("[")[2].rstrip("]") for line in lines if " error: " in line]
    assert refused == REFUSED, result.stdout


def test_a_type_checker_sees_the_real_types(tmp_path):
    # With the project's settings, so that the analysis of torch is taken from the cache that linting has filled.
    check_types(tmp_path / "user_script.py", "--config-file", str(ROOT / "pyproject.toml"))


def test_every_type_checker_sees_the_signature_of_a_criterion():
    """pyright takes `__call__ = forward` for torch's Any, so `__call__` has to repeat the signature of `forward`."""
    module = ast.parse((ROOT / "confrank/loss.py").read_text())
    ranking, loss = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name != "Ring")
    functions = {node.name: node for node in ast.walk(ranking) if isinstance(node, ast.FunctionDef)}
    call, forward = functions["__call__"], functions["forward"]
    assert ast.unparse(call.args) == ast.unparse(forward.args)
    assert ast.unparse(call.returns) == ast.unparse(forward.returns) == "Tensor"
    own = {node.name for node in ast.walk(loss) if isinstance(node, ast.FunctionDef)}
    assert ast.unparse(loss.bases) == ranking.name == "CorrectnessRanking"
    assert not own & {"__call__", "forward"}


@pytest.mark.slow
def test_the_wheel_works_with_torch_and_numpy_only(tmp_path, monkeypatch):
    """The installed wheel, in a new environment that holds torch, numpy and what those two need."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(build, check=True)
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name in required("torch", "numpy"):
        link_package(name, packages)
    (wheel,) = tmp_path.glob("confrank-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, wheel]
    subprocess.run(install, check=True)
    executable = tmp_path / "env/bin/python"
    assert python(USE, executable=executable, cwd=tmp_path).split() == [
        "works",
        str(packages / "confrank/__init__.py"),
    ]
    blocked = "import sys; sys.modules['fcntl'] = None\n" + USE
    assert python(blocked, executable=executable, cwd=tmp_path).startswith("works")
    assert (packages / "confrank/py.typed").exists()
    options = "--python-executable", str(executable), "--cache-dir", str(tmp_path / "cache")
    check_types(tmp_path / "user_script.py", *options, cwd=tmp_path)


def required(*names: str) -> set[str]:
    """The packages and all that they need, as far as installed here."""
    closure, pending = set(), [*names]
    while pending:
        name = pending.pop()
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        if name not in closure:
            closure.add(name)
            pending += [re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need]
    return closure


def link_package(name: str, folder: Path) -> None:
    """Link the files of an installed package into another environment."""
    installed = distribution(name)
    for part in {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}:
        if not (folder / part).exists():
            (folder / part).symlink_to(installed.locate_file(part))
