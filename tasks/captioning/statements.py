"""Statements about two photographs: texts and claims, from the differences of their scene graphs.

In photographs of one world, objects are compared by id, and only where the scene itself was
changed: objects that another viewpoint turns or hides are no difference. Others are compared by
what each has and the other lacks. A contrast is worded as one mention per photograph (a phrase and
its claim), drawn from those whose claims would be false with the photographs exchanged; where an
object came or went and others look alike, by numbers. An object is referred to by the shortest
unambiguous phrase.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    """Selected objects of one photograph: at least one, or exactly ``count`` (0: none)."""

    side: Side
    selector: Selector
    count: int | None = None
    beside: tuple[Relation, Selector] | None = None

    @property
    def text(self) -> str:
        """Return the indefinite noun phrase, with the relation."""
        phrase = some(self.selector, self.count)
        if self.beside is None:
            return phrase
        relation, other = self.beside
        return f"{phrase} {SPOKEN[relation]} {the(other)}"

    @property
    def claim(self) -> Claim:
        """Return the claim of the phrase, without the relation."""
        if self.count is None:
            return Claim(
                side=self.side,
                kind="exists",
                selector=self.selector,
            )
        if self.count == 0:
            return Claim(
                side=self.side,
                kind="absent",
                selector=self.selector,
            )
        return Claim(
            side=self.side,
            kind="count",
            selector=self.selector,
            count=self.count,
        )


def claims_of(mentions: Iterable[Mention]) -> tuple[Claim, ...]:
    """Return the claims of some mentions, with their relations."""
    claims: list[Claim] = []
    for mention in mentions:
        claims.append(mention.claim)
        if mention.beside is None:
            continue
        relation, other = mention.beside
        related = Claim(
            side=mention.side,
            kind="relation",
            selector=mention.selector,
            relation=relation,
            other=other,
        )
        claims.append(related)
    return tuple(claims)


def describe_object(obj: SceneObject, *attributes: str) -> Selector:
    """Return a selector of the object's shape, colour, material and further attributes by name."""
    return Selector(**{name: getattr(obj, name) for name in (*CORE, *attributes)})


def mention_selected(
    side: Side,
    selector: Selector,
    graph: SceneGraph,
) -> Mention:
    """Mention the selected objects of a photograph, several with their number."""
    count = len(selector.select(graph))
    return Mention(side, selector, count if count > 1 else None)


def scene_claim(
    side: Side,
    kind: Setting,
    graph: SceneGraph,
) -> Claim:
    """Return the claim about the photograph's place, light or viewpoint."""
    return Claim(
        side=side,
        kind=kind,
        value=getattr(graph, kind),
    )


ATTRIBUTES = ("shape", "colour", "material", "size", "facing", "pose", "text")
POSITION = ("column", "depth")
MARKS = ("text", "pose", "facing", "rests_on")
"""Attributes of which a mention of a lost object names one."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Object in both photographs; ``None`` where one lacks it."""

    first: SceneObject | None
    second: SceneObject | None
    moved: bool = False
    """Whether it was moved: otherwise its position differs at most by the viewpoint."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the attributes that differ; none where a photograph lacks the object."""
        if self.first is None or self.second is None:
            return ()
        first, second = self.first, self.second
        names = ATTRIBUTES + POSITION if self.moved else ATTRIBUTES
        return tuple(name for name in names if getattr(first, name) != getattr(second, name))

    @property
    def has_words(self) -> bool:
        """Return whether it can be worded.

        A move needs another column or depth, clear in both photographs.
        """
        if self.first is None or self.second is None or not self.moved:
            return True
        is_clear = self.first.clear and self.second.clear
        return is_clear and not set(POSITION).isdisjoint(self.changed)

    @property
    def lost(self) -> tuple[tuple[Side, SceneObject], ...]:
        """Return the object and the side that has it, if the other photograph lacks it."""
        if self.first is not None and self.second is None:
            return ((0, self.first),)
        if self.first is None and self.second is not None:
            return ((1, self.second),)
        return ()


def find_contrasts(graphs: Graphs) -> list[Contrast]:
    """Return the contrasts of a pair: changed objects by id, or objects that only one has."""
    first, second = graphs
    if first.world == second.world:
        return _find_changes(graphs)
    lost = [obj for obj in first.objects if not describe_object(obj).select(second)]
    new = [obj for obj in second.objects if not describe_object(obj).select(first)]
    return [Contrast(obj, None) for obj in lost] + [Contrast(None, obj) for obj in new]


