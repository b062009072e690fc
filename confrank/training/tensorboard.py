"""The records of epochs for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confrank.config import RunConfig
from confrank.errors import InputError


class TensorBoardLog:
    """A listener for `on_epoch` that writes the numbers of each epoch into `tensorboard/` of the run's folder.

    `folders` maps the names of runs to their folders. Of a resumed run, the epochs since its checkpoint are replaced.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "expected the package tensorboard, but it is not installed",
                "run pip install 'confrank[tensorboard]', or leave out {log}",
            ) from None
        self._writer, self._folders = SummaryWriter, folders
        self._open: dict[str, Any] = {}

    def __call__(self, config: RunConfig, record: Mapping[str, Any]) -> None:
        name, epoch = config.run_name, record["epoch"]
        if name not in self._open:
            self._open[name] = self._writer(str(self._folders[name] / "tensorboard"), purge_step=epoch)
        test = {f"test/{key}": value for key, value in record.get("test", {}).items() if value is not None}
        for key, value in {**record, **test}.items():
            if isinstance(value, int | float) and key != "epoch":
                self._open[name].add_scalar(key, value, epoch)
        self._open[name].flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            writer.close()
