"""Statements about two photographs: text with its claims, from the differences of their scene graphs.

In photographs of one world, objects are compared by id, and only where the scene itself was
changed: objects that another viewpoint turns or hides are no difference. Others are compared by
what each has and the other lacks. A contrast is worded as one mention per photograph (a phrase and
its claim), drawn from those whose claims would be false with the photographs exchanged; where an
object came or went and others look alike, by numbers. An object is referred to by the shortest
unambiguous phrase.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Any, Literal, get_args

from pairwright.schemas.claims import (
    OPPOSITES,
    Claim,
    Graphs,
    Relation,
    Selector,
    all_hold,
    content_changes,
    stands,
)
from pairwright.schemas.phrases import SPOKEN, noun, some, the
from pairwright.schemas.scene import SceneGraph, SceneObject

Side = Literal[0, 1]
SIDES: tuple[Side, Side] = (0, 1)
CORE = ("shape", "colour", "material")
Setting = Literal["place", "light", "viewpoint"]


@dataclass(frozen=True, slots=True)
class Statement:
    """Text and all of its claims."""

    text: str
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Mention:
    """Selected things of one photograph: at least one, or exactly ``count`` (0: none)."""

    side: Side
    selector: Selector
    count: int | None = None
    beside: tuple[Relation, Selector] | None = None

    @property
    def text(self) -> str:
        """Return the indefinite noun phrase, with the relation."""
        phrase = some(self.selector, self.count)
        return f"{phrase} {SPOKEN[self.beside[0]]} {the(self.beside[1])}" if self.beside else phrase

    @property
    def claim(self) -> Claim:
        """Return the claim of the phrase, without the relation."""
        if self.count is None:
            return Claim(side=self.side, kind="exists", selector=self.selector)
        if self.count == 0:
            return Claim(side=self.side, kind="absent", selector=self.selector)
        return Claim(side=self.side, kind="count", selector=self.selector, count=self.count)


def claims_of(mentions: Iterable[Mention]) -> tuple[Claim, ...]:
    """Return the claims of some mentions, with their relations."""
    claims: list[Claim] = []
    for mention in mentions:
        claims.append(mention.claim)
        if mention.beside:
            side, (relation, other) = mention.side, mention.beside
            claims.append(
                Claim(
                    side=side,
                    kind="relation",
                    selector=mention.selector,
                    relation=relation,
                    other=other,
                )
            )
    return tuple(claims)


def describe(thing: SceneObject, *attributes: str) -> Selector:
    """Return a selector of the object's shape, colour and material, and of further attributes by name."""
    return Selector(**{name: getattr(thing, name) for name in (*CORE, *attributes)})


def shown(side: Side, selector: Selector, graph: SceneGraph) -> Mention:
    """Mention the selected things of a photograph, several with their number."""
    count = len(selector.select(graph))
    return Mention(side, selector, count if count > 1 else None)


def scene_claim(side: Side, kind: Setting, graph: SceneGraph) -> Claim:
    """Return the claim about the photograph's place, light or viewpoint."""
    return Claim(side=side, kind=kind, value=getattr(graph, kind))


ATTRIBUTES = ("shape", "colour", "material", "size", "facing", "pose", "text")
POSITION = ("column", "depth")


