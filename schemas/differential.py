"""The settings of differential perception (paper 002, MDP), and what its files are called."""

from typing import Annotated, Literal

from pydantic import Field

from pairwright.schemas.section import Section

NAME = "differential"
SIZES, WEIGHTS = f"{NAME}.json", f"{NAME}.safetensors"
"""Beside a model's weights: the module's settings, and its weights."""
MOST_DEPTH = 8


class DifferentialConfig(Section):
    """Say whether a model gets a module that perceives what differs between two images, and which."""

    attached: bool = False
    """Whether it gets one; ``--differential``."""
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 2
    """Layers of self- and cross-attention, one on top of the other; the paper's 2."""
    shared: bool = True
    """Whether all layers of the tower that are compared are by the same weights; the paper does not say."""
    score: Literal["vector", "number"] = "vector"
    """What weighs a layer of the tower: each channel, or all alike."""
    competing: bool = False
    """Whether the layers' weights sum to 1 (softmax); else each is between 0 and 1 (sigmoid, as printed)."""
