"""List, fetch and check data sets."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from confrank.cli.command import Command, add_root, make_console, root_of, say

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def _data_arguments(parser: "ArgumentParser") -> None:
    parser.add_argument(
        "action",
        type=Literal["list", "fetch", "check"],
        help="list the known data sets, fetch one's published files, or check that one is whole",
    )
    parser.add_argument("name", type=str | None, nargs="?", default=None, help="data set by name, or one's own path")
    add_root(parser)


def _data(arguments: "Namespace") -> None:
    root = root_of(arguments)
    if arguments.action == "list":
        if arguments.name is not None:
            raise ValueError(f"expected no name after list, but got {arguments.name!r}; did you mean check?")
        return _list_data(root)
    if arguments.name is None:
        raise ValueError(
            f"expected the name of a data set to {arguments.action}, but got none; see confrank data list"
        )
    return _fetch_data(arguments.name, root) if arguments.action == "fetch" else _check_data(arguments.name, root)


def _list_data(root: Path | None) -> None:
    from confrank.data import default_root
    from confrank.data.survey import known_sets
    from confrank.report.table import listing_table

    rows = [
        (
            item.name,
            item.summary,
            f"{item.num_train:,}" if item.num_train else "-",
            f"{item.num_test:,}",
            "embedded" if item.embedded else ", ".join(map(str, item.paths)) or "not here",
        )
        for item in known_sets(root)
    ]
    console = make_console()
    console.print(listing_table(("name", "what it is", "train", "test", "where"), rows))
    say(console, f"looked in {root or default_root()}; confrank data fetch NAME downloads a set")


def _fetch_data(name: str, root: Path | None) -> None:
    from confrank.data.download import fetch
    from confrank.report.progress import download_bar

    console = make_console()
    with download_bar(console) as advance:
        files = fetch(name, root, on_progress=advance, on_note=partial(say, console))
    for file in files:
        state = "fetched" if file.downloaded else "already there:"
        verdict = "as published" if file.verified else "not verified: the publisher gives no checksum"
        say(console, f"{state} {file.path} ({file.digest}, {verdict})")


def _check_data(name: str, root: Path | None) -> None:
    from confrank.data.survey import check

    checked, console = check(name, root), make_console()
    shape = "x".join(map(str, checked.image_shape))
    say(console, f"{name}: images of {shape} from {', '.join(map(str, checked.paths)) or 'a dependency'}")
    for split, counts in (("train", checked.train), ("test", checked.test)):
        if len(counts) > 1:
            spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
            say(console, f"{split}: {sum(counts):,} images, {len(counts)} classes of {spread}")
        elif counts:
            say(console, f"{split}: {sum(counts):,} images, without labels")
    for path, actual, expected in checked.digests:
        if expected is not None and actual != expected:
            raise ValueError(
                f"expected {expected} for {path}, but got {actual}: it reads well, but is not the published file"
            )
        verdict = "as published" if expected else "not verified: the publisher gives no checksum"
        say(console, f"{path}: {actual}, {verdict}")


DATA = Command(
    "list, fetch or check data sets",
    "confrank data fetch cifar10 --root data",
    _data_arguments,
    _data,
)
