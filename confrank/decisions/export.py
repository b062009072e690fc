"""Export a network or a selective classifier: as a torch.export program, or as an ONNX file."""

import copy
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from confrank.decisions.classifier import SelectiveClassifier
from confrank.files import write_atomically

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def export_program(model: nn.Module, example: Tensor) -> "ExportedProgram":
    """The model as a program for any batch size, in evaluation mode on the CPU; the model itself does not change.

    `example` is a batch of inputs [n, ...]. A `SelectiveClassifier` is exported with its `decide`: the program
    returns (label, confidence, accepted). Any other model is exported with its `forward`.

    >>> program = export_program(SelectiveClassifier(nn.Identity(), threshold=0.8), torch.zeros(1, 2))
    >>> label, confidence, accepted = program.module()(torch.tensor([[4.0, 0.0], [0.0, 0.5], [0.0, 9.0]]))
    >>> label.tolist(), accepted.tolist()
    ([0, 1, 1], [True, False, True])
    """
    if not isinstance(example, Tensor):
        raise ValueError(
            f"expected example to be one tensor, a batch of inputs, but got {type(example).__name__}; wrap a model"
            " with several inputs in a module that takes one tensor"
        )
    if not example.ndim or not len(example):
        raise ValueError(f"expected a batch of example inputs, but got shape {list(example.shape)}")
    twin = copy.deepcopy(model).cpu().eval()
    exported = _Decide(twin) if isinstance(twin, SelectiveClassifier) else twin
    # torch.export takes a batch of one for a constant.
    batch = example[:1].detach().cpu().repeat(2, *[1] * (example.ndim - 1))
    with torch.no_grad():
        return torch.export.export(exported, (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},))


def export_onnx(model: nn.Module, path: str | os.PathLike[str], example: Tensor) -> None:
    """Write the model as one ONNX file with a variable batch size; needs the extra `onnx`.

    The input is called `input`. A `SelectiveClassifier` has the outputs `label` (int64), `confidence` (float64) and
    `accepted` (bool); a network has `logits` and, with a variance head, `log_variance`. The policy of a classifier
    that `from_policy` made is stored as JSON in the metadata, under `confrank_policy`.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"expected the packages onnx and onnxscript for ONNX export, but {error.name} is missing:"
            " pip install 'confrank[onnx]'"
        ) from None
    program = export_program(model, example)
    decides = isinstance(model, SelectiveClassifier)
    outputs = ["label", "confidence", "accepted"] if decides else ["logits", "log_variance"]
    outputs = outputs[: len(program.graph_signature.user_outputs)]
    with _quiet():
        onnx_program = torch.onnx.export(
            program, input_names=["input"], output_names=outputs, dynamo=True, verbose=False
        )
    assert onnx_program is not None
    content = onnx_program.model_proto
    if isinstance(model, SelectiveClassifier) and model.policy is not None:
        content.metadata_props.add(key="confrank_policy", value=model.policy.as_text())
    write_atomically(Path(path), content.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which warns about its own deprecated calls and about packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


class _Decide(nn.Module):
    """`decide` as a forward, which is what torch exports."""

    def __init__(self, classifier: SelectiveClassifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.classifier.decide(inputs)
