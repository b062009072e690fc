"""List, fetch and check data sets."""

from functools import partial

from confrank.cli.command import Arguments, Command, Parser, add_option, add_root, command_of, root_of
from confrank.cli.names import with_names
from confrank.cli.terminal import list_unreadable, make_console, say


def _list_arguments(parser: Parser) -> None:
    add_root(parser.add_argument_group("data"))


def _fetch_arguments(parser: Parser) -> None:
    name = with_names("published data set by name", "dataset", "images")
    parser.add_argument("name", type=str, metavar="NAME", help=name)
    add_root(parser.add_argument_group("data"))


def _check_arguments(parser: Parser) -> None:
    name = with_names("data set by name, or the path of your own", "dataset", "images")
    parser.add_argument("name", type=str, metavar="NAME", help=name)
    data = parser.add_argument_group("data")
    add_option(data, "--image-size", int, "N", "check your own images as `train --image-size N` sees them")
    add_root(data)


def _list(arguments: Arguments) -> None:
    from confrank.data import default_root
    from confrank.data.survey import known_sets
    from confrank.report.table import listing_table

    root = root_of(arguments)
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


def _fetch(arguments: Arguments) -> None:
    from confrank.data.published import fetch
    from confrank.report.progress import download_bar

    console = make_console()
    with download_bar(console) as bar:
        files = fetch(arguments.name, root_of(arguments), bar=bar, on_note=partial(say, console))
    for file in files:
        state = "fetched" if file.downloaded else "already downloaded:"
        say(console, f"{state} {file.path} ({file.digest}, {_verdict(file.verified)})")


def _check(arguments: Arguments) -> None:
    from confrank.data import custom_path
    from confrank.data.extent import image_files, usual_image_size
    from confrank.data.pictures import UnreadableError
    from confrank.data.survey import check

    name, size, console = arguments.name, arguments.image_size, make_console()
    path = custom_path(name, root_of(arguments))
    if size is None and path is not None:
        size = usual_image_size(image_files(path))
    try:
        checked = check(name, root_of(arguments), size)
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


ACTIONS: dict[str, Command] = {
    "list": Command(
        "list the known data sets, and which of them are downloaded",
        "confrank data list --root data",
        _list_arguments,
        _list,
        guide="how-to/own-data.md",
    ),
    "fetch": Command(
        "download the published files of a data set",
        "confrank data fetch cifar10 --root data",
        _fetch_arguments,
        _fetch,
        guide="how-to/own-data.md",
    ),
    "check": Command(
        "read a data set completely, and check it for damage",
        "confrank data check photos --image-size 32",
        _check_arguments,
        _check,
        guide="how-to/own-data.md",
    ),
}


DATA = command_of(ACTIONS, "list, fetch or check data sets", ACTIONS["fetch"].example, guide="how-to/own-data.md")
