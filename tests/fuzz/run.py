"""Evaluate thousands of damaged files: `python tests/fuzz/run.py --count 10000 --workers 2 --keep FOLDER`.

Each must end as `confrank evaluate` promises: metrics and exit code 0, or one line and exit code 2; no traceback, no
warning, within 10 seconds and 2 GB. Workers take many files each, under a limit on their memory. A worker that dies
names the file it had at hand, and another takes over after it. Case k depends on the seed and k alone.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))
from mutate import mutated

CORPUS = Path(__file__).parent.parent / "files"
SECONDS, GIGABYTES = 10, 2
PICTURES = (".png", ".jpg", ".bmp", ".webp")


def originals() -> dict[str, bytes]:
    """The files to damage by name: the corpus, pictures, and settings."""
    files = {path.name: path.read_bytes() for path in sorted(CORPUS.glob("*.*")) if path.suffix not in (".py", ".md")}
    return files | _pictures() | {"config.yaml": b"model: small\nepochs: 3\nlr: 0.1\nlr_drops: [0.5, 0.8]\n"}


def _pictures() -> dict[str, bytes]:
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (12, 9, 3), dtype=np.uint8)
    result = {}
    for suffix in PICTURES:
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, {".jpg": "JPEG"}.get(suffix, suffix[1:].upper()))
        result[f"picture{suffix}"] = content.getvalue()
    return result


def damaged(case: int, seed: int, files: dict[str, bytes]) -> tuple[str, bytes, list[str]]:
    """The name, content and flags of a case."""
    random = Random(f"{seed}-{case}")
    name = random.choice(sorted(files))
    other = files[random.choice([one for one in sorted(files) if one.endswith(Path(name).suffix)])]
    flags = random.choice(
        (
            [],
            [],
            ["--skip-missing"],
            ["--scale", "100"],
            ["--positive", "1"],
            ["--truth", str(CORPUS / "solution.csv")],
        )
    )
    return name, mutated(files[name], name, other, random), flags


def problem_with(path: Path, flags: list[str]) -> str | None:
    """What is wrong with how a file is handled; None if nothing is."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("error")
            code = _handled(path, flags)
    except BaseException:
        return traceback.format_exc()
    text = errors.getvalue()
    if code == 0 and not text:
        return None
    if code == 2 and text.startswith("confrank: error: ") and text.count("\n") == 1 and len(text) < 4000:
        return None
    return f"exit code {code} with {text[:2000]!r}"


def _handled(path: Path, flags: list[str]) -> int:
    """The exit code of `confrank evaluate`; pictures and settings are read as `predict` and `train` do."""
    from confrank.cli import main

    try:
        if path.suffix in PICTURES:
            from confrank.data.pictures import read_picture

            read_picture(path)
        elif path.name == "config.yaml":
            from confrank.runs.folder import load_config

            load_config(path.parent)
        else:
            main(["evaluate", str(path), "--resamples", "0", "--json", str(path.parent / "out.json"), *flags])
    except SystemExit as stop:
        return int(stop.code or 0)
    except ValueError:
        return 0
    return 0


def work(first: int, stop: int, step: int, seed: int, keep: Path | None) -> None:
    """Handle the cases of one worker, printing each failure, and each case before it begins, as a line of JSON."""
    import pyarrow.parquet  # noqa: F401, so that the limit below is about files alone

    files = originals()
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.parquet"
        known.write_bytes(files["plain.parquet"])
        assert problem_with(known, []) is None
        _limit_memory()
        for case in range(first, stop, step):
            print(json.dumps({"case": case}), flush=True)
            name, content, flags = damaged(case, seed, files)
            path = Path(folder) / name
            path.write_bytes(content)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            problem = problem_with(path, flags)
            faulthandler.cancel_dump_traceback_later()
            path.unlink()
            if problem:
                _keep(keep, case, name, content)
                print(json.dumps({"case": case, "name": name, "flags": flags, "problem": problem}), flush=True)
    print(json.dumps({"peak": _peak()}), flush=True)


def _peak() -> float:
    """The most memory that this process has had, in gigabytes; getrusage would count the parent before exec too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e6


def _limit_memory() -> None:
    """Allow this process as much memory as one may take for a file, in addition to what it has now."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + GIGABYTES * 10**9, resource.RLIM_INFINITY))


def _keep(folder: Path | None, case: int, name: str, content: bytes) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{case}-{name}").write_bytes(content)


def run(count: int, seed: int = 0, workers: int = 1, keep: Path | None = None) -> tuple[list[dict], float]:
    """All failures, and the largest memory of a worker in gigabytes."""
    failures, peak = [], 0.0
    waiting = [(start, count) for start in range(workers)]
    running: list[tuple[subprocess.Popen, int]] = []
    while waiting or running:
        while waiting:
            start, stop = waiting.pop()
            words = [sys.executable, __file__, "--work", start, stop, workers, "--seed", seed]
            words += ["--keep", keep] if keep else []
            log = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed below
            running.append(
                (subprocess.Popen(list(map(str, words)), stdout=log, stderr=subprocess.STDOUT, text=True), log)
            )
        process, log = running.pop(0)
        process.wait()
        log.seek(0)
        lines, last = log.read().splitlines(), None
        log.close()
        for line in lines:
            record = json.loads(line) if line.startswith("{") else {}
            failures += [record] if "problem" in record else []
            last, peak = record.get("case", last), max(peak, record.get("peak", 0.0))
        if process.returncode:
            if last is None:
                raise RuntimeError("\n".join(lines[-20:]))
            name, content, flags = damaged(last, seed, originals())
            _keep(keep, last, name, content)
            died = "\n".join([line for line in lines if not line.startswith("{")][-20:])
            failures.append({"case": last, "name": name, "flags": flags, "problem": f"worker died: {died}"})
            waiting.append((last + workers, count))
    return failures, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="write the files that fail into this folder")
    parser.add_argument("--work", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work, options.seed, options.keep)
        return
    start = time.monotonic()
    failures, peak = run(options.count, options.seed, options.workers, options.keep)
    for failure in failures:
        print(f"case {failure['case']}, {failure['name']} {' '.join(failure['flags'])}\n{failure['problem']}\n")
    seconds = time.monotonic() - start
    print(f"{options.count} files, {len(failures)} failures, {peak:.2f} GB at most, {seconds:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
