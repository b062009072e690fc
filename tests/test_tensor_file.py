import os

import numpy as np
import pytest
import torch

from confrank import evaluate
from confrank.predictions import read

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.25, 1.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.5]])
LABEL = torch.tensor([0, 1, 1, 2])
METRICS = evaluate(logits=LOGITS, label=LABEL).metrics


STORED = {
    "dictionary": {"logits": LOGITS, "label": LABEL},
    "others": {"Logits": LOGITS.bfloat16(), "targets": LABEL.int(), "epoch": 3, "lr": 0.1, "config": {"a": 1}},
    "with a gradient": {"logits": LOGITS.requires_grad_(), "label": LABEL.tolist()},
    "list of batches": {"logits": [LOGITS[:3], LOGITS[3:]], "labels": [LABEL[:3], LABEL[3:]]},
    "pair": (LOGITS, LABEL),
    "list of two": [LOGITS.half(), LABEL],
    "pairs of batches": [(LOGITS[:3], LABEL[:3]), (LOGITS[3:], LABEL[3:])],
    "lists of batches": [[LOGITS[:3], LABEL[:3]], [LOGITS[3:], LABEL[3:]]],
    "dictionaries": [{"logits": LOGITS[:3], "label": LABEL[:3]}, {"logits": LOGITS[3:], "label": LABEL[3:]}],
    "as a Trainer calls them": {"predictions": LOGITS, "label_ids": LABEL, "metrics": {"loss": 0.1}},
    "8 bits": {"logits": LOGITS.detach().to(torch.float8_e4m3fn), "label": LABEL},
    "sparse": {"logits": LOGITS.detach().to_sparse(), "label": LABEL},
}


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("name", ["a.pt", "a.pth"])
def test_what_torch_save_wrote(tmp_path, name, kind):
    torch.save(STORED[kind], tmp_path / name)
    loaded = read(tmp_path / name)
    assert loaded.logits.dtype == np.float32 and loaded.label.dtype.kind == "i"
    assert evaluate(logits=loaded.logits, label=loaded.label).metrics == METRICS


