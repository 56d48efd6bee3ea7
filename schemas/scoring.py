"""The settings of the table that holds what a training's start gives each answer: all of them decide its numbers."""

from typing import ClassVar, Literal

from pairwright.schemas.section import Count, Positive, Section

Number = Literal["bf16", "fp16", "fp32"]


class ScoringConfig(Section):
    """Say which model scores which answers, and how; a run fills it in, and its hash is part of the table's name."""

    folder: str
    """Where the model is."""
    model: str
    """The hash of its weights and settings, or the Hub's commit."""
    processor: str
    """The hash of its processor's files."""
    template: str
    """The hash of its chat template."""
    weights: Number
    """What the weights are kept in,"""
    compute: Number
    """and what is computed in."""
    attn_implementation: str
    """As ``model.attn_implementation``."""
    shared_prompt: str
    """As ``model.shared_prompt``."""
    max_pixels: Positive
    """As ``model.max_pixels``."""
    max_length: Positive
    """As ``model.max_length``."""
    texts: Count
    """Rejected texts scored of each row, at the most."""
    images: bool
    """Whether the chosen text is scored given the rejected images, too,"""
    beside: bool
    """also where there is a rejected text."""
    batch: Positive = 4
    """Rows at a time."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"folder", "batch"})