@dataclass(frozen=True, slots=True)
class Contrast:
    """Object in both photographs; ``None`` where one lacks it."""

    first: SceneObject | None
    second: SceneObject | None
    moved: bool = (
        False  # whether it was moved: otherwise its place differs at most by the viewpoint
    )

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the attributes that differ; none where a photograph lacks the object."""
        if self.first is None or self.second is None:
            return ()
        names = (*ATTRIBUTES, *(POSITION if self.moved else ()))
        return tuple(
            name for name in names if getattr(self.first, name) != getattr(self.second, name)
        )

    @property
    def has_words(self) -> bool:
        """Return whether it can be worded: a move needs another column or depth, clear in both photographs."""
        if self.first is None or self.second is None or not self.moved:
            return True
        return self.first.clear and self.second.clear and not set(POSITION).isdisjoint(self.changed)

    @property
    def lost(self) -> tuple[tuple[Side, SceneObject], ...]:
        """Return the object and the side that has it, if the other photograph lacks it."""
        if self.first is not None and self.second is None:
            return ((0, self.first),)
        return ((1, self.second),) if self.first is None and self.second is not None else ()


def find_contrasts(graphs: Graphs) -> list[Contrast]:
    """Return the contrasts of a pair: changed objects by id, or what each photograph has and the other lacks."""
    first, second = graphs
    if first.world != second.world:
        lost = [thing for thing in first.objects if not describe(thing).select(second)]
        new = [thing for thing in second.objects if not describe(thing).select(first)]
        return [Contrast(thing, None) for thing in lost] + [Contrast(None, thing) for thing in new]
    before, after = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    changes = content_changes(first) ^ content_changes(second)  # made in one photograph only
    names = sorted(
        {name for change in changes for name in (change.object_id, *change.object_ids) if name}
    )
    moved = {change.object_id for change in changes if change.type == "move"}
    found = (Contrast(before.get(name), after.get(name), name in moved) for name in names)
    return [one for one in found if one.changed or one.lost or not one.has_words]


MentionPair = tuple[Mention, Mention]
Names = tuple[str, ...]
EXTRAS: tuple[Names, ...] = (
    (),
    ("size",),
    ("column",),
    ("size", "column"),
    ("depth",),
    ("column", "depth"),
)
"""Attributes beside shape, colour and material that a description may add."""
PLAIN_SHARE = 0.85  # share of descriptions that are as short as possible
PLAIN_DENIALS: tuple[Names, ...] = ((), ("size",))
"""Extra attributes of a denial without a place: "no red metal ball", "no small red metal ball"."""


def word_contrast(contrast: Contrast, graphs: Graphs, rng: Random) -> MentionPair | None:
    """Return a mention per photograph; ``None`` where words cannot tell them apart."""
    true = (
        way
        for way in _word_ways(contrast, graphs, rng)
        if all_hold((way[0].claim, way[1].claim), graphs)
    )
    second_best: MentionPair | None = None
    for way in true:
        lies = [tells_apart((mention.claim,), graphs) for mention in way]
        if all(lies):
            return way
        if any(lies) and second_best is None:
            second_best = way
    return second_best


def _word_ways(contrast: Contrast, graphs: Graphs, rng: Random) -> Iterator[MentionPair]:
    extras = rng.sample(EXTRAS, len(EXTRAS))
    if not contrast.has_words:
        return
    if rng.random() < PLAIN_SHARE:
        extras.sort(key=len)
    first, second = contrast.first, contrast.second
    if (
        first is not None and second is not None
    ):  # by the changed attributes, and by places only where these are equal
        named = [name for name in contrast.changed if name not in CORE]
        ways: list[MentionPair] = []
        for extra in extras:
            same = [
                name
                for name in extra
                if name not in named and getattr(first, name) == getattr(second, name)
            ]
            names = [*named, *same]
            ways.append(
                (
                    _mention(0, first, names, graphs=graphs),
                    _mention(1, second, names, graphs=graphs),
                )
            )
        yield from sorted(ways, key=lambda way: any(mention.count for mention in way))
    for side, thing in contrast.lost:
        yield from _mention_lost(thing, side, graphs=graphs, extras=extras, denials=PLAIN_DENIALS)
    for look in (describe(thing) for _, thing in contrast.lost):
        yield (
            Mention(0, look, len(look.select(graphs[0]))),
            Mention(1, look, len(look.select(graphs[1]))),
        )
    # Last, because "two balls" and "one ball" say more than that there is no ball on the left.
    for side, thing in contrast.lost:
        yield from _mention_lost(thing, side, graphs=graphs, extras=extras, denials=EXTRAS)


def _mention_lost(
    thing: SceneObject,
    side: Side,
    *,
    graphs: Graphs,
    extras: list[Names],
    denials: tuple[Names, ...],
) -> Iterator[MentionPair]:
    """Mention the object in detail on its side, and deny it on the other as briefly as is true."""
    other = graphs[1 - side]
    brief = next((names for names in denials if not describe(thing, *names).select(other)), None)
    if brief is None:
        return
    absent = Mention(SIDES[1 - side], describe(thing, *brief), 0)
    marks = [
        name for name in ("text", "pose", "facing", "rests_on") if getattr(thing, name) is not None
    ]
    for extra in extras:
        names = [*extra, *(name for name in brief if name not in extra), *marks]
        present = _mention(side, thing, names, graphs=graphs)
        yield (present, absent) if side == 0 else (absent, present)


def _mention(side: Side, thing: SceneObject, names: list[str], *, graphs: Graphs) -> Mention:
    """Mention the thing, with the number of all things that the same words describe."""
    selector = describe(thing, *(name for name in names if getattr(thing, name) is not None))
    return shown(side, selector, graphs[side])


def tells_apart(claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Return whether the claims would be false with the photographs exchanged."""
    return not all_hold(claims, (graphs[1], graphs[0]))


