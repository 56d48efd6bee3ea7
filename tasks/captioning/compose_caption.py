"""Compose a detailed caption of one photograph from its scene graph, as sentences with their claims.

Every object is mentioned, by region; like things in several regions share a sentence. Needs
``caption_sentences.j2``.
"""

from collections.abc import Mapping, Sequence
from random import Random

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import COLUMNS, DEPTHS, capital, joined, number, some, surface
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning import statements
from pairwright.tasks.captioning.statements import Mention, Statement

THIRDS: Mapping[str, Sequence[str]] = {"column": tuple(COLUMNS), "depth": tuple(DEPTHS)}
Region = Mapping[
    str, str
]  # third of the photograph, across or in depth, or the intersection of two
MOST_IN_REGION = (
    4  # most kinds of things of a third; a third with more is divided along the other axis
)
DETAILS: Mapping[str, float] = {"size": 0.7, "pose": 0.9, "text": 1.0, "facing": 0.6}
"""Attributes of a single thing, and how often a detailed mention has them."""
MOST_WORDS = 120
TARGETS = (60, 90)  # range of the target length in words, up to which sentences are added
TOLD_WHOLE = 8  # most objects of a photograph of which a caption omits none
MOST_RELATIONS = 3
TALLIED, MOST_TALLIED = ("colour", "material", "shape", "size"), 3


def compose_caption(graph: SceneGraph, rng: Random) -> tuple[Statement, ...]:
    """Return the sentences of a caption of 40 to 120 words (fewer only where there is less to say)."""
    total = statements.everything(0, graph)
    opening = Statement(
        _say("opening", rng, place=graph.place, things=total.text),
        (statements.scene_claim(0, "place", graph), total.claim),
    )
    light, view = (
        statements.scene_claim(0, "light", graph),
        statements.scene_claim(0, "viewpoint", graph),
    )
    if rng.random() < 0.6:
        closing = [
            Statement(
                _say("closing", rng, light=graph.light, viewpoint=graph.viewpoint), (light, view)
            )
        ]
    else:
        lit = Statement(_say("light", rng, light=graph.light), (light,))
        taken = Statement(_say("viewpoint", rng, viewpoint=graph.viewpoint), (view,))
        closing = rng.choice([[lit], [taken], [lit, taken]])
    ends = _count_words(opening, *closing)
    middle = _mention_all(graph, rng, room=MOST_WORDS - ends)
    target, used = rng.randint(*TARGETS), ends + _count_words(*middle)
    fillers = [
        *_say_relations(graph, rng),
        *_say_tallies(graph, rng),
    ]  # sentences that lengthen a caption
    rng.shuffle(fillers)
    for part in fillers:
        if used < target and used + _count_words(part) <= MOST_WORDS:
            middle.append(part)
            used += _count_words(part)
    return (opening, *middle, *closing)


def _mention_all(graph: SceneGraph, rng: Random, *, room: int) -> list[Statement]:
    """Mention every object; where that takes too many words, in less detail or, of many, without the smallest."""
    sizes: dict[Selector, int] = {}
    for thing in graph.objects:
        x0, y0, x1, y1 = thing.box
        look = statements.describe(thing)
        sizes[look] = max(sizes.get(look, 0), (x1 - x0) * (y1 - y0))
    kinds = sorted(
        sizes, key=lambda look: -sizes[look]
    )  # the largest first, as viewers notice it first
    least = len(kinds) if len(graph.objects) <= TOLD_WHOLE else 1
    attempts = [
        (len(kinds), True),
        (len(kinds), True),
        *((n, False) for n in range(len(kinds), least - 1, -1)),
    ]
    parts: list[Statement] = []
    for count, detailed in attempts:
        parts = _describe_regions(
            [kind.select(graph) for kind in kinds[:count]], rng, detailed=detailed
        )
        if _count_words(*parts) <= room:
            break
    return parts


