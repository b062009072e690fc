"""Mutation run: sample mutants by a seed, run the tests of the mutated module against each, list the survivors.

    python tests/mutation/run.py --out tests/mutation/survivors_202611.md

Each mutant is tried in a process forked from one that has imported torch, with its own copy of the package, so that
subprocesses of the tests see it too. A mutant dies if a test fails or the tests take too long. `--outcomes FILE`
stores each outcome; a second run with the same file tries again only what survived, e.g. after adding tests.
Equivalent mutants, which no test can notice, are listed with the reason in equivalent.toml.
"""

import argparse
import compileall
import contextlib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutants import Mutant, mutants_of, mutated

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
SEED, NUM_SAMPLED = 202611, 300
# Which tests cover a module: the first pattern that matches, the most specific tests first.
TESTS = {
    "loss.py": "loss loss_forms",
    "forms.py": "loss_forms loss",
    "history.py": "history loss distributed",
    "confidence.py": "confidence",
    "metrics/ranking": "ranking_metrics separation acceptance evaluation weights analysis",
    "metrics/curve.py": "ranking_metrics acceptance weights analysis",
    "metrics/areas.py": "ranking_metrics separation weights intervals",
    "metrics/inputs.py": "evaluation ranking_metrics acceptance separation intervals frames groups",
    "metrics/intervals.py": "intervals inversion",
    "metrics/resampling.py": "intervals weights influence",
    "metrics/calibration.py": "evaluation inversion weights intervals",
    "metrics/separation.py": "separation",
    "metrics/groups.py": "groups evaluation analysis intervals weights",
    "metrics/": "evaluation weights intervals ranking_metrics",
    "decisions/export.py": "export",
    "decisions/classifier.py": "decisions",
    "decisions/": "decisions",
    "ood/examination.py": "ood_protocol ood_command",
    "ood/results.py": "ood_protocol ood_command",
    "ood/": "ood_detectors ood_protocol",
    "active/pool.py": "active_pool active_texts",
    "active/image_pool.py": "active_pool",
    "active/text_pool.py": "active_texts",
    "active/query.py": "active_pool",
    "active/labelled.py": "active_pool",
    "active/labelled_set.py": "active_pool",
    "active/records.py": "active_experiment",
    "active/experiment.py": "active_experiment",
    "active/scoring.py": "active active_pool active_experiment",
    "active/": "active active_experiment active_pool",
}
# Per mutant: at most this many seconds of processor time, and ten times as many on the clock.
CPU_SECONDS = 300
# The exit code of a process in which pytest itself could not start.
BROKEN = 99


def modules() -> list[str]:
    """The mutated modules, relative to the package."""
    package = ROOT / "confrank"
    paths = [path.relative_to(package).as_posix() for path in package.rglob("*.py")]
    return sorted(path for path in paths if any(path.startswith(start) for start in TESTS))


def tests_of(module: str) -> list[str]:
    names = next(names for start, names in TESTS.items() if module.startswith(start))
    return [str(path) for name in names.split() if (path := ROOT / "tests" / f"test_{name}.py").exists()]


def sampled(num: int, seed: int) -> list[Mutant]:
    """Mutants drawn from those of all modules, each as likely as any other.

    They are ordered by a hash of seed and change, so a change of the code replaces only the mutants that it touches,
    and the first of a sample are a smaller sample.
    """
    sources = {module: (ROOT / "confrank" / module).read_text(encoding="utf-8") for module in modules()}
    every = [mutant for module, source in sources.items() for mutant in mutants_of(source, module)]
    return sorted(every, key=lambda one: hashlib.sha256(f"{seed} {one.key}".encode()).digest())[:num]


def warm_up() -> None:
    """Import what the tests need, except confrank itself."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("pytest", "scipy.stats", "sklearn.linear_model", "sklearn.metrics", "torch._dynamo"):
        importlib.import_module(name)
    import hypothesis
    import torch

    torch.set_num_threads(1)
    quiet = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("mutation", quiet)
    hypothesis.settings.load_profile("mutation")


def start(folder: Path, mutant: Mutant | None, module: str) -> int:
    """Run the tests of a module in a forked process, with the package in `folder`; the id of the process."""
    path = folder / "confrank" / module
    source = (ROOT / "confrank" / module).read_text(encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
    path.write_text(source if mutant is None else mutated(source, mutant.number), encoding="utf-8")
    process = os.fork()
    if process:
        return process
    code = BROKEN
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = run_tests(folder, path, module)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def run_tests(folder: Path, path: Path, module: str) -> int:
    import pytest

    os.chdir(ROOT)
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)}
    tempfile.tempdir = str(folder)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    options = [
        "-c",
        str(ROOT / "pyproject.toml"),
        f"--rootdir={ROOT}",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    # hypothesis is imported already, which pytest would warn about, and warnings are errors.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "--tb=short"]
    return int(pytest.main([*options, *tests_of(module), str(path)]))


class Slot:
    """A copy of the package and the process that uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "confrank", folder / "confrank", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / "confrank", quiet=2)
        self.mutant: Mutant | None = None
        self.process = 0

    def begin(self, mutant: Mutant) -> None:
        self.mutant, self.began = mutant, time.monotonic()
        self.process = start(self.folder, mutant, mutant.path)

    def outcome(self) -> str | None:
        """None while the tests run; then "survived", or how the mutant died."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        late = time.monotonic() - self.began > 10 * CPU_SECONDS
        if not ended and not late:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if not ended:
            os.waitpid(self.process, 0)
        assert self.mutant is not None
        original = (ROOT / "confrank" / self.mutant.path).read_text(encoding="utf-8")
        (self.folder / "confrank" / self.mutant.path).write_text(original, encoding="utf-8")
        if not ended or os.WIFSIGNALED(status):
            return "timeout" if not ended or os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "crash"
        if os.WEXITSTATUS(status) == BROKEN:
            sys.exit(f"expected the tests to start, but\n{_tail(self.folder)}")
        return "survived" if os.WEXITSTATUS(status) == 0 else "failed"


def outcomes(mutants: list[Mutant], num_workers: int) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with its outcome, in the order in which they end."""
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        idle, busy = [Slot(Path(folder) / str(k)) for k in range(num_workers)], []
        waiting = list(reversed(mutants))
        while waiting or busy:
            while waiting and idle:
                busy.append(idle.pop())
                busy[-1].begin(waiting.pop())
            for slot in [*busy]:
                if (outcome := slot.outcome()) is not None and slot.mutant is not None:
                    busy.remove(slot)
                    idle.append(slot)
                    yield slot.mutant, outcome
            time.sleep(0.05)


