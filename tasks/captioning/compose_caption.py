"""Compose a detailed caption of one photograph from its scene graph: sentences, each with its claims.

Needs the wordings of ``prompts/caption_sentences.j2``. Claims are about side 0.
"""

from random import Random

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.phrases import joined
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.refer import find_relation
from pairwright.tasks.captioning.regions import describe_regions
from pairwright.tasks.captioning.statements import Mention, Statement, capital, claims_of, describe, selects

MOST_WORDS = 120
TARGETS = (60, 90)
"""Sentences are added until a caption has a number of words between these."""
TOLD_WHOLE = 8
"""Of so many objects, none is left out."""
MOST_RELATIONS = 3


def compose_caption(graph: SceneGraph, rng: Random) -> tuple[Statement, ...]:
    """Return the sentences of a caption of 40 to 120 words (fewer only where there is less to say)."""
    opening, closing = _opening(graph, rng), _closing(graph, rng)
    ends = sum(_words(part) for part in (opening, *closing))
    middle = _middle(graph, rng, room=MOST_WORDS - ends)
    target, used = rng.randint(*TARGETS), ends + sum(_words(part) for part in middle)
    for part in _fillers(graph, rng):
        if used < target and used + _words(part) <= MOST_WORDS:
            middle.append(part)
            used += _words(part)
    return (opening, *middle, *closing)


def _middle(graph: SceneGraph, rng: Random, *, room: int) -> list[Statement]:
    """Mention every object; where that takes too many words in less detail, or, of many, without the smallest."""
    kinds = _kinds(graph)
    least = len(kinds) if len(graph.objects) <= TOLD_WHOLE else 1
    attempts = [(len(kinds), True), (len(kinds), True), *((n, False) for n in range(len(kinds), least - 1, -1))]
    parts: list[Statement] = []
    for count, detailed in attempts:
        parts = describe_regions(graph, rng, kinds=kinds[:count], detailed=detailed)
        if sum(_words(part) for part in parts) <= room:
            break
    return parts


def _kinds(graph: SceneGraph) -> list[Selector]:
    """Return the looks of the objects, the one with the largest object first: that is what one sees first."""
    sizes: dict[Selector, int] = {}
    for thing in graph.objects:
        x0, y0, x1, y1 = thing.box
        look = describe(thing)
        sizes[look] = max(sizes.get(look, 0), (x1 - x0) * (y1 - y0))
    return sorted(sizes, key=lambda look: -sizes[look])


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
