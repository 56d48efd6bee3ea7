"""Read a summary of commonalities and differences (CaD) into its parts, or refuse it with a reason.

Follows the layout of paper 003's published summaries, tolerantly: axes may be missing, merged or unlabelled,
commonalities a list or prose, words singular, plural or "(s)", headings Markdown, or there may be none at all. What a
model says before and after, to the person who asked, is taken off. Nothing is published about refusing summaries: the
reasons are ours.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from pairwright.schemas.comparison_items import Item, read_item, split_items, split_sentences
from pairwright.schemas.comparison_layout import Block, find_layout, tidy, without_greeting
from pairwright.schemas.refusals import declines, repeats_itself

Reason = Literal[
    "cut off",
    "declined",
    "repeats itself",
    "off the layout",
    "no commonalities",
    "no differences",
    "control tokens",
    "speaks of captions",
]

END = re.compile(r"(?<!\.\.)[.!?][\"'”’“»«›」)*_`]*$")
"""A full stop, perhaps within quotation marks of any kind; "..." trails off."""
SHARED = re.compile(
    r"\b(?:both|in common|commonalit\w*|similarit\w*|similarly|likewise|shares?|shared|alike|same|each of the)\b",
    re.IGNORECASE,
)
OF_BOTH = re.compile(r"(?:in )?(?:both|each of|the two (?:images|photos|pictures))\b", re.IGNORECASE)
CONTRAST = re.compile(
    r"\b(?:whereas|differ\w*|in contrast|contrasts?|contrasting|unlike|on the other hand|instead|however)\b",
    re.IGNORECASE,
)
ONE_OF_TWO = re.compile(
    r"\b(?:image (?:[12]|one|two)|(?:first|second|other) (?:image|one|photo|picture)|the (?:former|latter))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Be a summary in its parts."""

    commonalities: tuple[str, ...]
    differences: tuple[Item, ...]
    text: str = field(default="", compare=False)
    """The summary itself: the whole text without greeting and farewell."""


@dataclass(frozen=True, slots=True)
class RefusedComparison:
    """Say why a text is no summary."""

    reason: Reason | str
    """One of ours, or what a plugin's validator says."""
    detail: str = ""


def read_comparison(text: str, *, finish_reason: str = "stop") -> Comparison | RefusedComparison:
    """Return the parts of a summary, or the first reason to refuse it."""
    text = tidy(text)
    if finish_reason == "length":
        return RefusedComparison("cut off", finish_reason)
    if declines(text):
        return RefusedComparison("declined", text[:60])
    if repeats_itself(text):
        return RefusedComparison("repeats itself", text[-60:])
    layout = find_layout(text)
    if not END.search(layout.text):
        return RefusedComparison("cut off", layout.text[-40:])
    return _read_blocks(layout.text, layout.blocks) if layout.blocks else _read_prose(without_greeting(text))


def _read_blocks(text: str, blocks: tuple[Block, ...]) -> Comparison | RefusedComparison:
    if not blocks[0].is_common:
        return RefusedComparison("off the layout", text[:60])
    if all(block.is_common for block in blocks):
        return RefusedComparison("no differences", text[-60:])
    shared = tuple(item for block in blocks if block.is_common for item in split_items(block))
    apart = tuple(
        read_item(item, block.label) for block in blocks if not block.is_common for item in split_items(block)
    )
    return _found(shared, apart, text)


def _read_prose(text: str) -> Comparison | RefusedComparison:
    """Tell sentences on both images from those that set them apart; others go with the sentence before them."""
    shared: list[str] = []
    apart: list[str] = []
    current = None
    for sentence in split_sentences(text):
        if CONTRAST.search(sentence) or (ONE_OF_TWO.search(sentence) and not OF_BOTH.match(sentence)):
            current = apart
        elif SHARED.search(sentence):
            current = shared
        if current is not None:
            current.append(sentence)
    return _found(tuple(shared), tuple(read_item(sentence) for sentence in apart), text)


def _found(shared: tuple[str, ...], apart: tuple[Item, ...], text: str) -> Comparison | RefusedComparison:
    if not shared:
        return RefusedComparison("no commonalities", text[:60])
    return Comparison(shared, apart, text) if apart else RefusedComparison("no differences", text[-60:])