def check_unmutated(chosen: list[str]) -> None:
    """Every module's tests must pass without a mutant, else each mutant would seem to die."""
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        slot = Slot(Path(folder) / "0")
        seen: dict[tuple[str, ...], float] = {}
        for module in chosen:
            tests = tuple(tests_of(module))
            if tests in seen:
                continue
            began = time.monotonic()
            _, status = os.waitpid(start(slot.folder, None, module), 0)
            seen[tests] = time.monotonic() - began
            if status:
                sys.exit(f"expected the tests of {module} to pass without a mutant, but\n{_tail(slot.folder)}")
            print(f"  {seen[tests]:5.1f} s  {module}", flush=True)


def _tail(folder: Path) -> str:
    return (folder / "output.txt").read_text(errors="replace")[-3000:]


def read_outcomes(path: Path | None) -> dict[str, str]:
    if path is None or not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {line["key"]: line["outcome"] for line in lines}


def equivalents() -> dict[str, str]:
    """The key of each mutant that no test can notice, and why."""
    if not EQUIVALENT.exists():
        return {}
    entries = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {one["key"]: one["reason"] for one in entries}


def summary(ended: dict[str, tuple[Mutant, str]], seed: int, planned: int, seconds: float) -> str:
    """The file to keep."""
    same = equivalents()
    survivors = [mutant for mutant, outcome in ended.values() if outcome == "survived"]
    equal = sorted((one for one in survivors if one.key in same), key=_position)
    real = sorted((one for one in survivors if one.key not in same), key=_position)
    num_killed = len(ended) - len(survivors)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    timeouts = sum(outcome == "timeout" for _, outcome in ended.values())
    lines = [
        "# Mutation run",
        "",
        f"`python tests/mutation/run.py --num {planned} --seed {seed}`, commit {commit.stdout.strip()},"
        f" {seconds / 60:.0f} minutes.",
        "",
        "| sampled | tried | killed | of these by the time limit | survived | equivalent | killed of the others |",
        "|---|---|---|---|---|---|---|",
        f"| {planned} | {len(ended)} | {num_killed} | {timeouts} | {len(survivors)} | {len(equal)} |"
        f" {num_killed / max(1, num_killed + len(real)):.1%} |",
        "",
        "## Survivors",
        "",
        *(f"- {_named(one)}" for one in real),
        *(["None."] if not real else []),
        "",
        "## Equivalent: no test can notice them",
        "",
        *(f"- {_named(one)}: {same[one.key]}" for one in equal),
        *(["None."] if not equal else []),
    ]
    return "\n".join(lines) + "\n"


def _position(mutant: Mutant) -> tuple[str, int]:
    return mutant.path, mutant.line


def _named(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} `{mutant.change}` in `{mutant.text}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=NUM_SAMPLED, help="how many mutants to sample")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the sample")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--module", help="only modules whose path contains this, such as ood/")
    parser.add_argument("--out", type=Path, help="write the figures and the survivors to this file")
    parser.add_argument("--outcomes", type=Path, help="store outcomes here; try again only what survived")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a mutant first")
    options = parser.parse_args()
    mutants = [one for one in sampled(options.num, options.seed) if not options.module or options.module in one.path]
    before = read_outcomes(options.outcomes)
    ended = {one.key: (one, before[one.key]) for one in mutants if before.get(one.key, "survived") != "survived"}
    same = equivalents()
    ended |= {one.key: (one, "survived") for one in mutants if one.key in same and one.key in before}
    left = [one for one in mutants if one.key not in ended]
    warm_up()
    if not options.unchecked:
        check_unmutated(sorted({one.path for one in left}))
    began = time.monotonic()
    for number, (mutant, outcome) in enumerate(outcomes(left, options.workers), 1):
        ended[mutant.key] = mutant, outcome
        print(f"{number}/{len(left)} {outcome}: {_named(mutant)}", flush=True)
        if options.outcomes:
            with options.outcomes.open("a") as file:
                file.write(json.dumps({"key": mutant.key, "outcome": outcome}) + "\n")
    text = summary(ended, options.seed, len(mutants), time.monotonic() - began)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
