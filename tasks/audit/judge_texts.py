"""Judge whether a description of a planted pair is true (ours).

All of a planted pair but the planted things and the photograph's light, focus and framing is the
same, to the byte. A description is *true* if it names a change that was made, and says nothing
wrong about planted things and the photograph. It is *false* if it does, or names no such change:
whatever else it says to differ does not. What it mentions beside, of the photograph itself, is not
judged. It is *unclear* where it speaks of a changed thing in words that are not known.

Reads noun phrases by the scene grammar, after words of the same meaning are replaced by its own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pairwright.schemas.claims import (
    Claim,
    Graphs,
    Selector,
    is_no_change,
    is_true_claim,
)
from pairwright.schemas.rows import DifferenceRow
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.scenes.read_claims import read_claims
from pairwright.tasks.scenes.read_phrases import UNREADABLE, read_phrases
from pairwright.tasks.texts.words import WORD, affirmed

SYNONYMS: Mapping[str, str] = {
    "sphere": "ball",
    "orb": "ball",
    "globe": "ball",
    "block": "cube",
    "dice": "cube",
    "can": "cylinder",
    "tube": "cylinder",
    "drum": "cylinder",
    "torus": "ring",
    "hoop": "ring",
    "donut": "ring",
    "jar": "vase",
    "urn": "vase",
    "dish": "bowl",
    "basin": "bowl",
    "cup": "mug",
    "kettle": "teapot",
    "chest": "box",
    "crate": "box",
    "case": "box",
    "volume": "book",
    "notebook": "book",
    "seat": "chair",
    "automobile": "car",
    "vehicle": "car",
    "duckling": "duck",
    "board": "sign",
    "placard": "sign",
    "lantern": "lamp",
    "crimson": "red",
    "scarlet": "red",
    "maroon": "red",
    "golden": "yellow",
    "gold": "yellow",
    "emerald": "green",
    "lime": "green",
    "teal": "turquoise",
    "cyan": "turquoise",
    "aqua": "turquoise",
    "navy": "blue",
    "azure": "blue",
    "violet": "purple",
    "magenta": "pink",
    "rose": "pink",
    "metallic": "metal",
    "steel": "metal",
    "timber": "wooden",
    "porcelain": "ceramic",
    "big": "large",
    "huge": "large",
    "little": "small",
    "tiny": "small",
}
"""Words that models use, and the scene grammar's word for the same."""
NEAR_SHAPES = {"cube": "box", "box": "cube"}
"""Shapes that go by each other's names."""
Levels = Mapping[str, int]
LIGHTNESS: Levels = {"dim light": -1, "bright light": 1}
WARMTH: Levels = {"cool light": -1, "warm light": 1}
SHARPNESS: Levels = {"soft focus": -1}
CLOSENESS: Levels = {"a closer view": 1}


class Truth(StrEnum):
    """Truth of a text, as far as it is known."""

    TRUE = "true"
    FALSE = "false"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict about a text, and its reason."""

    verdict: Truth
    why: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """Property of a whole photograph, and the words that say that it has more or less of it."""

    levels: Levels
    """Phrases of a scene graph with more (1) or less (-1) of it than the usual one."""
    more: re.Pattern[str]
    less: re.Pattern[str]


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)


AXES = (
    Axis(LIGHTNESS, _words("brighter|bright light|brightly lit"), _words("darker|dim|dimmer")),
    Axis(WARMTH, _words("warmer|warm light"), _words("cooler|colder|cool light|bluish")),
    Axis(SHARPNESS, _words("sharper|crisper"), _words(r"blurr\w+|soft focus|softer|out of focus")),
    Axis(CLOSENESS, _words(r"closer|zoomed\w*|cropped"), _words("wider|farther|further away")),
)
WRONG = "says something wrong about a planted thing"
WRONG_VIEW = "says something wrong about the photograph"
NOTHING_NAMED = "names no change that was made"
MAY_TELL = "speaks of a changed thing, in words that are not known"
NOT_UNCHANGED = "says that nothing changed"


def judge_text(row: DifferenceRow, graphs: Graphs) -> Judgement:
    """Return whether a description is true of a planted pair."""
    if row.no_change:
        if is_no_change(graphs):
            return Judgement(Truth.TRUE)
        return Judgement(Truth.FALSE, NOT_UNCHANGED)
    reading = read_claims(use_known_words(row.text))
    halves = (use_known_words(row.first_half), use_known_words(row.second_half))
    claims: Sequence[Claim] = reading.claims
    if not reading.understood:
        claims = [*read_half(halves[0], 0), *read_half(halves[1], 1)]
    planted = _planted_shapes(graphs)
    of_planted = [claim for claim in claims if claim.selector.shape in planted]
    if any(not _holds(claim, graphs) for claim in of_planted):
        return Judgement(Truth.FALSE, WRONG)
    orders = list(_compare_views(halves, graphs))
    if not all(orders):
        return Judgement(Truth.FALSE, WRONG_VIEW)
    if orders or any(_tells(claim, graphs) for claim in of_planted):
        return Judgement(Truth.TRUE)
    if not reading.understood and _may_tell(of_planted, halves, graphs):
        return Judgement(Truth.UNCLEAR, MAY_TELL)
    return Judgement(Truth.FALSE, NOTHING_NAMED)


def use_known_words(text: str) -> str:
    """Return a text with words of the same meaning replaced by the scene grammar's."""

    def replace_word(match: re.Match[str]) -> str:
        word = match[0].lower()
        if word in SYNONYMS:
            return SYNONYMS[word]
        singular = word.removesuffix("s")
        if singular in SYNONYMS:
            return f"{SYNONYMS[singular]}s"
        return match[0]

    return re.sub(r"[A-Za-z]+", replace_word, text)


