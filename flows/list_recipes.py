"""List the recipes of trainings, with the memory that each needs of a GPU."""

from dataclasses import dataclass

from pairwright.flows.load_profile import RECIPES, choose_objective, load_recipe, profile_names
from pairwright.flows.make_train_config import make_config
from pairwright.tasks.serving.memory import GB
from pairwright.tasks.training.memory import Sizes, share_of


@dataclass(frozen=True, kw_only=True)
class ListedRecipe:
    """One row of `pairwright recipes`."""

    name: str
    about: str
    objective: str
    model: str
    gpus: int
    memory_gb: int
    """Of each GPU that it is for."""
    needs_gb: float | None
    """What it needs of each; ``None``: not counted, NAMC is small."""


def list_recipes() -> list[ListedRecipe]:
    """Return the recipes that come with Pairwright, with the memory that they need."""
    return [_list_recipe(name) for name in profile_names(RECIPES)]


def _list_recipe(name: str) -> ListedRecipe:
    recipe, config = load_recipe(name)[0], make_config(choose_objective("", name), [], recipe=name)
    needs = share_of(Sizes(**recipe.sizes), config, gpus=recipe.gpus).total / GB if recipe.sizes else None
    own = recipe.model_dump(include={"about", "gpus", "memory_gb"})
    model = config.model.name if recipe.sizes else ""
    return ListedRecipe(name=name, objective=config.objective, model=model, needs_gb=needs, **own)
