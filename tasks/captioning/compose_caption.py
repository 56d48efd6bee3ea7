"""Compose a detailed caption of one photograph from its scene graph, as sentences with their claims.

Every object is mentioned, by region; like things in several regions share a sentence. Needs ``caption_sentences.j2``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import COLUMNS, DEPTHS, capital, joined, number, some, surface
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning import statements
from pairwright.tasks.captioning.statements import Mention, Statement

Axis = Literal["column", "depth"]
AXES: tuple[Axis, Axis] = ("column", "depth")
MOST_IN_REGION = 4
"""Most kinds of things of a third; a third with more is divided along the other axis."""


@dataclass(frozen=True, slots=True)
class Region:
    """Third of the photograph, across or in depth, or the intersection of two."""

    column: str | None = None
    depth: str | None = None

    @property
    def names(self) -> tuple[Axis, ...]:
        """Return the axes that bound it."""
        return tuple(axis for axis in AXES if getattr(self, axis) is not None)

    @property
    def words(self) -> str:
        """Return its phrase: "on the left in the foreground"."""
        return " ".join(surface(axis, getattr(self, axis)) for axis in self.names)


def describe_regions(graph: SceneGraph, rng: Random, *, kinds: Sequence[Selector], detailed: bool) -> list[Statement]:
    """Mention all objects of these kinds, like ones with their number; no region has two sentences."""
    axis = rng.choice(AXES)
    regions = _regions(graph, kinds, axis=axis)
    if rng.random() < 0.5:
        regions.reverse()
    spread = [kind for kind in kinds if not _region_of(kind.select(graph), regions)]
    found = [_say_spread(kind.select(graph), axis, rng) for kind in spread]
    wordings = load_wordings("caption_sentences").dealt("region", rng)
    for region in regions:
        groups = [kind.select(graph) for kind in kinds if _region_of(kind.select(graph), regions) == region]
        mentions = [_mention_group(group, region, rng, detailed=detailed) for group in groups]
        if mentions:
            rng.shuffle(mentions)
            # The sentence names the region once for all things.
            bare = [mention.selector.model_copy(update=dict.fromkeys(region.names)) for mention in mentions]
            things = joined([some(look, mention.count) for look, mention in zip(bare, mentions, strict=True)])
            text = next(wordings).render(where=region.words, things=things)
            found.append(Statement(capital(text), statements.claims_of(mentions)))
    return found


def _regions(graph: SceneGraph, kinds: Sequence[Selector], *, axis: Axis) -> list[Region]:
    """Return the thirds along an axis; crowded ones are divided along the other."""
    places, others = (COLUMNS, DEPTHS) if axis == "column" else (DEPTHS, COLUMNS)
    other: Axis = "depth" if axis == "column" else "column"
    regions: list[Region] = []
    for place in places:
        crowd = sum(any(getattr(a, axis) == place for a in kind.select(graph)) for kind in kinds)
        parts = others if crowd > MOST_IN_REGION else (None,)
        regions += [Region(**{axis: place, other: part}) for part in parts]
    return regions


def _region_of(group: list[SceneObject], regions: list[Region]) -> Region | None:
    return next(
        (one for one in regions if all(getattr(a, axis) == getattr(one, axis) for a in group for axis in one.names)),
        None,
    )


def _mention_group(group: list[SceneObject], region: Region, rng: Random, *, detailed: bool) -> Mention:
    """Mention like things with their number, and a single one in detail; the claim names the region."""
    if len(group) > 1:
        return Mention(0, statements.describe(group[0], *region.names), len(group))
    [thing] = group
    chances = {"size": 0.7, "pose": 0.9, "text": 1.0, "facing": 0.6} if detailed else {}
    details = [name for name, chance in chances.items() if getattr(thing, name) is not None and rng.random() < chance]
    return Mention(0, statements.describe(thing, *region.names, *details))


def _say_spread(group: list[SceneObject], axis: Axis, rng: Random) -> Statement:
    """Count like things, in all and by column or depth."""
    everywhere = Mention(0, statements.describe(group[0]), len(group))
    values = COLUMNS if axis == "column" else DEPTHS
    by_value = {value: [thing for thing in group if getattr(thing, axis) == value] for value in values}
    placed = {value: things for value, things in by_value.items() if things}
    parts = [Mention(0, statements.describe(things[0], axis), len(things)) for things in placed.values()]
    counts = [number(len(things)) for things in placed.values()] if len(parts) > 1 else ["all"]
    where = joined([f"{count} {surface(axis, value)}" for count, value in zip(counts, placed, strict=True)])
    text = load_wordings("caption_sentences").say("group", rng, things=everywhere.text, parts=where)
    return Statement(capital(text), statements.claims_of([everywhere, *parts]))


MOST_WORDS = 120
TARGETS = (60, 90)
"""Range of the target length in words, up to which sentences are added."""
TOLD_WHOLE = 8
"""Most objects of a photograph of which a caption omits none."""
MOST_RELATIONS = 3
TALLIED, MOST_TALLIED = ("colour", "material", "shape", "size"), 3


def compose_caption(graph: SceneGraph, rng: Random) -> tuple[Statement, ...]:
    """Return the sentences of a caption of 40 to 120 words (fewer only where there is less to say)."""
    total = statements.everything(0, graph)
    opening = Statement(
        _say("opening", rng, place=graph.place, things=total.text),
        (statements.scene_claim(0, "place", graph), total.claim),
    )
    closing = _say_closing(graph, rng)
    ends = _count_words(opening, *closing)
    middle = _mention_all(graph, rng, room=MOST_WORDS - ends)
    target, used = rng.randint(*TARGETS), ends + _count_words(*middle)
    fillers = [*_say_relations(graph, rng), *_say_tallies(graph, rng)]  # sentences that lengthen a caption
    rng.shuffle(fillers)
    for part in fillers:
        if used < target and used + _count_words(part) <= MOST_WORDS:
            middle.append(part)
            used += _count_words(part)
    return (opening, *middle, *closing)


def _mention_all(graph: SceneGraph, rng: Random, *, room: int) -> list[Statement]:
    """Mention every object; where that takes too many words, in less detail or, of many, without the smallest."""
    kinds = _sort_kinds(graph)
    least = len(kinds) if len(graph.objects) <= TOLD_WHOLE else 1
    attempts = [(len(kinds), True), (len(kinds), True), *((n, False) for n in range(len(kinds), least - 1, -1))]
    parts: list[Statement] = []
    for count, detailed in attempts:
        parts = describe_regions(graph, rng, kinds=kinds[:count], detailed=detailed)
        if _count_words(*parts) <= room:
            break
    return parts


def _sort_kinds(graph: SceneGraph) -> list[Selector]:
    """Return the looks of the objects, the one with the largest object first, as viewers notice it first."""
    sizes: dict[Selector, int] = {}
    for thing in graph.objects:
        x0, y0, x1, y1 = thing.box
        look = statements.describe(thing)
        sizes[look] = max(sizes.get(look, 0), (x1 - x0) * (y1 - y0))
    return sorted(sizes, key=lambda look: -sizes[look])


def _say(kind: str, rng: Random, **values: str) -> str:
    return capital(load_wordings("caption_sentences").say(kind, rng, **values))


def _count_words(*parts: Statement) -> int:
    return sum(len(part.text.split()) for part in parts)


def _say_closing(graph: SceneGraph, rng: Random) -> list[Statement]:
    light, view = statements.scene_claim(0, "light", graph), statements.scene_claim(0, "viewpoint", graph)
    if rng.random() < 0.6:
        return [Statement(_say("closing", rng, light=graph.light, viewpoint=graph.viewpoint), (light, view))]
    lit = Statement(_say("light", rng, light=graph.light), (light,))
    taken = Statement(_say("viewpoint", rng, viewpoint=graph.viewpoint), (view,))
    return rng.choice([[lit], [taken], [lit, taken]])


def _say_relations(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Relate things to each other; no two sentences mention the same thing."""
    used: list[Selector] = []
    found: list[Statement] = []
    for thing in rng.sample(graph.objects, len(graph.objects)):
        related = statements.find_relation(thing, graph, rng) if len(found) < MOST_RELATIONS else None
        if related and related.thing not in used and related.other not in used:
            used += [related.thing, related.other]
            found.append(Statement(_say("relation", rng, **related.words), related.claims(0)))
    return found


def _say_tallies(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Count all objects by one attribute that has few values here."""
    ways = [sorted({getattr(thing, name) for thing in graph.objects}) for name in TALLIED]
    told = [(name, values) for name, values in zip(TALLIED, ways, strict=True) if 0 < len(values) <= MOST_TALLIED]
    if not told:
        return []
    name, values = rng.choice(told)
    selectors = [Selector(**{name: value}) for value in rng.sample(values, len(values))]
    mentions = [Mention(0, selector, statements.selects(selector, graph)) for selector in selectors]
    text = _say("tally", rng, things=joined([mention.text for mention in mentions]))
    return [Statement(text, statements.claims_of(mentions))]
