"""Compose a detailed caption of one photograph from its scene graph: sentences and their claims.

Every object is mentioned, by region; like objects in several regions share a sentence. Needs
``caption_sentences.j2``.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from pairwright.prompts import Prompt, load_wordings
from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import COLUMNS, DEPTHS, capital, joined, some, spell_number, surface
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning import statements
from pairwright.tasks.captioning.statements import Mention, Statement

THIRDS: Mapping[str, Sequence[str]] = {"column": tuple(COLUMNS), "depth": tuple(DEPTHS)}
Region = Mapping[str, str]
"""Third of the photograph, across or in depth, or the intersection of two."""
MAX_IN_REGION = 4
"""Maximum kinds of objects of a third; a third with more is divided along the other axis."""
DETAILS: Mapping[str, float] = {"size": 0.7, "pose": 0.9, "text": 1.0, "facing": 0.6}
"""Attributes of a single object, and how often a detailed mention has them."""
MAX_WORDS = 120
TARGETS = (60, 90)  # range of the target length in words, up to which sentences are added
MAX_COMPLETE = 8
"""Maximum objects of a photograph of which a caption omits none."""
MAX_RELATIONS = 3


def compose_caption(graph: SceneGraph, rng: Random) -> tuple[Statement, ...]:
    """Return the sentences of a caption of 40 to 120 words; fewer only with less to say."""
    # A photograph with planted things is more than they are: neither place nor light is known.
    opening = [] if graph.planted else [_say_opening(graph, rng)]
    closing = [] if graph.planted else _say_closing(graph, rng)
    word_count = _count_words(*opening, *closing)
    middle = _mention_all(graph, rng, max_words=MAX_WORDS - word_count)
    target = rng.randint(*TARGETS)
    word_count += _count_words(*middle)
    for sentence in _say_relations(graph, rng):
        longer_count = word_count + _count_words(sentence)
        if word_count < target and longer_count <= MAX_WORDS:
            middle.append(sentence)
            word_count = longer_count
    return (*opening, *middle, *closing)


def _say_opening(graph: SceneGraph, rng: Random) -> Statement:
    text = _say("opening", rng, place=graph.place)
    return Statement(text, (statements.scene_claim(0, "place", graph),))


def _say_closing(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Name the light, the viewpoint or both, in one sentence or two."""
    light_claim = statements.scene_claim(0, "light", graph)
    view_claim = statements.scene_claim(0, "viewpoint", graph)
    if rng.random() < 0.6:
        text = _say(
            "closing",
            rng,
            light=graph.light,
            viewpoint=graph.viewpoint,
        )
        return [Statement(text, (light_claim, view_claim))]
    light = Statement(_say("light", rng, light=graph.light), (light_claim,))
    view = Statement(_say("viewpoint", rng, viewpoint=graph.viewpoint), (view_claim,))
    return rng.choice([[light], [view], [light, view]])


def _mention_all(
    graph: SceneGraph,
    rng: Random,
    *,
    max_words: int,
) -> list[Statement]:
    """Mention every object.

    Where that takes too many words, mention them in less detail or, of many, omit the smallest.
    """
    looks = _looks_by_size(graph)
    groups = [look.select(graph) for look in looks]
    min_count = len(looks) if len(graph.objects) <= MAX_COMPLETE else 1
    attempts = [(len(looks), True), (len(looks), True)]
    attempts += [(count, False) for count in range(len(looks), min_count - 1, -1)]
    sentences: list[Statement] = []
    for count, is_detailed in attempts:
        sentences = _describe_regions(groups[:count], rng, detailed=is_detailed)
        if _count_words(*sentences) <= max_words:
            break
    return sentences


def _looks_by_size(graph: SceneGraph) -> list[Selector]:
    """Return the looks of all objects; the one of the largest, noticed first, is first."""
    areas: dict[Selector, int] = {}
    for obj in graph.objects:
        x0, y0, x1, y1 = obj.box
        look = statements.describe_object(obj)
        areas[look] = max(areas.get(look, 0), (x1 - x0) * (y1 - y0))
    return sorted(areas, key=lambda look: -areas[look])


def _describe_regions(
    groups: Sequence[list[SceneObject]],
    rng: Random,
    *,
    detailed: bool,
) -> list[Statement]:
    """Mention groups of like objects with their numbers; no region has two sentences."""
    axis, other_axis = rng.choice((("column", "depth"), ("depth", "column")))
    if any(obj.depth is None for group in groups for obj in group):
        axis, other_axis = "column", "depth"
    regions = _divide(groups, axis, other_axis)
    if rng.random() < 0.5:
        regions.reverse()
    by_region: list[list[list[SceneObject]]] = [[] for _ in regions]
    sentences: list[Statement] = []
    for group in groups:
        region_index = _find_region(regions, group)
        if region_index is None:
            sentences.append(_say_spread(group, axis, rng))
        else:
            by_region[region_index].append(group)
    wordings = load_wordings("caption_sentences").dealt("region", rng)
    for region, region_groups in zip(regions, by_region, strict=True):
        if region_groups:
            sentence = _describe_region(region, region_groups, wordings, rng, detailed=detailed)
            sentences.append(sentence)
    return sentences


