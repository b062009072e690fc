"""Files as people have them: each is read to the metrics of the arrays it was made from, or refused with a remedy."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from programs import program
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from confrank.predictions import read

FOLDER = Path(__file__).parent / "files"
make = program("tests/files/make.py")
FILES = {file.name: file for file in make.files()}
READ = [name for name, file in FILES.items() if file.truth]
# Packed differently by other versions of the libraries.
REWRITTEN = (".npz", ".parquet", ".safetensors", ".feather", ".arrow", ".bz2", ".xz", ".zst", ".zip")
RANKED = make.RANKED


def naive_aurc(confidence, correct):
    """The mean risk over all coverages; within a tie, errors come at their expected rate."""
    accepted = errors = total = 0.0
    for value in sorted(set(confidence), reverse=True):
        tied = ~correct[confidence == value]
        for position in range(1, len(tied) + 1):
            total += (errors + tied.sum() * position / len(tied)) / (accepted + position)
        accepted, errors = accepted + len(tied), errors + tied.sum()
    return total / len(correct)


def naive_ece(confidence, correct, bins=15):
    total = 0.0
    for index in range(bins):
        low, high = index / bins, (index + 1) / bins
        inside = (confidence > low) & (confidence <= high) | ((confidence == 0) & (index == 0))
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    return total


def test_labels_are_not_needed_to_read_a_file():
    """Without them, a file gives the same predictions; class names keep other columns out of the table."""
    num_read = 0
    for path in filter(lambda path: path.name in READ, sorted(FOLDER.iterdir())):
        try:
            labelled = read(path)
        except ValueError:
            continue  # needs flags
        table = labelled.table
        numbers = None if table is None else [str(number) for number in range(table.shape[1])]
        unlabelled = read(path, labelled=False, classes=labelled.class_names or numbers)
        assert unlabelled.label is None and unlabelled.correct is None
        for name in ("logits", "probabilities", "confidence", "index", "key"):
            assert np.array_equal(getattr(labelled, name), getattr(unlabelled, name)), (path.name, name)
        assert predicted_names(labelled) == predicted_names(unlabelled)
        num_read += 1
    assert num_read > 30


def predicted_names(predictions):
    names, numbers = predictions.class_names, predictions.prediction
    return numbers if numbers is None else [names[number] if names else str(number) for number in numbers]


def true_metrics(truth):
    """The metrics of the arrays that a file was made from."""
    correct, confidence = truth["correct"], truth["confidence"]
    metrics = {
        "acc": correct.mean(),
        "aurc": naive_aurc(confidence, correct),
        "auroc": roc_auc_score(correct, confidence),
        "aupr_error": average_precision_score(~correct, -confidence),
    }
    if truth.get("calibrated", True):
        metrics["ece"] = naive_ece(confidence, correct)
    if "probabilities" in truth:
        probabilities, label = truth["probabilities"], truth["label"]
        classes = np.arange(probabilities.shape[1])
        metrics["nll"] = log_loss(label, probabilities, labels=classes)
        metrics["brier"] = np.mean(((probabilities - (label[:, None] == classes)) ** 2).sum(axis=1))
    return metrics


def evaluated(command, path, flags, out, code=0):
    flags = [FOLDER / flag if flag.endswith(".csv") else flag for flag in flags]
    command("evaluate", path, *flags, "--resamples", 0, "--json", out, code=code)


def check(metrics, truth):
    expected = true_metrics(truth)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-6, abs=1e-9)
    # Nothing is computed that the file does not say.
    assert all(metrics[name] is None for name in {"ece", "nll", "brier"} - {*expected})


def test_the_corpus_is_large_enough_and_small():
    assert len(FILES) >= 60 and len(READ) >= 60
    assert sum(len(file.content) for file in FILES.values()) < 1_000_000
    assert all(len(file.flags) <= 2 for file in FILES.values())  # one flag and its value


def test_the_script_writes_these_files():
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {*FILES, "make.py", "README.md"}
    assert (FOLDER / "README.md").read_text() == make.readme(FILES.values())
    for name, file in FILES.items():
        content = (FOLDER / name).read_bytes()
        if name.endswith(".gz") and file.truth:
            assert gzip.decompress(content) == gzip.decompress(file.content), name
        elif not name.endswith((*REWRITTEN, ".gz")):
            assert content == file.content, name


@pytest.mark.parametrize("name", READ)
def test_read_to_its_true_metrics(tmp_path, command, name):
    file = FILES[name]
    evaluated(command, FOLDER / name, file.flags, tmp_path / "out.json")
    check(json.loads((tmp_path / "out.json").read_text())["metrics"], file.truth)


@pytest.mark.parametrize("name", [name for name, file in FILES.items() if file.refused is not None])
def test_refused_with_a_remedy_or_right(tmp_path, capsys, command, name):
    """Without its flag a file is refused by one line that names the flag; if read, to metrics that are true."""
    file, out = FILES[name], tmp_path / "out.json"
    flags = file.flags if file.truth is None else ()
    with pytest.raises(SystemExit) as stop:
        evaluated_plainly(FOLDER / name, flags, out)
    line = capsys.readouterr().err
    if stop.value.code == 0:
        assert file.refused == RANKED and file.truth is not None, f"read without a doubt: {out.read_text()[:300]}"
        metrics, expected = json.loads(out.read_text())["metrics"], true_metrics(file.truth)
        ranked = {key: metrics[key] for key in ("acc", "aurc", "auroc", "aupr_error")}
        assert ranked == pytest.approx({key: expected[key] for key in ranked}, rel=1e-6, abs=1e-9)
        assert metrics["ece"] is metrics["nll"] is metrics["brier"] is None
    else:
        assert stop.value.code == 2 and line.startswith("confrank: error: ") and line.count("\n") == 1, line
        assert file.refused and file.refused in line and "expected" in line, line
        assert not out.exists()


def evaluated_plainly(path, flags, out):
    from confrank.cli import main

    flags = [FOLDER / flag if flag.endswith(".csv") else flag for flag in flags]
    main([str(word) for word in ("evaluate", path, *flags, "--resamples", 0, "--json", out)])
