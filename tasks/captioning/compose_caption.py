"""Compose a detailed caption of one photograph from its scene graph: sentences, each with its claims.

Needs the wordings of ``prompts/caption_sentences.j2``. Claims are about side 0.
"""

from collections.abc import Iterator
from itertools import groupby
from random import Random
from typing import Literal, get_args

from prompts import Prompt, load_wordings
from schemas.claims import Claim, Selector
from schemas.phrases import COLUMNS, DEPTHS, joined, surface
from schemas.scene import SceneGraph, SceneObject
from tasks.captioning.refer import find_relation
from tasks.captioning.statements import CORE, Mention, Statement, capital, claims_of, describe, selects

WORDS = (40, 90)
PER_SENTENCE = 3
Axis = Literal["column", "depth"]
MOST_RELATIONS = 3


def compose_caption(graph: SceneGraph, rng: Random) -> tuple[Statement, ...]:
    """Return the sentences of a caption of 40 to 90 words (fewer only where there is less to say)."""
    target = rng.randint(50, 80)
    opening, details, closing = _opening(graph, rng), _regions(graph, rng), _closing(graph, rng)
    ends = [opening, *closing]
    used = sum(_words(part) for part in ends)
    middle: list[Statement] = []
    for part in (*details, *_fillers(graph, rng)):
        if used < target and used + _words(part) <= WORDS[1]:
            middle.append(part)
            used += _words(part)
    return (opening, *middle, *closing)


def _say(kind: str, rng: Random, **values: str) -> str:
    return capital(load_wordings("caption_sentences").say(kind, rng, **values))


def _words(part: Statement) -> int:
    return len(part.text.split())


def _opening(graph: SceneGraph, rng: Random) -> Statement:
    everything = Mention(0, Selector(), len(graph.objects))
    place = Claim(side=0, kind="place", value=graph.place)
    return Statement(_say("opening", rng, place=graph.place, things=everything.text), (place, everything.claim))


def _closing(graph: SceneGraph, rng: Random) -> list[Statement]:
    light = Claim(side=0, kind="light", value=graph.light)
    view = Claim(side=0, kind="viewpoint", value=graph.viewpoint)
    if rng.random() < 0.6:
        return [Statement(_say("closing", rng, light=graph.light, viewpoint=graph.viewpoint), (light, view))]
    lit = Statement(_say("light", rng, light=graph.light), (light,))
    taken = Statement(_say("viewpoint", rng, viewpoint=graph.viewpoint), (view,))
    return rng.choice([[lit], [taken], [lit, taken]])


def _regions(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Say what stands where, by columns or by depth, a few things to a sentence."""
    axis: Axis = rng.choice(get_args(Axis))
    places = list(COLUMNS if axis == "column" else DEPTHS)
    if rng.random() < 0.5:
        places.reverse()
    wordings = load_wordings("caption_sentences").dealt("region", rng)
    groups = [(place, group) for place in places for group in _groups(graph, rng, axis=axis, place=place)]
    return [_region(group, axis=axis, place=place, wording=next(wordings)) for place, group in groups]


def _groups(graph: SceneGraph, rng: Random, *, axis: Axis, place: str) -> Iterator[list[Mention]]:
    things = [thing for thing in graph.objects if getattr(thing, axis) == place]
    mentions = _mentions(things, rng, axis=axis)
    for start in range(0, len(mentions), PER_SENTENCE):
        yield mentions[start : start + PER_SENTENCE]


def _region(mentions: list[Mention], *, axis: Axis, place: str, wording: Prompt) -> Statement:
    """Say the region's words once for all things; the claims name it for each."""
    phrases = [_without(mention, axis).text for mention in mentions]
    text = wording.render(where=surface(axis, place), things=joined(phrases))
    return Statement(capital(text), claims_of(mentions))


def _without(mention: Mention, axis: Axis) -> Mention:
    return Mention(mention.side, mention.selector.model_copy(update={axis: None}), mention.count)


def _mentions(things: list[SceneObject], rng: Random, *, axis: Axis) -> list[Mention]:
    """Mention equal-looking things together, with their number, and single ones in detail."""
    found: list[Mention] = []
    key = lambda thing: tuple(getattr(thing, name) for name in CORE)  # noqa: E731 - sort and group need the same
    for _, members in groupby(sorted(things, key=key), key=key):
        group = list(members)
        if len(group) > 1:
            found.append(Mention(0, describe(group[0], axis), len(group)))
        else:
            found.append(Mention(0, describe(group[0], axis, *_details(group[0], rng))))
    rng.shuffle(found)
    return found


def _details(thing: SceneObject, rng: Random) -> list[str]:
    chances = {"size": 0.7, "pose": 0.9, "text": 1.0, "facing": 0.6}
    return [name for name, chance in chances.items() if getattr(thing, name) is not None and rng.random() < chance]


def _fillers(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Return sentences that lengthen a caption: relations between things, and numbers."""
    fillers = [*_relations(graph, rng), *_tallies(graph, rng)]
    rng.shuffle(fillers)
    return fillers


def _relations(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Say how things stand to each other; nothing is mentioned in two of the sentences."""
    used: list[Selector] = []
    found: list[Statement] = []
    for thing in rng.sample(graph.objects, len(graph.objects)):
        related = find_relation(thing, graph, rng) if len(found) < MOST_RELATIONS else None
        if related and related.thing not in used and related.other not in used:
            used += [related.thing, related.other]
            found.append(Statement(_say("relation", rng, **related.words), related.claims(0)))
    return found


def _tallies(graph: SceneGraph, rng: Random) -> list[Statement]:
    name = rng.choice(("colour", "material", "shape", "size"))
    values = sorted({getattr(thing, name) for thing in graph.objects})
    if not values:
        return []
    selectors = [Selector(**{name: value}) for value in rng.sample(values, min(2, len(values)))]
    mentions = [Mention(0, selector, selects(selector, graph)) for selector in selectors]
    text = _say("tally", rng, things=joined([mention.text for mention in mentions]))
    return [Statement(text, claims_of(mentions))]
