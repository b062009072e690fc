"""The former name of `confrank.decisions`."""

from confrank.decisions import *  # noqa: F403
