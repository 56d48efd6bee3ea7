"""Write the differences of two photographs, axis by axis (paper 003's six); nothing where an axis has no difference."""

from collections.abc import Callable, Iterator, Mapping

from pairwright.schemas.claims import Selector
from pairwright.schemas.comparison_axes import Axis
from pairwright.schemas.phrases import COLUMNS, DEPTHS, joined, some
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.captioning.contrast import Contrast
from pairwright.tasks.captioning.refer import SPOKEN, Related, find_relation, find_reversal
from pairwright.tasks.captioning.scope import Scope
from pairwright.tasks.captioning.statements import SIDES, Mention, Side, Statement, claims_of, describe, selects, shown
from pairwright.tasks.captioning.word_contrasts import MentionPair, everything, tells_apart, word_contrast

AxisWriter = Callable[[Scope], list[Statement]]
MOST_PER_AXIS = 2


def _versus(pair: MentionPair, scope: Scope) -> Statement:
    return Statement(scope.say("versus", first=pair[0].text, second=pair[1].text), claims_of(pair))


def _gone(selectors: list[Selector], scope: Scope, *, side: Side) -> Statement:
    here = [shown(side, selector, scope.graphs[side]) for selector in selectors]
    there = [Mention(SIDES[1 - side], selector, 0) for selector in selectors]
    text = scope.say(
        "gone",
        here=side + 1,
        there=2 - side,
        things=joined([mention.text for mention in here]),
        no_things=joined([mention.text for mention in there]),
    )
    return Statement(text, claims_of([*here, *there]))


def _object_types(scope: Scope) -> list[Statement]:
    """Say which things, or in unrelated photographs which kinds of things, only one photograph has."""
    found = [part for side in SIDES if (part := _gone_from(side, scope))]
    for contrast in scope.contrasts:
        pair = word_contrast(contrast, scope.graphs, scope.rng) if "shape" in contrast.changed else None
        if pair and pair[0].count is None:
            found.append(_versus(pair, scope))
    return found[:MOST_PER_AXIS]


def _gone_from(side: Side, scope: Scope) -> Statement | None:
    things = [thing for a, thing in scope.lost() if a == side]
    selectors = [describe(thing) if scope.one_world else Selector(shape=thing.shape) for thing in things]
    absent = [a for a in dict.fromkeys(selectors) if not a.select(scope.graphs[1 - side])]
    return _gone(absent[:3], scope, side=side) if absent else None


def _attributes(scope: Scope) -> list[Statement]:
    looks = {"colour", "material", "size", "text"}
    return _versus_where(scope, lambda contrast: looks.intersection(contrast.changed))


def _actions(scope: Scope) -> list[Statement]:
    """Say which way things face and how their parts are; of unrelated photographs, what one has done to a thing."""
    if scope.one_world:
        return _versus_where(scope, lambda contrast: {"facing", "pose"}.intersection(contrast.changed))
    found: list[Statement] = []
    for side, thing in scope.lost():
        marks = [name for name in ("facing", "pose") if getattr(thing, name) is not None]
        if marks and all(part.claims[0].side != side for part in found):
            mention = shown(side, describe(thing, *marks), scope.graphs[side])
            found.append(Statement(scope.say("doing", here=side + 1, thing=mention.text), (mention.claim,)))
    return sorted(found, key=lambda part: part.claims[0].side)


def _versus_where(scope: Scope, wanted: Callable[[Contrast], object]) -> list[Statement]:
    contrasts = scope.contrasts if scope.one_world else _namesakes(scope)
    pairs = (word_contrast(a, scope.graphs, scope.rng) for a in contrasts if "shape" not in a.changed and wanted(a))
    return [_versus(pair, scope) for pair in pairs if pair][:MOST_PER_AXIS]


def _namesakes(scope: Scope) -> list[Contrast]:
    """Set things of one shape against each other that unrelated photographs show in different looks."""
    mine, theirs = ({thing.shape: thing for a, thing in scope.lost() if a == side} for side in SIDES)
    return [Contrast(mine[shape], theirs[shape]) for shape in mine if shape in theirs]


def _counts(scope: Scope) -> list[Statement]:
    totals = (everything(0, scope.graphs[0]), everything(1, scope.graphs[1]))
    found: list[Statement] = []
    if totals[0].count != totals[1].count:
        text = scope.say("total", first=totals[0].text, second=totals[1].text)
        found.append(Statement(text, claims_of(totals)))
    pairs = [pair for look in _looks(scope) if (pair := _numbers(look, scope))]
    return found + [_versus(pair, scope) for pair in pairs[:1]]


def _looks(scope: Scope) -> list[Selector]:
    """Return what may be there in different numbers: the changed things' looks, or any shape."""
    things = [thing for a in scope.contrasts for thing in (a.first, a.second) if thing is not None]
    return list(dict.fromkeys(describe(a) if scope.one_world else Selector(shape=a.shape) for a in things))


def _numbers(selector: Selector, scope: Scope) -> MentionPair | None:
    counts = [selects(selector, graph) for graph in scope.graphs]
    if 0 in counts or counts[0] == counts[1]:
        return None
    return Mention(0, selector, counts[0]), Mention(1, selector, counts[1])


def _locations(scope: Scope) -> list[Statement]:
    """Say where the things stand that only one photograph has, one for each photograph; like things together."""
    found: dict[Side, Statement] = {}
    for side, thing in scope.lost():
        alike = describe(thing).select(scope.graphs[side])
        if side in found or len({(one.column, one.depth) for one in alike}) > 1:
            continue
        count = len(alike) if len(alike) > 1 else None
        where = f"{COLUMNS[thing.column]} {DEPTHS[thing.depth]}"
        text = scope.say("located", here=side + 1, things=some(describe(thing), count), where=where)
        found[side] = Statement(text, (Mention(side, describe(thing, "column", "depth"), count).claim,))
    return [found[side] for side in SIDES if side in found]


def _relative_positions(scope: Scope) -> list[Statement]:
    """Relate what is new, gone or replaced to another thing; or else say which relation was reversed."""
    found: dict[Side, Statement] = {}
    for side, thing in _exchanged(scope):
        related = find_relation(thing, scope.graphs[side], scope.rng) if side not in found else None
        if related and tells_apart(related.claims(side), scope.graphs):
            found[side] = _related(related, side, scope)
    return [found[side] for side in SIDES if side in found] or _reversed(scope)


def _exchanged(scope: Scope) -> Iterator[tuple[Side, SceneObject]]:
    """Yield what only one photograph has: a thing that merely changed its looks stands where it stood."""
    for contrast in scope.contrasts:
        yield from contrast.lost
        if contrast.first is not None and contrast.second is not None and "shape" in contrast.changed:
            yield from zip(SIDES, (contrast.first, contrast.second), strict=True)


def _reversed(scope: Scope) -> list[Statement]:
    reversal = find_reversal(scope.graphs, scope.rng) if scope.one_world else None
    if reversal is None:
        return []
    text = scope.say("reversed", **reversal[0].words, opposite=SPOKEN[reversal[1].relation])
    return [Statement(text, (*reversal[0].claims(0), *reversal[1].claims(1)))]


def _related(related: Related, side: Side, scope: Scope) -> Statement:
    return Statement(scope.say("related", here=side + 1, **related.words), related.claims(side))


AXIS_WRITERS: Mapping[Axis, AxisWriter] = {
    "object types": _object_types,
    "attributes": _attributes,
    "counts": _counts,
    "actions": _actions,
    "locations": _locations,
    "relative positions": _relative_positions,
}
