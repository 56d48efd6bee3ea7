"""The settings of differential perception (paper 002, MDP), and what its files are called."""

from typing import Annotated, Literal

from pydantic import Field

from pairwright.schemas.section import Section

NAME = "differential"
SIZES, WEIGHTS = f"{NAME}.json", f"{NAME}.safetensors"
"""Beside a model's weights: the module's settings, and its weights."""
MOST_DEPTH = 8


class DifferentialConfig(Section):
    """Module that perceives what differs between two images."""

    enabled: bool = False
    """Whether the model gets the module; the same as ``--differential``."""
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 2
    """Number of layers of self- and cross-attention; the paper's 2."""
    shared_weights: bool = True
    """Whether all compared layers of the vision tower go through the same weights; not published."""
    weight_per: Literal["channel", "layer"] = "channel"
    """Whether each channel of a layer of the vision tower has a weight of its own, or the layer has one."""
    softmax: bool = False
    """Whether the weights sum to 1 over the layers (softmax), or each is between 0 and 1 (sigmoid, as printed)."""
