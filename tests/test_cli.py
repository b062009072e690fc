import dataclasses
import inspect
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from forked import UNREAD, start_command
from PIL import Image

import confrank
from confrank.active.records import Experiment
from confrank.cli.research import run as active_run
from confrank.data import load
from confrank.runs.folder import load_config


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "confrank", *arguments], capture_output=True, text=True, check=False)


def test_the_version_loads_nothing_heavy():
    code = "import sys, confrank.cli as c; c.main(['--version']); print({'torch', 'numpy'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == f"confrank {confrank.__version__}\nset()\n"


def test_an_error_in_the_numbers_names_their_file(tmp_path, capsys, command):
    (tmp_path / "sums.csv").write_text("label,probability_0,probability_1\n0,0.5,0.4\n")
    command("evaluate", tmp_path / "sums.csv", code=2)
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "a sum of 0.9 in row 0" in errors and "sums.csv" in errors


def test_what_the_system_refuses_is_said_in_words(tmp_path, capsys, command):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    no_folder = "expected a folder, but {} is a file or inside one; choose another path"
    for arguments, path, message in (
        (["train", "--out", file], file, no_folder),
        (["train", "--out", file / "run"], file / "run", no_folder),
        (["active", "show", folder], folder, "expected a file, but {} is a folder; choose another path"),
        (["data", "fetch", "cifar10", "--root", file], file / "cifar10", no_folder),
    ):
        command(*arguments, code=2)
        assert capsys.readouterr().err == f"confrank: error: {message.format(path)}\n"


def test_ctrl_c_is_one_line_and_code_130(monkeypatch, capsys, command):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("confrank.study.comparison.table_names", interrupted)
    command("table", "list", code=130)
    assert capsys.readouterr().err == "confrank: stopped\n"


def test_a_read_only_folder_is_refused_before_the_work(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    for arguments in (
        ["evaluate", "missing.csv", "--json", tmp_path / "out.json"],
        ["calibrate", "missing.csv", "--out", tmp_path / "out.safetensors"],
        ["demo", "--out", tmp_path / "demo"],
    ):
        command(*arguments, code=2)
        message = f"expected a folder to write {arguments[-1]} in, but {tmp_path} is read-only; choose another path"
        assert capsys.readouterr().err == f"confrank: error: {message}\n"


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch, capsys, command):
    (tmp_path / "out.json").write_text("mine")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "out.json")
    command("evaluate", "missing.csv", "--json", tmp_path / "out.json", code=2)
    message = f"expected a file to write, but {tmp_path / 'out.json'} is read-only; choose another path"
    assert capsys.readouterr().err == f"confrank: error: {message}\n"


@pytest.mark.skipif(os.getuid() == 0, reason="everything is permitted")
def test_a_folder_without_permission_is_named(tmp_path, capsys, command):
    tmp_path.chmod(0o555)
    command("train", "--epochs", "1", "--device", "cpu", "--out", tmp_path / "run", code=2)
    assert f"read or write {tmp_path / 'run'}, but got: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label,correct\n" + "1,0\n" * 5000, "but got 'label,correct 1,0 1,0 1,0 1,0 1,0 1,0 1,...'"),
        ("", "one per line as in epochs: 60, but got nothing"),
        ("epoch: 2", "expected a known setting, but got 'epoch'; did you mean epochs?"),
    ],
)
def test_a_long_text_that_is_no_config_is_shortened(tmp_path, capsys, content, message, command):
    (tmp_path / "some.csv").write_text(content)
    command("train", "--config", tmp_path / "some.csv", code=2)
    errors = capsys.readouterr().err
    assert message in errors and len(errors) < 200


def test_every_setting_of_an_experiment_is_a_flag():
    given = inspect.signature(active_run).parameters
    for item in dataclasses.fields(Experiment):
        assert given[item.name].default == item.default


@pytest.mark.parametrize("text", ["0.25,0.75", "[0.25,0.75]", "[0.25, 0.75]"])
def test_lists_of_numbers_with_and_without_brackets(tmp_path, text, command):
    command("train", "--epochs", "1", "--lr-drops", text, "--device", "cpu", "--out", tmp_path / "run")
    assert load_config(tmp_path / "run").lr_drops == (0.25, 0.75)


