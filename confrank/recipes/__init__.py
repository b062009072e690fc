"""How a network is trained, by name: settings with their source, their cost and what to expect of them.

To add a recipe, add a file and a line to `RECIPES`. These are plain values: `confrank.config` builds on them.
"""

from typing import TYPE_CHECKING, Any

from confrank.recipes.best import BEST
from confrank.recipes.fmfp import FMFP
from confrank.recipes.paper import PAPER
from confrank.recipes.recipe import TrainingRecipe
from confrank.recipes.sure import SURE

if TYPE_CHECKING:
    from confrank.config import RunConfig

RECIPES: dict[str, TrainingRecipe] = {"paper": PAPER, "fmfp": FMFP, "sure": SURE, "best": BEST}


def values(name: str, dataset: str | None = None) -> dict[str, Any]:
    """The settings of a recipe that differ from the defaults, for a data set; an error lists the names.

    >>> values("sure", "cifar10")["mix_weight"], values("paper")
    (0.5, {})
    """
    if name not in RECIPES:
        raise ValueError(f"expected a recipe among {', '.join(RECIPES)}, but got {name!r}")
    recipe = RECIPES[name]
    return {**recipe.settings, **recipe.by_dataset.get(dataset or "", {})}


def settings(name: str, **changes: Any) -> "RunConfig":
    """The config of a recipe, with these settings in place of its own.

    >>> config = settings("best", dataset="cifar100", model="resnet18", seed=1, epochs=100)
    >>> config.averaging, config.departures
    ('swa', {'epochs': 100})
    """
    from confrank.config import RunConfig

    return RunConfig.from_dict({**values(name, changes.get("dataset")), **changes, "recipe": name})


__all__ = ["RECIPES", "TrainingRecipe", "settings", "values"]
