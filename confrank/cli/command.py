"""What a command is, and what several of them share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Command:
    """A command: a line for the overview, an example, its flags, and what it does."""

    summary: str
    example: str
    add_arguments: Callable[["ArgumentParser"], None]
    run: Callable[["Namespace"], None]


def make_console() -> "Console":
    """Where tables and notes go."""
    from rich.console import Console

    # A file or a pipe has no width of its own: wide enough for every table.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def device_of(name: Device) -> Any:
    """The torch device of a --device flag."""
    import torch

    from confrank.training.loop import default_device

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device for --device cuda, but torch sees none; use --device cpu")
    return default_device() if name == "auto" else torch.device(name)


def add_data_flags(parser: "ArgumentParser") -> None:
    """--root and --device."""
    parser.add_argument("--root", type=str | None, default=None, help="folder with the data sets' published files")
    parser.add_argument("--device", type=Device, default="auto", help="where to compute")


def root_of(arguments: "Namespace") -> Path | None:
    """The folder of a --root flag."""
    return None if arguments.root is None else Path(arguments.root)


def picture_path(name: str) -> Path:
    """The path of a picture to write, if its suffix is one that can be drawn."""
    path = Path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


def page_path(name: str) -> Path:
    """The path of a page to write, if its suffix says so."""
    if Path(name).suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return Path(name)