def test_without_a_terminal_progress_is_lines_on_the_error_stream(tmp_path, monkeypatch, capsys, command):
    flags = ["--epochs", "2", "--device", "cpu", "--out", str(tmp_path / "run")]
    command("train", *flags)
    assert capsys.readouterr().err == ""  # a run of a second needs none
    monkeypatch.setattr("confrank.report.progress.LINE_SECONDS", 0)
    command("train", *flags)
    lines = capsys.readouterr().err.splitlines()
    name = "digits-small-crl-softmax-seed0"
    assert [line.partition(", acc")[0].rpartition(" ")[0] for line in lines] == [
        f"1 of 2 epochs; {name}: loss",
        f"2 of 2 epochs; {name}: loss",
    ]
    command("predict", tmp_path / "run", "--device", "cpu")
    assert capsys.readouterr().err == "predicting: 897 of 897\n"


def test_resampling_shows_its_progress(tmp_path, monkeypatch, capsys, command):
    """Blocks of 1,000 of 4,000 rows: the complete set, then two groups. What takes long is announced."""
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(3), 20)
    np.savez(tmp_path / "p.npz", probabilities=table, label=rng.integers(0, 3, 20), site=np.arange(20) % 2)
    monkeypatch.setattr("confrank.metrics.resampling.BLOCK", 1000)
    evaluate = "evaluate", tmp_path / "p.npz", "--by", "site", "--resamples", 100
    command(*evaluate)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("confrank.report.progress.LINE_SECONDS", 0)
    command(*evaluate)
    shares = [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert shares == ["0%", "25%", "50%", "50%", "75%", "75%", "100%"]
    monkeypatch.setattr("confrank.report.progress.LINE_SECONDS", 1000)
    monkeypatch.setattr("confrank.report.progress.LONG_SECONDS", 0)
    monkeypatch.setattr("confrank.report.progress.JUDGED_AFTER", 0)
    for arguments in (evaluate, ("scores", tmp_path / "p.npz", "--resamples", 100)):
        command(*arguments)
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(r": about \d+ s$", line)


def piped(*arguments):
    """Exit code of a command whose output nobody reads, and what it says on the error stream."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "confrank", *map(str, arguments)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    return done.returncode, done.stderr


def test_output_that_nobody_reads_ends_commands_except_training(tmp_path):
    run, errors = tmp_path / "run", tmp_path / "errors.txt"
    flags = ["train", "--epochs", 2, "--device", "cpu", "--out"]
    forked = [start_command(*flags, run, output=UNREAD, errors=errors)]
    forked.append(start_command(*flags, tmp_path / "other", output=UNREAD, errors=UNREAD))
    for process in forked:
        process.join()
        assert process.exitcode == 0
    assert errors.read_text() == ""
    assert (run / "metrics.json").exists()
    assert piped("evaluate", run) == (141, "")
    assert piped("threshold", run, "--coverage", 0.5) == (141, "")
    assert piped("--help") == (141, "")


def test_train_predict_evaluate(tmp_path, capsys, command):
    out, table = tmp_path / "run", tmp_path / "metrics.json"
    command("train", "--epochs", "2", "--batch-size", "64", "--device", "cpu", "--out", out)
    command("train", "--config", out / "config.yaml", "--device", "cpu", "--out", tmp_path / "again")
    again, first = (json.loads((folder / "metrics.json").read_text()) for folder in (tmp_path / "again", out))
    assert again == first
    command("predict", out, "--split", "train", "--device", "cpu")
    assert (out / "predictions" / "train.safetensors").exists()
    command("predict", out, "--split", "train", "--out", out / "predictions" / "test.safetensors", code=2)
    assert "test.safetensors is an input of this command; choose another path" in capsys.readouterr().err
    figure = tmp_path / "curves.svg"
    command("evaluate", out, tmp_path / "again", "--json", table, "--figure", figure)
    results = json.loads(table.read_text())
    assert [result["metrics"] for result in results] == [first["metrics"]] * 2
    assert figure.read_text().startswith("<?xml")
    printed = capsys.readouterr().out
    assert "read 897 predictions, 10 classes, logits, confidence" in printed
    assert f"{1000 * first['metrics']['aurc']:.3f}" in printed


def test_evaluate_writes_raw_fractions_and_reasons(tmp_path, capsys, command):
    np.savez(tmp_path / "scores.npz", confidence=np.array([3.0, 1.0]), correct=np.array([True, True]))
    command("evaluate", tmp_path / "scores.npz", "--json", tmp_path / "out.json")
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["metrics"]["acc"] == 1
    assert result["metrics"]["auroc"] is None
    assert result["undefined"]["auroc"] == "needs right and wrong predictions, but none is wrong"
    printed = capsys.readouterr().out
    assert "ECE % undefined: confidence is outside [0, 1]" in printed
    assert f"numbers: {tmp_path / 'out.json'}\n" in printed


def test_training_on_answers_shows_notes_and_footnotes(tmp_path, monkeypatch, capsys, command):
    data = load("digits").test
    (tmp_path / "pool").mkdir()
    for place, image in enumerate(data.images[:21]):
        Image.fromarray(image[:, :, 0]).save(tmp_path / "pool" / f"{place:02d}.png")
    rows = [f"{place:02d}.png,{label}\n" for place, label in enumerate(data.labels[:21])]
    (tmp_path / "labelled.csv").write_text("".join(["path,label\n", *rows[1:]]))
    (tmp_path / "test.csv").write_text("".join(["path,label\n", rows[0]]))
    flags = ["--pool", "pool", "--labelled", "labelled.csv", "--test", "test.csv", "--out", "run"]
    settings = ["--model", "small", "--method", "baseline", "--epochs", "1", "--batch-size", "10", "--device", "cpu"]
    monkeypatch.chdir(tmp_path)
    command("active", "train", *flags, *settings)
    printed = capsys.readouterr().out
    assert "training eagerly in float32: graphs and bfloat16 need a CUDA device\n" in printed
    assert "metrics: run/metrics.json; predictions: run/predictions/test.safetensors\n" in printed
    assert "AUROC % undefined: needs right and wrong predictions" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "expected a command among demo, evaluate, calibrate, scores"),
        ("train --dataset digit", "expected a data set among digits"),
        ("train --model huge", "expected a model among small"),
        ("predict nowhere", "expected a run folder with a config.yaml, but nowhere does not exist"),
        ("ood . --against svhn", "expected a run folder with a config.yaml, but . has none"),
        ("train --lr-drops 0.5,late", "expected --lr-drops to be numbers like 0.5,0.8, but got '0.5,late'"),
        ("train --lr-drops 0.5,8", "expected --lr-drops to be shares in (0, 1], but got (0.5, 8.0)"),
        ("active train --pool x --root y", "expected a known option, but got '--root'"),
        ("train --device cuda:x", "expected --device to be one of auto, cpu, cuda, cuda:N, but got 'cuda:x'"),
        ("train --device cuda:99", "expected a GPU for --device cuda:99, but torch finds "),
        ("train --image-size big", "expected a whole number for --image-size, but got 'big'"),
        ("train --checkpoint-minutes -1", "expected --checkpoint-minutes to be at least 0, but got -1.0"),
        ("ood x --against", "expected a value after --against, but got none"),
        ("predict", "expected RUN, but got none; see --help"),
        ("train --method crl", "expected a method among baseline, crl-softmax"),
        ("active show", "expected FILE, but got none; see --help"),
        ("active query", "expected --pool, but got none; see --help"),
        ("data", "expected one of list, fetch, check, but got nothing; see --help"),
        ("report", "expected FIGURE, but got none; see --help"),
        ("report events", "expected run folders after events, but got none; see --help"),
        (
            "report README.md",
            "expected a figure among events, epochs, curves, but got 'README.md';"
            " confrank evaluate README.md --report page.html writes a page",
        ),
        ("active train --labelled x", "expected --pool, but got none; see --help"),
        ("active train --pool x", "expected --labelled, but got none; see --help"),
        ("train --weight inf", "expected a number for --weight, but got 'inf'"),
        ("train --weight nan", "expected a number for --weight, but got 'nan'"),
        ("active run --strategy random,entrop,", "expected a strategy among random, entropy"),
        ("active run --strategy ,", "expected values separated by commas, but got ','"),
        ("train --seeds 0,one", "expected --seeds to be distinct whole numbers like 0,1,2,3, but got '0,one'"),
        ("study table-clf-perf --seeds , --dry-run", "expected --seeds to be distinct whole numbers"),
        ("ood runs/x", "expected --against, but got none; see --help"),
        ("study table-clf-perf --datasets digit --dry-run", "expected data sets among digits"),
        ("study table-clf-perf --models smal --dry-run", "expected networks among small"),
        ("study stable-al-pref", "expected a study among table-clf-perf"),
        ("study record --against svhn --dry-run", "expected a study with out-sets, such as ood, but got record"),
        ("study table-clf-perf --together 0", "expected --together to be at least 1, but got 0"),
        ("table table-clf-perf --results nowhere", "expected a folder of results, but nowhere is not a folder"),
        ("table table-clf-perf --paper-only --ours-only", "expected --paper-only or --ours-only, but got both"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, command):
    command(*arguments.split(), code=2)
    error = capsys.readouterr().err
    assert error.startswith(f"confrank: error: {message}") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("export run", "; use confrank.decisions.export_onnx in Python, see docs/how-to/export.md"),
        ("policy a.csv", "--policy P.json, then apply"),
        ("apply READMI.md new.csv", "but READMI.md does not exist; did you mean README.md?"),
        ("predict run --texts READMI.md", "but READMI.md does not exist; did you mean README.md?"),
        ("threshold x.csv --risk 2.5%", "but got '2.5%'; did you mean 0.025?"),
        ("train --epochs 5%", "expected a whole number for --epochs, but got '5%'"),
        ("train --dataset mine.npz", "expected a data set, but mine.npz does not exist"),
        ("train --dataset READMI.md", "READMI.md does not exist; did you mean README.md?"),
        ("data check ./doc", "doc does not exist; did you mean docs?"),
        ("train --dataset README.md", "but got 'README.md'; unpack it or convert it to one of these"),
    ],
)
def test_what_people_look_for_is_pointed_to(arguments, hint, capsys, command):
    command(*arguments.split(), code=2)
    assert capsys.readouterr().err.rstrip("\n").endswith(hint)


def test_what_takes_a_while_is_shown_in_a_terminal_only(tmp_path, monkeypatch, capsys, command):
    np.savez(tmp_path / "p.npz", logits=np.random.default_rng(0).normal(size=(200, 3)), label=np.arange(200) % 3)
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown)
        command("evaluate", tmp_path / "p.npz", "--resamples", 100)
        assert ("measuring the predictions" in capsys.readouterr().err) is is_terminal


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["table", "list"]])
def test_output_that_cannot_be_written_is_named(arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "confrank", *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
            env=environment, check=False,
        )  # fmt: skip
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("confrank: error: expected to be able to write standard output, but got: ")


@pytest.mark.parametrize("flag", ["--json=out.json", "--report=out.html", "--figures=out"])
def test_a_full_disk_is_one_line_that_names_the_file_and_leaves_nothing(tmp_path, flag):
    resource = pytest.importorskip("resource")
    np.savez(tmp_path / "p.npz", confidence=np.linspace(0, 1, 50), correct=np.arange(50) % 3 > 0)
    (tmp_path / "out").mkdir()
    before = sorted(tmp_path.rglob("*"))
    result = subprocess.run(
        [sys.executable, "-m", "confrank", "evaluate", "p.npz", flag], cwd=tmp_path, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)), check=False,
        env={**os.environ, "PYTHONPATH": str(Path(confrank.__file__).parents[1])},
    )  # fmt: skip
    name = {"--figures=out": "out/risk_coverage.png"}.get(flag, flag.partition("=")[2])
    why = "File too large; fix that or choose another path"
    assert result.stderr == f"confrank: error: expected to be able to read or write {name}, but got: {why}\n"
    assert result.returncode == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_the_home_folder_is_known_where_shells_do_not_expand_it(tmp_path, monkeypatch, command):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    np.savez("p.npz", confidence=[0.9, 0.8], correct=[True, False])
    command("evaluate", "~/p.npz", "--json=~/out.json", "--resamples=0")
    assert json.loads((tmp_path / "out.json").read_text())["metrics"]["acc"] == 0.5


def test_too_little_memory_is_one_line(tmp_path, capsys, command, monkeypatch):
    (tmp_path / "large.py").write_text(
        "from torch import nn, zeros\n"
        "class Large(nn.Linear):\n"
        "    def forward(self, images):\n"
        "        if len(images) > 2:\n"  # networks are tried on two images first
        "            zeros(1 << 55)\n"
        "        return super().forward(images.flatten(1))\n"
        "def network(num_classes, in_channels):\n"
        "    return Large(64, num_classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    command("train", "--model", "large:network", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run", code=2)
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("confrank: error: expected a network and batches that fit into memory, but they do not; ")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape", "latin-1", "utf-8"])
def test_output_in_any_encoding(tmp_path, encoding):
    path = os.fsencode(tmp_path) + b"/caf\xe9\xc3\xa9.csv"  # a name that no encoding has
    Path(os.fsdecode(path)).write_text("confidence,correct\n0.9,1\n0.8,0\n0.7,1\n")
    page = os.fsencode(tmp_path) + b"/\xe9.html"
    result = subprocess.run(
        [sys.executable, "-m", "confrank", "evaluate", path, "--report", page], capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, b"")
    factor = " x10^3" if encoding.startswith("ascii") else " ×10³"
    assert f"| AURC{factor}".encode(encoding.partition(":")[0]) in result.stdout.replace("│".encode(), b"|")
    assert result.stdout.endswith(b"report: " + page + b"\n")
    assert b"caf\xe9\xc3\xa9.csv" in Path(os.fsdecode(page)).read_bytes()


ESCAPES = "\x1b]0;title\x07\x1b[31m\x1b[2J\x9b2J\x08"  # would change the title, the colour, the screen


def test_escape_codes_in_file_names_are_shown_not_obeyed(tmp_path, capsys, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, other, photos = f"{ESCAPES}.csv", f"{ESCAPES}2.csv", tmp_path / f"photos{ESCAPES}"
    for path in (name, other):
        Path(path).write_text("confidence,correct\n" + "0.9,1\n0.8,0\n0.7,1\n" * 20)
    (photos / "a").mkdir(parents=True)
    (photos / "a" / f"{ESCAPES}.png").write_text("no picture")
    for arguments, code in (
        (("evaluate", name, other, "--resamples", 0), 0),
        (("evaluate", name, "--resamples", 0, "--report", f"{ESCAPES}.html"), 0),
        (("evaluate", f"missing{ESCAPES}.csv"), 2),
        (("threshold", name, "--risk", 0.6, "--policy", f"{ESCAPES}.json"), 0),
        (("data", "check", photos), 2),
        ((f"{ESCAPES}",), 2),
        (("evaluate", name, f"--{ESCAPES}"), 2),
    ):
        command(*arguments, code=code)
        printed = "".join(capsys.readouterr())
        assert "␛]0;title" in printed or repr(ESCAPES)[1:-1] in printed
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed)


def test_a_terminal_gets_no_codes_but_our_own(tmp_path):
    (tmp_path / f"{ESCAPES}.csv").write_text("confidence,correct\n" + "0.9,1\n0.8,0\n0.7,1\n" * 20)
    terminal, end = pty.openpty()
    arguments = [sys.executable, "-m", "confrank", "evaluate", f"{ESCAPES}.csv"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(arguments, stdout=end, stderr=end, cwd=tmp_path, env=environment)
    os.close(end)
    printed = b""
    with suppress(OSError):  # Linux reports a closed terminal as an error
        while part := os.read(terminal, 65_536):
            printed += part
    assert process.wait() == 0
    text = printed.decode()
    assert "AURC" in text and "\x1b[" in text and "␛]0;title" in text
    for code in ("\x1b]0;", "\x07", "\x1b[31m", "\x9b", "\x08"):
        assert code not in text


def test_an_interrupt_during_the_first_imports_is_one_line():
    code = """
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "confrank.cli.train":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
import confrank.cli
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "confrank: stopped\n")