def picked(
    contrasts: list[Contrast], graphs: Graphs, rng: Random, *, limit: int | None = None
) -> list[MentionPair]:
    """Word up to ``limit`` contrasts of different kinds of things: two of a kind would read as a contradiction.

    Without a limit, word all, or none where one has no words; a number of like things covers all of
    these.
    """
    found: list[MentionPair] = []
    said: set[tuple[Any, ...]] = set()
    for contrast in contrasts:
        pair = word_contrast(contrast, graphs, rng)
        looks = {(one.side, *(getattr(one.selector, name) for name in CORE)) for one in pair or ()}
        if limit is None and (pair is None or (looks & said and pair not in found)):
            return []
        if pair is not None and len(found) != limit and not looks & said:
            found.append(pair)
            said |= looks
    return found


def shared(graphs: Graphs) -> list[Selector]:
    """Return the looks (shape, colour, material) that both photographs have, without repeats."""
    looks = {noun(look): look for look in map(describe, graphs[0].objects)}
    return [look for look in looks.values() if look.select(graphs[1])]


def everything(side: Side, graph: SceneGraph) -> Mention:
    """Mention the number of all objects of a photograph."""
    return Mention(side, Selector(), len(graph.objects))


ADDITIONS = (
    *("", "size", "column", "text", "depth", "size column", "facing", "pose"),
    *("column depth", "size column depth", "column facing", "column pose"),
)
"""Attributes to add to colour, material and shape, in this order, until a phrase describes one
object only."""


@dataclass(frozen=True, slots=True)
class Related:
    """Relation of two things that have a definite phrase."""

    thing: Selector
    relation: Relation
    other: Selector

    @property
    def words(self) -> dict[str, str]:
        """Return the words of a sentence."""
        return {
            "thing": the(self.thing),
            "relation": SPOKEN[self.relation],
            "other": the(self.other),
        }

    def claims(self, side: Side) -> tuple[Claim, ...]:
        """Return the claims of the sentence: each phrase describes one object, and the relation holds."""
        only = [
            Claim(side=side, kind="count", selector=named, count=1)
            for named in (self.thing, self.other)
        ]
        related = Claim(
            side=side,
            kind="relation",
            selector=self.thing,
            relation=self.relation,
            other=self.other,
        )
        return (*only, related)


def referring(thing: SceneObject, graph: SceneGraph) -> Selector | None:
    """Return the shortest selector of this object alone; ``None``: there is none."""
    for names in map(str.split, ADDITIONS):
        if all(getattr(thing, name) is not None for name in names):
            selector = describe(thing, *names)
            if len(selector.select(graph)) == 1:
                return selector
    return None


def find_relation(thing: SceneObject, graph: SceneGraph, rng: Random) -> Related | None:
    """Relate the object to one that it clearly stands beside, before or behind."""
    named = referring(thing, graph)
    if named is None:
        return None
    for other in rng.sample(graph.objects, len(graph.objects)):
        relations = [relation for relation in get_args(Relation) if stands(thing, relation, other)]
        if other.id != thing.id and relations and (partner := referring(other, graph)):
            return Related(named, rng.choice(relations), partner)
    return None


def find_reversal(graphs: Graphs, rng: Random) -> tuple[Related, Related] | None:
    """Relate two things of both photographs with their relation reversed in the second."""
    first, second = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    names = [(name, referring(thing, graphs[0])) for name, thing in first.items() if name in second]
    # A phrase that names a place which the thing has left would name another thing.
    named = {
        name: it
        for name, it in names
        if it is not None and it == referring(second[name], graphs[1])
    }
    pairs = list(permutations(named, 2))
    for a, b in rng.sample(pairs, len(pairs)):
        for relation, opposite in OPPOSITES.items():
            if stands(first[a], relation, first[b]) and stands(second[a], opposite, second[b]):
                return Related(named[a], relation, named[b]), Related(named[a], opposite, named[b])
    return None
