"""The defaults of `train` that depend on your own images or texts."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confrank.recipes import IMAGE_DEFAULTS, TEXT_TRAINING, holds_texts, image_defaults, text_epochs


def for_own_data(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that depend on your own data, for images or texts; empty for a data set with a name."""
    from confrank.data import custom_path

    dataset = given.get("dataset", "digits")
    path = custom_path(dataset, given.get("root"))
    with suppress(ValueError, OSError):  # training reports what is wrong with the data
        if path is not None:
            return (_epochs_for_texts if holds_texts(dataset) else _for_images)(path, given)
    return {}


def _epochs_for_texts(path: Path, given: Mapping[str, Any]) -> dict[str, int]:
    from confrank.config import RunConfig
    from confrank.data.texts import num_training_texts

    if "epochs" in given:
        return {}
    kept = num_training_texts(path) * (1 - given.get("holdout", 0.0))
    return {"epochs": text_epochs(round(kept), given.get("batch_size", RunConfig.batch_size))}


def _for_images(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The size of images, and how to train on them unless a recipe says so."""
    from confrank.data.extent import image_files, num_training_images, usual_image_size

    size = {} if "image_size" in given else {"image_size": usual_image_size(image_files(path))}
    if "recipe" in given:
        return size
    kept = num_training_images(path) * (1 - given.get("holdout", 0.0))
    return {**image_defaults(round(kept), given), **size}


def default_for_own_data(name: str, default: Any) -> str:
    """The end of a help text: all defaults, if your own images or texts have another one."""
    own = {"images": {**IMAGE_DEFAULTS, "epochs": "20 to 60"}, "texts": TEXT_TRAINING}
    others = [f"for your own {kind} {values[name]}" for kind, values in own.items() if name in values]
    if not others:
        return ""
    more = ", or more if they are few" if name == "epochs" else ""
    return f" (default: {default}, {', '.join(others)}{more})"
