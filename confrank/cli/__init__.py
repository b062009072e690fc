"""The command line. Only this package parses arguments; heavy imports wait until a command runs."""

from confrank.cli.main import COMMANDS, main

__all__ = ["COMMANDS", "main"]
