"""Your own code by name: `package.module:object`."""

import os
import sys
from importlib import import_module
from typing import Any


def load_object(name: str, wanted: str) -> Any:
    """The object that `package.module:object` names, in modules of the current folder too.

    `wanted` describes such a name in the error.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # custom code can raise anything
        why = str(error) if isinstance(error, ImportError | AttributeError | ValueError) else with_kind(error)
        raise ValueError(f"expected an importable {wanted}, but got {name!r}: {why}") from None


def with_kind(error: BaseException) -> str:
    """
    >>> with_kind(KeyError("a"))
    "KeyError: 'a'"
    """
    return f"{type(error).__name__}: {error}"
