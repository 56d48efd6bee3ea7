"""Put contrasts between two photographs into mentions that tell them apart.

A contrast is worded as one mention per photograph (a phrase and its claim). Of the ways to word it, one is taken at
random among those whose claims would be false with the photographs exchanged; where no description of the one object
does that (others look alike), numbers do.
"""

from collections.abc import Iterable, Iterator
from random import Random

from pairwright.schemas.claims import Claim, Graphs, Selector, all_hold
from pairwright.schemas.phrases import noun
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning.contrast import Contrast
from pairwright.tasks.captioning.statements import CORE, SIDES, Mention, Side, describe, selects, shown

MentionPair = tuple[Mention, Mention]
Names = tuple[str, ...]
EXTRAS: tuple[Names, ...] = ((), ("size",), ("column",), ("size", "column"), ("depth",), ("column", "depth"))
"""Attributes beside shape, colour and material that a description may add."""
PLAIN_DENIALS: tuple[Names, ...] = ((), ("size",))
"""What a denial may name without speaking of a place: "no red metal ball", "no small red metal ball"."""


def word_contrast(contrast: Contrast, graphs: Graphs, rng: Random) -> MentionPair | None:
    """Return a mention for each photograph, or ``None`` where words cannot tell them apart."""
    true = (way for way in _ways(contrast, graphs, rng) if all_hold((way[0].claim, way[1].claim), graphs))
    second_best: MentionPair | None = None
    for way in true:
        lies = [tells_apart((mention.claim,), graphs) for mention in way]
        if all(lies):
            return way
        if any(lies) and second_best is None:
            second_best = way
    return second_best


def _ways(contrast: Contrast, graphs: Graphs, rng: Random) -> Iterator[MentionPair]:
    extras = rng.sample(EXTRAS, len(EXTRAS))
    if contrast.first is not None and contrast.second is not None:
        ways = list(_changed(contrast, graphs, extras))
        yield from (way for way in ways if not any(mention.count for mention in way))
        named = [name for name in contrast.changed if name not in CORE]
        for thing in (contrast.first, contrast.second):
            yield _numbers(describe(thing, *(name for name in named if getattr(thing, name) is not None)), graphs)
        yield from ways
    for side, thing in contrast.lost:
        yield from _lost(thing, side, graphs=graphs, extras=extras, denials=PLAIN_DENIALS)
    for thing in (contrast.first, contrast.second):
        if thing is not None:
            yield _numbers(describe(thing), graphs)
    # Last, because "two balls" and "one ball" say more than that there is no ball on the left.
    for side, thing in contrast.lost:
        yield from _lost(thing, side, graphs=graphs, extras=extras, denials=EXTRAS)


def _changed(contrast: Contrast, graphs: Graphs, extras: list[Names]) -> Iterator[MentionPair]:
    """Describe the object on both sides with what changed; places only where they are equal, so that nothing moves."""
    first, second = contrast.first, contrast.second
    assert first is not None
    assert second is not None
    named = [name for name in contrast.changed if name not in CORE]
    for extra in extras:
        same = [name for name in extra if name not in named and getattr(first, name) == getattr(second, name)]
        yield _mention(0, first, [*named, *same], graphs=graphs), _mention(1, second, [*named, *same], graphs=graphs)


def _lost(
    thing: SceneObject, side: Side, *, graphs: Graphs, extras: list[Names], denials: tuple[Names, ...]
) -> Iterator[MentionPair]:
    """Describe the object where it is in some detail, and deny it on the other side as briefly as is true."""
    other = graphs[1 - side]
    brief = next((names for names in denials if not describe(thing, *names).select(other)), None)
    if brief is None:
        return
    absent = Mention(SIDES[1 - side], describe(thing, *brief), 0)
    marks = [name for name in ("text", "pose", "facing") if getattr(thing, name) is not None]
    for extra in extras:
        names = [*extra, *(name for name in brief if name not in extra), *marks]
        present = _mention(side, thing, names, graphs=graphs)
        yield (present, absent) if side == 0 else (absent, present)


def _numbers(selector: Selector, graphs: Graphs) -> MentionPair:
    return Mention(0, selector, selects(selector, graphs[0])), Mention(1, selector, selects(selector, graphs[1]))


def _mention(side: Side, thing: SceneObject, names: list[str], *, graphs: Graphs) -> Mention:
    """Mention the thing, and with it, by their number, all that the same words fit."""
    selector = describe(thing, *(name for name in names if getattr(thing, name) is not None))
    return shown(side, selector, graphs[side])


def tells_apart(claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Say whether the claims would be false with the photographs exchanged."""
    return not all_hold(claims, (graphs[1], graphs[0]))


def picked(contrasts: list[Contrast], graphs: Graphs, rng: Random, *, limit: int) -> list[MentionPair]:
    """Word up to ``limit`` contrasts, none twice (three balls of one kind are one number)."""
    found: list[MentionPair] = []
    for contrast in contrasts:
        pair = word_contrast(contrast, graphs, rng)
        if pair is not None and len(found) < limit and not any(_overlap(pair, other) for other in found):
            found.append(pair)
    return found


def _overlap(pair: MentionPair, other: MentionPair) -> bool:
    """Say whether two pairs speak about the same kind of thing on one side, which would read as a contradiction."""
    return any(
        all(getattr(a.selector, name) == getattr(b.selector, name) for name in CORE)
        for a, b in zip(pair, other, strict=True)
    )


def shared(graphs: Graphs) -> list[Selector]:
    """Return the looks (shape, colour, material) that both photographs have, without repeats."""
    looks = {noun(look): look for look in map(describe, graphs[0].objects)}
    return [look for look in looks.values() if look.select(graphs[1])]


def everything(side: Side, graph: SceneGraph) -> Mention:
    """Mention all objects of a photograph by their number."""
    return Mention(side, Selector(), len(graph.objects))
