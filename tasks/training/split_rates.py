"""Give the tower that sees a learning rate of its own. Needs PyTorch."""

from typing import Any

import torch

from pairwright.tasks.models.differential.attach import find_tower

FIELD = "optimiser.vision_learning_rate"


def split_rates(optimizer: torch.optim.Optimizer, model: Any, rate: float) -> None:
    """Put the weights of the tower that sees into groups of their own, behind the others.

    Its adapters, if it has some, are among them; the projector behind it is not, nor is differential perception.

    Args:
        optimizer: new; what has steps behind it would be of other groups.
        model: not distributed.
        rate: of the tower.

    Raises:
        ModelError: the model's family is not known.
    """
    own = {id(weight) for weight in find_vision(model)}
    for group in list(optimizer.param_groups):
        tower = [weight for weight in group["params"] if id(weight) in own]
        group["params"] = [weight for weight in group["params"] if id(weight) not in own]
        if tower:
            optimizer.add_param_group({**group, "params": tower, "lr": rate})


def find_vision(model: Any) -> list[torch.nn.Parameter]:
    """Return the weights of a model's tower that sees, without the projector that may be a part of it.

    Raises:
        ModelError: the model's family is not known.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    tower = find_tower(base, field=FIELD)
    projector = {id(weight) for weight in tower.after.parameters()}
    return [weight for weight in tower.whole.parameters() if id(weight) not in projector]