def read_half(half: str, side: int) -> list[Claim]:
    """Return the claims of a half about its image: things that are there, and that are not."""
    present = _read_phrases(affirmed(half), side)
    everything = _read_phrases(half, side)
    claims = list(present)
    for claim in everything:
        if claim in present:
            continue
        if claim.kind == "exists":
            claim = claim.model_copy(update={"kind": "absent"})
        if claim.kind == "absent":
            claims.append(claim)
    return claims


def _read_phrases(text: str, side: int) -> list[Claim]:
    readable = UNREADABLE.sub(" ", text)
    halves = (readable, "") if side == 0 else ("", readable)
    claims = read_phrases(*halves).claims
    return [claim for claim in claims if claim.kind in ("exists", "absent", "count")]


def _planted_shapes(graphs: Graphs) -> set[str | None]:
    shapes: set[str | None] = set()
    for graph in graphs:
        shapes.update(item.shape for item in graph.objects)
    for shape in list(shapes):
        if shape in NEAR_SHAPES:
            shapes.add(NEAR_SHAPES[shape])
    return shapes


def _holds(claim: Claim, graphs: Graphs) -> bool:
    """Return whether a claim is true, its thing's near name allowed."""
    return any(is_true_claim(near, graphs) for near in _near_claims(claim))


def _tells(claim: Claim, graphs: Graphs) -> bool:
    """Return whether a true claim is false of the other photograph."""
    turned = claim.model_copy(update={"side": 1 - claim.side})
    return not _holds(turned, graphs)


def _near_claims(claim: Claim) -> Iterator[Claim]:
    """Yield the claim and, unless it denies, the same about things that go by this name, too."""
    yield claim
    near = NEAR_SHAPES.get(claim.selector.shape or "")
    if near and claim.kind != "absent":
        selector = claim.selector.model_copy(update={"shape": near})
        yield claim.model_copy(update={"selector": selector})


def _compare_views(halves: Sequence[str], graphs: Graphs) -> Iterator[bool]:
    """Yield, for each statement about the photograph as a whole, whether it is true."""
    for axis in AXES:
        levels = [_level(graph, axis) for graph in graphs]
        for side, half in enumerate(halves):
            lead = levels[side] - levels[1 - side]
            if axis.more.search(half):
                yield lead > 0
            if axis.less.search(half):
                yield lead < 0


def _level(graph: SceneGraph, axis: Axis) -> int:
    return axis.levels.get(graph.light, axis.levels.get(graph.viewpoint, 0))


def _may_tell(claims: Sequence[Claim], halves: Sequence[str], graphs: Graphs) -> bool:
    """Return whether a half names a changed thing, or a thing by its colour alone."""
    for side, half in enumerate(halves):
        changed = _changed_things(graphs[side], graphs[1 - side])
        half_words = {word.lower() for word in WORD.findall(half)}
        if any(item.colour in half_words for item in changed):
            return True
        selectors = [claim.selector for claim in claims if claim.side == side]
        changed_ids = {item.id for item in changed}
        for selector in selectors:
            if any(item.id in changed_ids for item in selector.select(graphs[side])):
                return True
    return False


def _changed_things(graph: SceneGraph, other: SceneGraph) -> list[SceneObject]:
    """Return the things of a photograph that the other one lacks, or has with other looks."""
    others = {item.id: item for item in other.objects}
    changed: list[SceneObject] = []
    for item in graph.objects:
        counterpart = others.get(item.id)
        if counterpart is None or _looks(item) != _looks(counterpart):
            changed.append(item)
    return changed


def _looks(item: SceneObject) -> tuple[object, ...]:
    return tuple(getattr(item, name) for name in Selector.model_fields)