def _describe_regions(
    groups: Sequence[list[SceneObject]], rng: Random, *, detailed: bool
) -> list[Statement]:
    """Mention groups of like things with their numbers; no region has two sentences."""
    axis, other = rng.choice((("column", "depth"), ("depth", "column")))
    regions: list[Region] = []
    for third in THIRDS[axis]:
        crowd = sum(any(getattr(thing, axis) == third for thing in group) for group in groups)
        parts = [{other: part} for part in THIRDS[other]] if crowd > MOST_IN_REGION else [{}]
        regions += [{axis: third, **part} for part in parts]
    if rng.random() < 0.5:
        regions.reverse()
    homes = [
        next((region for region in regions if _holds(region, group)), None) for group in groups
    ]
    spread = [group for group, home in zip(groups, homes, strict=True) if home is None]
    found = [_say_spread(group, axis, rng) for group in spread]
    wordings = load_wordings("caption_sentences").dealt("region", rng)
    for region in regions:
        own = [group for group, home in zip(groups, homes, strict=True) if home is region]
        mentions = [_mention_group(group, region, rng, detailed=detailed) for group in own]
        if mentions:
            rng.shuffle(mentions)
            # The sentence names the region once for all things.
            bare = [
                mention.selector.model_copy(update=dict.fromkeys(region)) for mention in mentions
            ]
            things = joined(
                [some(look, mention.count) for look, mention in zip(bare, mentions, strict=True)]
            )
            where = " ".join(surface(name, region[name]) for name in THIRDS if name in region)
            text = next(wordings).render(where=where, things=things)
            found.append(Statement(capital(text), statements.claims_of(mentions)))
    return found


def _holds(region: Region, group: list[SceneObject]) -> bool:
    return all(getattr(thing, name) == value for thing in group for name, value in region.items())


def _mention_group(
    group: list[SceneObject], region: Region, rng: Random, *, detailed: bool
) -> Mention:
    """Mention like things with their number, and a single one in detail; the claim names the region."""
    if len(group) > 1:
        return Mention(0, statements.describe(group[0], *region), len(group))
    [thing] = group
    chances = DETAILS.items() if detailed else ()
    details = [
        name
        for name, chance in chances
        if getattr(thing, name) is not None and rng.random() < chance
    ]
    return Mention(0, statements.describe(thing, *region, *details))


def _say_spread(group: list[SceneObject], axis: str, rng: Random) -> Statement:
    """Count like things, in all and by column or depth."""
    everywhere = Mention(0, statements.describe(group[0]), len(group))
    thirds = {
        third: [thing for thing in group if getattr(thing, axis) == third] for third in THIRDS[axis]
    }
    parts = [
        Mention(0, statements.describe(things[0], axis), len(things))
        for things in thirds.values()
        if things
    ]
    placed = [third for third, things in thirds.items() if things]
    counts = [number(len(thirds[third])) for third in placed] if len(placed) > 1 else ["all"]
    where = joined(
        [f"{count} {surface(axis, third)}" for count, third in zip(counts, placed, strict=True)]
    )
    text = _say("group", rng, things=everywhere.text, parts=where)
    return Statement(text, statements.claims_of([everywhere, *parts]))


def _say_relations(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Relate things to each other; no two sentences mention the same thing."""
    used: list[Selector] = []
    found: list[Statement] = []
    for thing in rng.sample(graph.objects, len(graph.objects)):
        related = (
            statements.find_relation(thing, graph, rng) if len(found) < MOST_RELATIONS else None
        )
        if related and related.thing not in used and related.other not in used:
            used += [related.thing, related.other]
            found.append(Statement(_say("relation", rng, **related.words), related.claims(0)))
    return found


def _say_tallies(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Count all objects by one attribute that has few values here."""
    ways = {name: sorted({getattr(thing, name) for thing in graph.objects}) for name in TALLIED}
    told = [(name, values) for name, values in ways.items() if 0 < len(values) <= MOST_TALLIED]
    if not told:
        return []
    name, values = rng.choice(told)
    selectors = [Selector(**{name: value}) for value in rng.sample(values, len(values))]
    mentions = [Mention(0, selector, len(selector.select(graph))) for selector in selectors]
    text = _say("tally", rng, things=joined([mention.text for mention in mentions]))
    return [Statement(text, statements.claims_of(mentions))]


def _say(kind: str, rng: Random, **values: str) -> str:
    return capital(load_wordings("caption_sentences").say(kind, rng, **values))


def _count_words(*parts: Statement) -> int:
    return sum(len(part.text.split()) for part in parts)