def test_the_format_before_zip(tmp_path):
    torch.save({"logits": LOGITS, "label": LABEL}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(read(tmp_path / "a.pt").logits, LOGITS.detach())


def test_class_names_of_a_tensor_file(tmp_path):
    names = ["cat", "dog", "rat"]
    torch.save({"logits": LOGITS, "label": ["cat", "dog", "dog", "rat"], "class_names": names}, tmp_path / "a.pt")
    loaded = read(tmp_path / "a.pt")
    assert loaded.class_names == names and loaded.label.tolist() == LABEL.tolist()


BATCHES = [LOGITS[:3], LOGITS[3:]]  # as the `predict` of a Lightning trainer returns them


@pytest.mark.parametrize("labels", ["label.pt", "batches.pt", "label.npy"])
@pytest.mark.parametrize("stored", [LOGITS, BATCHES, {"logits": LOGITS}], ids=["tensor", "batches", "by name"])
def test_a_tensor_and_its_labels_in_two_files(tmp_path, stored, labels):
    torch.save(stored, tmp_path / "table.pt")
    torch.save(LABEL, tmp_path / "label.pt")
    torch.save([LABEL[:3], LABEL[3:]], tmp_path / "batches.pt")
    np.save(tmp_path / "label.npy", LABEL.numpy())
    loaded = read(tmp_path / "table.pt", truth=tmp_path / labels)
    np.testing.assert_array_equal(loaded.logits, LOGITS.detach())
    assert loaded.label.tolist() == LABEL.tolist() and loaded.notes == ("labels joined by row",)


@pytest.mark.parametrize(("labels", "message"), [("label.npy", "cannot be read"), ("label.pt", "cannot be read")])
def test_an_error_names_the_file_of_labels(tmp_path, labels, message):
    torch.save(LOGITS, tmp_path / "table.pt")
    torch.save(LABEL, tmp_path / "label.pt")
    (tmp_path / "label.pt").write_bytes((tmp_path / "label.pt").read_bytes()[:100])
    (tmp_path / "label.npy").write_text("0 1 1 2")
    with pytest.raises(ValueError, match=f"{labels}: expected .*{message}"):
        read(tmp_path / "table.pt", truth=tmp_path / labels)


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_objects_are_never_opened(tmp_path):
    torch.save({"logits": LOGITS, "label": LABEL, "more": Trap(tmp_path / "opened")}, tmp_path / "a.pt")
    with pytest.raises(
        ValueError, match="other Python objects or a damaged file, which are never opened; write torch.save"
    ):
        read(tmp_path / "a.pt")
    assert not (tmp_path / "opened").exists()


def test_numpy_arrays_belong_in_npz(tmp_path):
    torch.save({"logits": LOGITS.detach().numpy(), "label": LABEL.numpy()}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="numpy arrays in a pickle, which are never opened; write .* with np.savez"):
        read(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ((LABEL, LOGITS), "expected tensors by name, but got tuple; write torch.save"),
        ((LOGITS, LABEL, LABEL), "expected tensors by name, but got tuple; write torch.save"),
        (LOGITS, "give the labels"),
        (LABEL, r"expected logits or probabilities \[n, K\].*but got 4 of int64"),
        ({"epoch": 3, "val": {"logits": LOGITS, "label": LABEL}}, "tensors by name, but epoch, val hold none"),
        ([LOGITS[:2], LABEL[:2], 7], "expected tensors by name, but got list; write torch.save"),
        ([LOGITS, LOGITS[:, :2]], "batches of one shape, but got"),
        ([{"logits": LOGITS}, {"label": LABEL}], "the same names in each batch"),
        ({"weight": LOGITS, "bias": LABEL}, "but got the columns weight, bias"),
        ({"logits": LOGITS, "label": LABEL[:2]}, "2"),
    ],
)
def test_other_contents_are_refused(tmp_path, stored, message):
    torch.save(stored, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.pt")


@pytest.mark.filterwarnings("ignore")  # torch calls these kinds of tensors prototypes, or deprecated
@pytest.mark.parametrize("kind", ["meta", "quantised", "nested", "jagged"])
def test_tensors_without_plain_values_are_refused(tmp_path, kind):
    values = LOGITS.detach()
    odd = {
        "meta": lambda: values.to("meta"),
        "quantised": lambda: torch.quantize_per_tensor(values, 0.1, 0, torch.qint8),
        "nested": lambda: torch.nested.nested_tensor([*values]),
        "jagged": lambda: torch.nested.nested_tensor([*values], layout=torch.jagged),
    }[kind]()
    for stored in ({"logits": odd, "label": LABEL}, odd, [odd, odd], (odd, LABEL)):
        torch.save(stored, tmp_path / "a.pt")
        with pytest.raises(ValueError, match=r"a\.pt: expected (dense tensors of numbers, but got|a pair of logits)"):
            read(tmp_path / "a.pt")


def test_indices_beyond_a_sparse_tensor_do_not_end_the_process(tmp_path):
    beyond = torch.sparse_coo_tensor([[0, 10**12], [0, 0]], [1.0, 2.0], (4, 3), check_invariants=False)
    torch.save({"logits": beyond, "label": LABEL}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="expected a file that torch.save wrote, but it cannot be read: size is"):
        read(tmp_path / "a.pt")


def test_damaged_and_misnamed_files(tmp_path):
    torch.save({"logits": LOGITS, "label": LABEL}, tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="expected a file that torch.save wrote, but it cannot be read"):
        read(tmp_path / "cut.pt")
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="expected an npz archive of arrays, but it cannot be read"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", logits=LOGITS.detach(), label=LABEL)
    (tmp_path / "b.npz").rename(tmp_path / "b.pt")
    with pytest.raises(
        ValueError, match="expected a file that torch.save wrote, but it cannot be read|numpy arrays in a pickle"
    ):
        read(tmp_path / "b.pt")