def _find_changes(graphs: Graphs) -> list[Contrast]:
    """Return the contrasts of two photographs of one world."""
    first, second = graphs
    before = {obj.id: obj for obj in first.objects}
    after = {obj.id: obj for obj in second.objects}
    changes = content_changes(first) ^ content_changes(second)  # made in one photograph only
    names: set[str] = set()
    for change in changes:
        names.update(change.object_ids)
        if change.object_id:
            names.add(change.object_id)
    names.discard("")
    moved = {change.object_id for change in changes if change.type == "move"}
    contrasts = [
        Contrast(before.get(name), after.get(name), name in moved) for name in sorted(names)
    ]
    return [
        contrast
        for contrast in contrasts
        if contrast.changed or contrast.lost or not contrast.has_words
    ]


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


def word_contrast(
    contrast: Contrast,
    graphs: Graphs,
    rng: Random,
) -> MentionPair | None:
    """Return a mention per photograph; ``None`` where words cannot tell them apart."""
    second_best: MentionPair | None = None
    for pair in _find_wordings(contrast, graphs, rng):
        if not all_hold((pair[0].claim, pair[1].claim), graphs):
            continue
        distinctive = [tells_apart((mention.claim,), graphs) for mention in pair]
        if all(distinctive):
            return pair
        if any(distinctive) and second_best is None:
            second_best = pair
    return second_best


def _find_wordings(
    contrast: Contrast,
    graphs: Graphs,
    rng: Random,
) -> Iterator[MentionPair]:
    """Yield mentions of a contrast, the preferred ones first; some may be untrue."""
    extras = rng.sample(EXTRAS, len(EXTRAS))
    if not contrast.has_words:
        return
    if rng.random() < PLAIN_SHARE:
        extras.sort(key=len)
    yield from _mention_changed(contrast, graphs, extras)
    for side, obj in contrast.lost:
        yield from _mention_lost(
            obj,
            side,
            graphs=graphs,
            extras=extras,
            denials=PLAIN_DENIALS,
            mark=rng.random(),
        )
    for _, obj in contrast.lost:
        look = describe_object(obj)
        first_count, second_count = (len(look.select(graph)) for graph in graphs)
        yield Mention(0, look, first_count), Mention(1, look, second_count)
    # Last, because "two balls" and "one ball" say more than that there is no ball on the left.
    for side, obj in contrast.lost:
        yield from _mention_lost(
            obj,
            side,
            graphs=graphs,
            extras=extras,
            denials=EXTRAS,
            mark=rng.random(),
        )


def _mention_changed(
    contrast: Contrast,
    graphs: Graphs,
    extras: Sequence[Names],
) -> list[MentionPair]:
    """Mention an object of both photographs by the attributes that changed, single objects first.

    Further attributes are named only where they are equal.
    """
    first, second = contrast.first, contrast.second
    if first is None or second is None:
        return []
    changed = [name for name in contrast.changed if name not in CORE]
    pairs: list[MentionPair] = []
    for extra in extras:
        names = list(changed)
        for name in extra:
            if name not in changed and getattr(first, name) == getattr(second, name):
                names.append(name)
        first_mention = _mention(0, first, names, graphs=graphs)
        second_mention = _mention(1, second, names, graphs=graphs)
        pairs.append((first_mention, second_mention))
    return sorted(pairs, key=lambda pair: any(mention.count for mention in pair))


def _mention_lost(
    obj: SceneObject,
    side: Side,
    *,
    graphs: Graphs,
    extras: list[Names],
    denials: tuple[Names, ...],
    mark: float,
) -> Iterator[MentionPair]:
    """Mention the object in detail on its side, and deny it on the other as briefly as is true."""
    other = graphs[1 - side]
    brief = next(
        (names for names in denials if not describe_object(obj, *names).select(other)), None
    )
    if brief is None:
        return
    absent = Mention(SIDES[1 - side], describe_object(obj, *brief), 0)
    known_marks = [name for name in MARKS if getattr(obj, name) is not None]
    marks = known_marks[int(mark * len(known_marks)) :][:1]
    for extra in extras:
        denied = [name for name in brief if name not in extra]
        names = [*extra, *denied, *marks]
        present = _mention(side, obj, names, graphs=graphs)
        yield (present, absent) if side == 0 else (absent, present)


def _mention(
    side: Side,
    obj: SceneObject,
    names: list[str],
    *,
    graphs: Graphs,
) -> Mention:
    """Mention the object, with the number of all objects that the same words describe."""
    known_names = [name for name in names if getattr(obj, name) is not None]
    return mention_selected(side, describe_object(obj, *known_names), graphs[side])


