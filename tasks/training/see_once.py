"""Compute the features of a batch's images once, for the policy and for the reference.

Where nothing of what sees is trained, both get the same features: the second pass is spared, and so is what the first
would keep for its gradients.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from pairwright.tasks.models.differential.perception import DifferentialPerception

FIND = "get_image_features"
"""What transformers' models call their method that turns pixels into what stands in for the image tokens."""


@contextmanager
def seen_once(*models: Any) -> Generator[None]:
    """Let models that are called inside, one after the other and on the same tensors, look at the images once.

    Nothing changes for a model that trains what sees, by weights, by adapters or by differential perception, and for
    one of another kind.

    Args:
        models: the policy, and the reference where it is a copy; perhaps wrapped.
    """
    seen: list[tuple[Tensor, Any]] = []
    with ExitStack() as after:
        for model in models:
            eye = _eye(model)
            if eye is not None and not _is_trained(eye) and not _perceives(model):
                setattr(eye, FIND, _remembering(eye, seen))
                after.callback(delattr, eye, FIND)
        yield


def _eye(model: Any) -> Any:
    """Return the innermost module that turns pixels into features; ``None``: there is none."""
    found = [module for module in model.modules() if hasattr(type(module), FIND) and FIND not in vars(module)]
    return found[-1] if found else None


def _is_trained(eye: Any) -> bool:
    """Say whether anything but the language model is trained, or which part that is cannot be told."""
    decoder = eye.get_decoder()
    language = {id(parameter) for parameter in decoder.parameters()} if decoder is not eye else set[int]()
    return any(parameter.requires_grad and id(parameter) not in language for parameter in eye.parameters())


def _perceives(model: Any) -> bool:
    """Say whether a module of differential perception is trained, which is put into the tower that sees."""
    return any(isinstance(one, DifferentialPerception) for one in model.modules())


def _remembering(eye: Any, seen: list[tuple[Tensor, Any]]) -> Callable[..., Any]:
    find = getattr(eye, FIND)

    def look(*words: Any, **named: Any) -> Any:
        pixels = words[0] if words else named["pixel_values"]
        for known, features in seen:
            if known is pixels:
                return features
        with torch.no_grad(), _asleep(eye):
            features = find(*words, **named)
        seen.append((pixels, features))
        return features

    return look


@contextmanager
def _asleep(eye: Any) -> Generator[None]:
    """Take what sees out of training: dropout, if there is any, is for what is trained."""
    language = set(eye.get_decoder().modules())
    awake = [module for module in eye.modules() if module.training and module not in language]
    try:
        for module in awake:
            module.training = False
        yield
    finally:
        for module in awake:
            module.training = True
