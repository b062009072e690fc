"""The help of every command as Markdown, for the command reference of the documentation."""

from confrank.cli.command import Command, make_parser
from confrank.cli.help import Help, Option, help_of
from confrank.cli.main import GROUPS


def markdown() -> str:
    """All commands by group: usage, options and an example of each.

    >>> [line for line in markdown().splitlines() if line.startswith("#")][1:4]
    ['## Start here', '### `confrank demo`', '## Train and predict']
    """
    parts = ["# Commands", "`confrank COMMAND --help` prints the same in the terminal."]
    for title, commands in GROUPS.items():
        parts.append(f"## {title.capitalize()}")
        for name, command in commands.items():
            parts.append(_command(f"confrank {name}", command))
            parts += [_command(f"confrank {name} {action}", item) for action, item in command.actions.items()]
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Command) -> str:
    item = help_of(make_parser(command, name), command.example, command.guide)
    guide = f"[Guide](../{item.guide})" if item.guide else ""
    usage = f"```text\n{item.usage}\n```"
    example = f"```bash\n{item.example}\n```"
    return "\n\n".join(
        filter(None, [f"### `{name}`", item.summary, usage, *_tables(item), "Example:", example, guide])
    )


def _tables(item: Help) -> list[str]:
    """A table for each group of options, without `--help`, which all have."""
    groups = {
        title: [option for option in options if "--help" not in option.form] for title, options in item.groups.items()
    }
    return [_table(title, options) for title, options in groups.items() if options]


def _table(title: str, options: list[Option]) -> str:
    rows = [f"| `{_cell(option.form)}` | {_cell(option.text)} |" for option in options]
    return "\n".join([f"| {title} | |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