def tells_apart(claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Return whether the claims would be false with the photographs exchanged."""
    return not all_hold(claims, (graphs[1], graphs[0]))


def word_contrasts(
    contrasts: list[Contrast],
    graphs: Graphs,
    rng: Random,
    *,
    limit: int | None = None,
) -> list[MentionPair]:
    """Word up to ``limit`` contrasts of objects of different looks.

    Two contrasts of one look would read as a contradiction. Without a limit, word all, or none
    where one has no words; a number of like objects covers all of these.
    """
    pairs: list[MentionPair] = []
    worded: set[tuple[Any, ...]] = set()
    for contrast in contrasts:
        pair = word_contrast(contrast, graphs, rng)
        if pair is None:
            if limit is None:
                return []
            continue
        looks = {_look_of(mention) for mention in pair}
        is_repeated = bool(looks & worded)
        if limit is None and is_repeated and pair not in pairs:
            return []
        if len(pairs) != limit and not is_repeated:
            pairs.append(pair)
            worded |= looks
    return pairs


def _look_of(mention: Mention) -> tuple[Any, ...]:
    selector = mention.selector
    return (mention.side, *(getattr(selector, name) for name in CORE))


def shared(graphs: Graphs) -> list[Selector]:
    """Return the looks (shape, colour, material) that both photographs have, without repeats."""
    looks = {noun(look): look for look in map(describe_object, graphs[0].objects)}
    return [look for look in looks.values() if look.select(graphs[1])]


ADDITIONS = (
    "",
    "size",
    "column",
    "text",
    "depth",
    "size column",
    "facing",
    "pose",
    "column depth",
    "size column depth",
    "column facing",
    "column pose",
)
"""Attributes to add to colour, material and shape, in this order, until a phrase describes one
object only."""


@dataclass(frozen=True, slots=True)
class Related:
    """Relation of two objects that have a definite phrase."""

    subject: Selector
    relation: Relation
    other: Selector

    @property
    def wording_values(self) -> dict[str, str]:
        """Return the values of a wording."""
        return {
            "thing": the(self.subject),
            "relation": SPOKEN[self.relation],
            "other": the(self.other),
        }

    def claims(self, side: Side) -> tuple[Claim, ...]:
        """Return the claims: each phrase describes one object, and the relation holds."""
        related = Claim(
            side=side,
            kind="relation",
            selector=self.subject,
            relation=self.relation,
            other=self.other,
        )
        return (
            Claim(
                side=side,
                kind="count",
                selector=self.subject,
                count=1,
            ),
            Claim(
                side=side,
                kind="count",
                selector=self.other,
                count=1,
            ),
            related,
        )


def referring(obj: SceneObject, graph: SceneGraph) -> Selector | None:
    """Return the shortest selector of this object alone; ``None``: there is none."""
    for addition in ADDITIONS:
        names = addition.split()
        if any(getattr(obj, name) is None for name in names):
            continue
        selector = describe_object(obj, *names)
        if len(selector.select(graph)) == 1:
            return selector
    return None


def find_relation(
    obj: SceneObject,
    graph: SceneGraph,
    rng: Random,
) -> Related | None:
    """Relate the object to one that it clearly stands beside, before or behind."""
    subject = referring(obj, graph)
    if subject is None:
        return None
    for other in rng.sample(graph.objects, len(graph.objects)):
        relations = [relation for relation in get_args(Relation) if stands(obj, relation, other)]
        if other.id == obj.id or not relations:
            continue
        partner = referring(other, graph)
        if partner:
            return Related(subject, rng.choice(relations), partner)
    return None


def find_reversal(graphs: Graphs, rng: Random) -> tuple[Related, Related] | None:
    """Relate two objects of both photographs with their relation reversed in the second."""
    first = {obj.id: obj for obj in graphs[0].objects}
    second = {obj.id: obj for obj in graphs[1].objects}
    selectors: dict[str, Selector] = {}
    for name, obj in first.items():
        if name not in second:
            continue
        selector = referring(obj, graphs[0])
        # A phrase with a position that the object has left would refer to another object.
        if selector is not None and selector == referring(second[name], graphs[1]):
            selectors[name] = selector
    pairs = list(permutations(selectors, 2))
    for a, b in rng.sample(pairs, len(pairs)):
        for relation, opposite in OPPOSITES.items():
            if stands(first[a], relation, first[b]) and stands(second[a], opposite, second[b]):
                related = Related(selectors[a], relation, selectors[b])
                reversed_relation = Related(selectors[a], opposite, selectors[b])
                return related, reversed_relation
    return None
