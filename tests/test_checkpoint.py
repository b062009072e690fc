import errno
import os
import pickle

import pytest
import torch

from confrank.runs import checkpoint as module
from confrank.runs.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    load_checkpoint,
    load_latest,
    save_checkpoint,
    saved,
)

FILES = ("weights.safetensors", "state.pt", "manifest.json")


def example(value):
    weights = {"layer.weight": torch.full((4, 3), float(value)), "layer.bias": torch.arange(3.0)}
    state = {"epoch": value, "log": [{"loss": 0.5}], "momentum": [torch.ones(2)], "name": "text"}
    return Checkpoint(weights, state, {"num_classes": 3})


def test_survives_the_disk_and_keeps_the_newest_two(tmp_path):
    for value in (1, 2, 3):
        save_checkpoint(tmp_path, (value, 7), example(value))
    assert [path.name for path in saved(tmp_path)] == ["000002-000007", "000003-000007"]
    loaded, problems = load_latest(tmp_path)
    assert problems == []
    assert loaded.state["epoch"] == 3
    assert loaded.state["log"] == [{"loss": 0.5}]
    assert torch.equal(loaded.weights["layer.weight"], torch.full((4, 3), 3.0))
    assert loaded.meta == {"num_classes": 3}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("file", FILES)
def test_any_flipped_byte_is_noticed_and_the_previous_one_used(tmp_path, file):
    """First, last and spread-out positions: header, body, padding, digests, every class of byte there is."""
    save_checkpoint(tmp_path, (1, 0), example(1))
    newest = save_checkpoint(tmp_path, (2, 0), example(2))
    content = (newest / file).read_bytes()
    step = max(1, len(content) // 200)
    for place in [*range(0, len(content), step), len(content) - 1]:
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        (newest / file).write_bytes(damaged)
        loaded, problems = load_latest(tmp_path)
        assert loaded.state["epoch"] == 1, place
        assert len(problems) == 1
        assert file in problems[0], problems


@pytest.mark.parametrize("file", FILES)
def test_any_truncation_is_noticed(tmp_path, file):
    path = save_checkpoint(tmp_path, (2, 0), example(2))
    content = (path / file).read_bytes()
    for length in [*range(0, len(content), max(1, len(content) // 100)), len(content) - 1]:
        (path / file).write_bytes(content[:length])
        with pytest.raises(DamagedCheckpointError, match=file):
            load_checkpoint(path)
    (path / file).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"readable .*{file}.*No such file"):
        load_latest(tmp_path)


class Trap:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_planted_pickle_does_not_run(tmp_path):
    """Even with right digests: a state that is not plain data is refused, not executed."""
    trap = tmp_path / "sprung"
    planted = Checkpoint({"w": torch.ones(1)}, {"epoch": Trap(trap)}, {})
    path = save_checkpoint(tmp_path / "run", (1, 0), planted)
    with pytest.raises(DamagedCheckpointError, match="expected only tensors, numbers and strings"):
        load_checkpoint(path)
    (path / "state.pt").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(DamagedCheckpointError, match="expected sha256"):
        load_checkpoint(path)
    assert not trap.exists()


def test_full_disk_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, (1, 0), example(1))

    def full(path, content):
        path.write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write_synced", full)
    with pytest.raises(OSError, match="could not save the checkpoint .No space left on device.; the earlier ones"):
        save_checkpoint(tmp_path, (2, 0), example(2))
    assert load_latest(tmp_path)[0].state["epoch"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["000001-000000"]


def test_leftovers_of_a_killed_save_are_ignored_and_removed(tmp_path):
    save_checkpoint(tmp_path, (1, 0), example(1))
    (tmp_path / ".000002-000000.99.part").mkdir()
    (tmp_path / ".000002-000000.99.part" / "state.pt").write_bytes(b"half")
    assert load_latest(tmp_path)[0].state["epoch"] == 1
    save_checkpoint(tmp_path, (3, 0), example(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001-000000", "000003-000000"]


def test_positions_of_any_size_are_in_order(tmp_path):
    for position in ((0, 999_999), (0, 1_000_000), (0, 1_000_001), (1, 0)):
        newest = save_checkpoint(tmp_path, position, example(1))
        assert saved(tmp_path)[-1] == newest
    (tmp_path / "000001-000000-copy").mkdir()
    assert [path.name for path in saved(tmp_path)] == ["000000-1000001", "000001-000000"]


def test_shared_and_strided_weights_are_saved(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3)
    path = save_checkpoint(tmp_path, (1, 0), Checkpoint({"a": weight, "b": weight, "c": weight.t()}, {}, {}))
    weights = load_checkpoint(path).weights
    assert torch.equal(weights["a"], weights["b"])
    assert torch.equal(weights["c"], weight.t())


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match="expected a checkpoint in .*, but there is none"):
        load_latest(tmp_path)
