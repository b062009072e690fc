"""List, fetch and check data sets."""

from functools import partial
from pathlib import Path
from typing import Literal

from confrank.cli.command import (
    Arguments,
    Command,
    Parser,
    add_option,
    add_root,
    list_unreadable,
    make_console,
    root_of,
    say,
)
from confrank.cli.names import with_names


def _data_arguments(parser: Parser) -> None:
    action = "list the known data sets, fetch the published files of one, or check one for damage"
    parser.add_argument("action", type=Literal["list", "fetch", "check"], metavar="list|fetch|check", help=action)
    name = with_names("data set by name, or the path of your own", "dataset", "images")
    parser.add_argument("name", type=str | None, nargs="?", default=None, metavar="NAME", help=name)
    data = parser.add_argument_group("data")
    add_option(data, "--image-size", int, "N", "check your own images as `train --image-size N` sees them")
    add_root(data)


def _data(arguments: Arguments) -> None:
    root = root_of(arguments)
    if arguments.image_size is not None and arguments.action != "check":
        raise ValueError(f"expected --image-size with check only, but got it with {arguments.action}")
    if arguments.action == "list":
        if arguments.name is not None:
            raise ValueError(f"expected no name after list, but got {arguments.name!r}; did you mean check?")
        return _list_data(root)
    if arguments.name is None:
        raise ValueError(
            f"expected the name of a data set to {arguments.action}, but got none; see confrank data list"
        )
    if arguments.action == "fetch":
        return _fetch_data(arguments.name, root)
    return _check_data(arguments.name, root, arguments.image_size)


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
            "embedded" if item.embedded else ", ".join(map(str, item.paths)) or "not downloaded",
        )
        for item in known_sets(root)
    ]
    console = make_console()
    console.print(listing_table(("name", "what it is", "train", "test", "where"), rows))
    say(console, f"searched {root or default_root()}; `confrank data fetch NAME` downloads a data set")


def _fetch_data(name: str, root: Path | None) -> None:
    from confrank.data.download import fetch
    from confrank.report.progress import download_bar

    console = make_console()
    with download_bar(console) as advance:
        files = fetch(name, root, on_progress=advance, on_note=partial(say, console))
    for file in files:
        state = "fetched" if file.downloaded else "already downloaded:"
        say(console, f"{state} {file.path} ({file.digest}, {_verdict(file.verified)})")


def _check_data(name: str, root: Path | None, image_size: int | None) -> None:
    from confrank.data.pictures import UnreadableError
    from confrank.data.survey import check

    console = make_console()
    try:
        checked = check(name, root, image_size)
    except UnreadableError as error:
        list_unreadable(console, error.reasons)
        raise ValueError(
            f"expected readable images in {name}, but {len(error.reasons):,} of {error.num_pictures:,} cannot be read"
            " (listed above); repair or remove them"
        ) from None
    shape = "x".join(map(str, checked.image_shape))
    is_text = len(checked.image_shape) == 1
    kind, size = ("texts", f"up to {shape} words") if is_text else ("images", shape)
    say(console, f"{name}: {kind} of {size} from {', '.join(map(str, checked.paths)) or 'a dependency'}")
    for split, counts in (("train", checked.train), ("test", checked.test)):
        if len(counts) > 1:
            spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
            say(console, f"{split}: {sum(counts):,} {kind}, {len(counts)} classes of {spread}")
        elif counts:
            say(console, f"{split}: {sum(counts):,} images, without labels")
    say(console, *checked.notes)
    for path, actual, expected in checked.digests:
        if expected is not None and actual != expected:
            raise ValueError(
                f"expected {expected} for {path}, but got {actual}: it can be read, but is not the published file"
            )
        say(console, f"{path}: {actual}, {_verdict(expected is not None)}")


def _verdict(verified: bool) -> str:
    return "as published" if verified else "not verified: the publisher provides no checksum"


DATA = Command(
    "list, fetch or check data sets",
    "confrank data fetch cifar10 --root data",
    _data_arguments,
    _data,
    guide="how-to/own-data.md",
)