def _divide(
    groups: Sequence[list[SceneObject]],
    axis: str,
    other_axis: str,
) -> list[Region]:
    """Return the thirds along an axis; crowded ones are divided along the other axis."""
    regions: list[Region] = []
    for third in THIRDS[axis]:
        crowd = [group for group in groups if any(getattr(obj, axis) == third for obj in group)]
        if len(crowd) <= MAX_IN_REGION:
            regions.append({axis: third})
            continue
        for part in THIRDS[other_axis]:
            regions.append({axis: third, other_axis: part})
    return regions


def _find_region(regions: Sequence[Region], group: list[SceneObject]) -> int | None:
    """Return the index of the first region that holds the whole group; ``None``: none does."""
    for index, region in enumerate(regions):
        if _holds(region, group):
            return index
    return None


def _describe_region(
    region: Region,
    groups: Sequence[list[SceneObject]],
    wordings: Iterator[Prompt],
    rng: Random,
    *,
    detailed: bool,
) -> Statement:
    """Mention the objects of a region in one sentence, which names the region once."""
    mentions = [_mention_group(group, region, rng, detailed=detailed) for group in groups]
    rng.shuffle(mentions)
    without_region = dict.fromkeys(region)
    phrases: list[str] = []
    for mention in mentions:
        look = mention.selector.model_copy(update=without_region)
        phrases.append(some(look, mention.count))
    positions = [surface(name, region[name]) for name in THIRDS if name in region]
    text = next(wordings).render(
        where=" ".join(positions),
        things=joined(phrases),
        is_="are" if mentions[0].count else "is",
    )
    return Statement(capital(text), statements.claims_of(mentions))


def _holds(region: Region, group: list[SceneObject]) -> bool:
    for name, value in region.items():
        if any(getattr(obj, name) != value for obj in group):
            return False
    return True


def _mention_group(
    group: list[SceneObject],
    region: Region,
    rng: Random,
    *,
    detailed: bool,
) -> Mention:
    """Mention like objects with their number, and a single one in detail.

    The claim names the region.
    """
    first = group[0]
    if len(group) > 1:
        return Mention(0, statements.describe_object(first, *region), len(group))
    details: list[str] = []
    if detailed:
        for name, chance in DETAILS.items():
            if getattr(first, name) is not None and rng.random() < chance:
                details.append(name)
    return Mention(0, statements.describe_object(first, *region, *details))


def _say_spread(
    group: list[SceneObject],
    axis: str,
    rng: Random,
) -> Statement:
    """Count like objects, in all and by column or depth."""
    everywhere = Mention(0, statements.describe_object(group[0]), len(group))
    mentions: list[Mention] = []
    thirds: list[str] = []
    for third in THIRDS[axis]:
        objects = [obj for obj in group if getattr(obj, axis) == third]
        if objects:
            selector = statements.describe_object(objects[0], axis)
            mentions.append(Mention(0, selector, len(objects)))
            thirds.append(third)
    counts = [spell_number(mention.count or 0) for mention in mentions]
    if len(mentions) == 1:
        counts = ["all"]
    parts = [f"{count} {surface(axis, third)}" for count, third in zip(counts, thirds, strict=True)]
    text = _say(
        "group",
        rng,
        things=everywhere.text,
        parts=joined(parts),
    )
    return Statement(text, statements.claims_of([everywhere, *mentions]))


def _say_relations(graph: SceneGraph, rng: Random) -> list[Statement]:
    """Relate objects to each other; no two sentences mention the same object."""
    mentioned: list[Selector] = []
    sentences: list[Statement] = []
    for obj in rng.sample(graph.objects, len(graph.objects)):
        if len(sentences) == MAX_RELATIONS:
            break
        related = statements.find_relation(obj, graph, rng)
        if related is None or related.subject in mentioned or related.other in mentioned:
            continue
        mentioned += [related.subject, related.other]
        text = _say("relation", rng, **related.wording_values)
        sentences.append(Statement(text, related.claims(0)))
    return sentences


def _say(kind: str, rng: Random, **values: str) -> str:
    return capital(load_wordings("caption_sentences").say(kind, rng, **values))


def _count_words(*parts: Statement) -> int:
    return sum(len(part.text.split()) for part in parts)
