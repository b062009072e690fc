"""The command line. Only this package parses arguments; heavy imports wait until a command runs."""

import signal
import sys

try:
    from confrank.cli.app import main
except KeyboardInterrupt:  # Ctrl-C before the first command could run
    print("confrank: stopped", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)

__all__ = ["main"]
