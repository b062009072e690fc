"""How a network is trained, by name: settings with their source, their cost and what to expect of them.

To add a recipe, add a file and a line to `RECIPES`. These are plain values: `confrank.config` builds on them.
"""

from typing import TYPE_CHECKING, Any

from confrank.recipes.best import BEST
from confrank.recipes.fmfp import FMFP
from confrank.recipes.images import IMAGE_DEFAULTS, IMAGE_SIZE, LONGEST_SIDE, image_defaults
from confrank.recipes.paper import PAPER
from confrank.recipes.recipe import TrainingRecipe
from confrank.recipes.sure import SURE
from confrank.recipes.texts import TEXT_DEFAULTS, TEXT_SUFFIXES, TEXT_TRAINING, WITHOUT, holds_texts, text_epochs

if TYPE_CHECKING:
    from confrank.config import RunConfig

RECIPES: dict[str, TrainingRecipe] = {"paper": PAPER, "fmfp": FMFP, "sure": SURE, "best": BEST}


def values(name: str, dataset: str = "", model: str = "", lr: float | None = None) -> dict[str, Any]:
    """The settings of a recipe that differ from the defaults, for a data set and network; an error lists the names.

    Texts have defaults of their own. `lr` is the learning rate if it is given: that of averaging is a share of it.

    >>> values("sure", "cifar10")["mix_weight"], values("paper"), values("paper", "reviews.csv")["epochs"]
    (0.5, {}, 20)
    >>> values("best", lr=0.01)["averaging_lr"]
    0.005
    """
    from confrank.config import RunConfig

    unfit = left_out(name, dataset, model)
    fitting = {key: value for key, value in _of_recipe(name, dataset).items() if key not in unfit}
    chosen = {**(TEXT_TRAINING if holds_texts(dataset) else {}), **fitting}
    if (share := chosen.pop("averaging_lr_share", None)) is not None:
        given = chosen.get("lr", RunConfig.lr) if lr is None else lr
        chosen["averaging_lr"] = float(f"{share * given:.12g}")  # 0.2 x 0.1 is 0.02
    return chosen


def left_out(name: str, dataset: str, model: str = "") -> dict[str, str]:
    """The settings of a recipe that a data set or a network cannot have, each with the reason.

    >>> left_out("best", "reviews.csv")
    {'epochs': 'texts are trained for 20', 'mix': 'texts cannot be mixed'}
    """
    reasons = dict(WITHOUT) if holds_texts(dataset) else {}
    if ":" in model:
        reasons["head"] = "your own network has a head"
    return {setting: why for setting, why in reasons.items() if setting in _of_recipe(name, dataset)}


def _of_recipe(name: str, dataset: str) -> dict[str, Any]:
    if name not in RECIPES:
        raise ValueError(f"expected a recipe among {', '.join(RECIPES)}, but got {name!r}")
    recipe = RECIPES[name]
    return {**recipe.settings, **recipe.by_dataset.get(dataset, {})}


def settings(name: str, **changes: Any) -> "RunConfig":
    """The config of a recipe, with these settings in place of its own.

    >>> config = settings("best", dataset="cifar100", model="resnet18", seed=1, epochs=100)
    >>> config.averaging, config.departures
    ('swa', {'epochs': 100})
    """
    from confrank.config import RunConfig

    depends_on = {key: changes[key] for key in ("dataset", "model", "lr") if key in changes}
    return RunConfig.from_dict({**values(name, **depends_on), **changes, "recipe": name})


__all__ = [
    "IMAGE_DEFAULTS",
    "IMAGE_SIZE",
    "LONGEST_SIDE",
    "RECIPES",
    "TEXT_DEFAULTS",
    "TEXT_SUFFIXES",
    "TEXT_TRAINING",
    "TrainingRecipe",
    "holds_texts",
    "image_defaults",
    "left_out",
    "settings",
    "text_epochs",
    "values",
]
