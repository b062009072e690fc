"""One record of a run in its checkpoint, its weights file and its predictions; and files of earlier versions."""

import json
import platform
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import confrank
from confrank.config import RunConfig
from confrank.data import hold_out, load
from confrank.predictions import load_predictions
from confrank.provenance import Provenance
from confrank.runs.checkpoint import load_latest
from confrank.runs.folder import RunFolder
from confrank.runs.trained import load_run, load_trained, predict, read_provenance, save_weights_file
from confrank.training import train

CONFIG = RunConfig(epochs=1, holdout=0.1, seed=3)
WEIGHTS = sorted((Path(__file__).parents[1] / "results" / "weights").glob("*.safetensors"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(CONFIG, out, device=torch.device("cpu"))
    save_weights_file(out, out / "weights.safetensors")
    return out


def expected_record():
    used, _ = hold_out(load("digits"), 0.1, seed=3)
    return Provenance(
        CONFIG,
        class_names=tuple("0123456789"),
        input_shape=(8, 8, 1),
        mean=(0.4,),
        std=(0.25,),
        versions={
            "confrank": confrank.__version__, "python": platform.python_version(), "torch": torch.__version__,
            "numpy": np.__version__,
        },
        digests={"data": used.digest(), "test_data": used.digest(test_only=True)},
    )  # fmt: skip


def test_checkpoint_weights_and_predictions_have_the_same_record(run):
    expected = expected_record()
    assert Provenance.from_dict(load_latest(RunFolder(run).checkpoint)[0].meta) == expected
    assert read_provenance(run / "weights.safetensors") == expected
    for split in ("test", "holdout"):
        metadata = load_predictions(RunFolder(run).predictions(split)).metadata
        assert Provenance.from_metadata(metadata) == expected
        facts = {"dataset": "digits", "model": "small", "method": "crl-softmax", "seed": "3", "split": split}
        assert {key: metadata[key] for key in facts} == facts
        for source in (run, run / "weights.safetensors"):
            assert predict(source, split).metadata == metadata
    for source in (run, run / "weights.safetensors"):
        assert load_trained(source).provenance == load_run(source).provenance == expected


def test_a_finished_run_keeps_the_versions_that_trained_it(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "run")
    monkeypatch.setattr("confrank.environment.__version__", "9.9")
    train(CONFIG, tmp_path / "run", device=torch.device("cpu"))
    metadata = load_predictions(RunFolder(tmp_path / "run").predictions("test")).metadata
    assert Provenance.from_metadata(metadata) == expected_record()
    train(replace(CONFIG, seed=4), tmp_path / "new", device=torch.device("cpu"))
    assert load_trained(tmp_path / "new").provenance.versions["confrank"] == "9.9"


def test_a_text_has_a_vocabulary_instead_of_a_normalisation():
    text = Provenance(RunConfig(), ("ham", "spam"), (64,), vocabulary=("buy", "hello"), input_kind="text")
    assert text.as_dict().keys() == {"config", "class_names", "input_shape", "vocabulary", "input_kind"}
    assert Provenance.from_metadata(text.as_metadata()) == text
    assert Provenance.from_dict(json.loads(json.dumps(text.as_dict()))) == text


def rewritten(run, path, metadata):
    save_file(load_file(run / "weights.safetensors"), path, metadata)
    return path


def test_weights_files_of_earlier_versions(run, tmp_path):
    with safe_open(run / "weights.safetensors", "pt") as file:
        now = file.metadata()
    first = {key: now[key] for key in ("config", "mean", "std")}
    second = {**first, "image_shape": "[8, 8, 1]", "class_names": now["class_names"], "data": now["data"]}
    bare = rewritten(run, tmp_path / "bare.safetensors", None)
    earlier = rewritten(run, tmp_path / "first.safetensors", first)
    later = rewritten(run, tmp_path / "second.safetensors", second)
    expected = replace(expected_record(), versions={}, digests={})
    assert load_run(bare, CONFIG).provenance == load_run(earlier).provenance == expected
    assert load_trained(later).provenance == replace(expected, digests={"data": json.loads(now["data"])})
    assert read_provenance(bare) is None
    with pytest.raises(ValueError, match="expected class_names, input_shape in the metadata of .*, but got none"):
        load_trained(earlier)
    with pytest.raises(ValueError, match="expected a config in the metadata of .*, but there is none"):
        load_trained(bare)


@pytest.mark.parametrize("path", WEIGHTS, ids=[path.stem for path in WEIGHTS])
def test_committed_weights_load(path):
    trained = load_trained(path)
    assert trained.config.run_name == path.stem and trained.config.optimizer == "sgd"
    assert trained.provenance.input_shape == (32, 32, 3) and len(trained.provenance.class_names) == 10
    weights, loaded = load_file(path), trained.network.state_dict()
    assert weights.keys() == loaded.keys()
    assert all(torch.equal(value, weights[key].float()) for key, value in loaded.items())


@pytest.mark.parametrize(
    "metadata",
    [{}, {"config": "{}"[:1]}, {"config": '"small"'}, {"class_names": '["a"]', "dataset": "digits"}],
)
def test_metadata_without_a_record(metadata):
    assert Provenance.from_metadata(metadata) is None


def test_weights_files_that_cannot_be_read(run, tmp_path):
    (tmp_path / "text.safetensors").write_text("no weights")
    other = rewritten(run, tmp_path / "other.safetensors", {"config": '{"width": 3}'})
    for path, message in (
        (tmp_path / "text.safetensors", "expected weights of its network in .*, but"),
        (tmp_path / "absent.safetensors", "expected a run folder or a .safetensors file, but .* does not exist"),
        (other, "expected run settings among .*, but got width"),
    ):
        with pytest.raises(ValueError, match=message):
            read_provenance(path)
