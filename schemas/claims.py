"""Claims: statements about two photographs, in a form that scene graphs confirm or refute.

A text is *true* of a pair when all of its claims hold there. By its claims a rejected text is
checked to be false, and a removed object is known to have been mentioned.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal

from pydantic import TypeAdapter

from pairwright.schemas.scene import DISTRACTORS, Frozen, SceneChange, SceneGraph, SceneObject

Relation = Literal["left of", "right of", "in front of", "behind"]
OPPOSITES: dict[Relation, Relation] = {
    "left of": "right of", "right of": "left of", "in front of": "behind", "behind": "in front of"
}  # fmt: skip
DEPTHS = ("front", "middle", "back")
CLEAR_GAP = 0.1
"""Minimum distance of two centres, as a share of the image width, for "left of" and "right of"
(ours)."""


class Selector(Frozen):
    """Selection of objects by the words of a text; ``None`` matches any value of that attribute."""

    shape: str | None = None
    colour: str | None = None
    material: str | None = None
    size: str | None = None
    facing: str | None = None
    pose: str | None = None
    text: str | None = None
    column: str | None = None
    depth: str | None = None
    rests_on: str | None = None

    def select(self, graph: SceneGraph) -> list[SceneObject]:
        """Return the objects of the photograph that match."""
        named = {name: value for name, value in vars(self).items() if value is not None}
        if not named:
            return list(graph.objects)
        # Writers spend most of their time here: one C call per object is ten times as fast as
        # comparing by name.
        look = attrgetter(*named)
        wanted = tuple(named.values()) if len(named) > 1 else next(iter(named.values()))
        return [thing for thing in graph.objects if look(thing) == wanted]


class Claim(Frozen):
    """Checkable statement about the first (side 0) or second (side 1) photograph of a pair.

    Kinds: ``exists`` (at least one match), ``absent`` (none), ``count`` (exactly ``count``),
    ``relation`` (some match stands in ``relation`` to some match of ``other``), ``light``,
    ``viewpoint`` and ``place`` (the graph's phrase is ``value``), ``no_change`` (about both sides:
    nothing but viewpoint and light differs).
    """

    side: Literal[0, 1]
    kind: Literal[
        "exists", "absent", "count", "relation", "light", "viewpoint", "place", "no_change"
    ]
    selector: Selector = Selector()
    count: int = 0
    relation: Relation | None = None
    other: Selector = Selector()
    value: str = ""


CLAIMS: TypeAdapter[tuple[Claim, ...]] = TypeAdapter(tuple[Claim, ...])
"""Reads and writes the ``claims`` column: ``CLAIMS.validate_json(row.claims)``."""


def dump_claims(claims: tuple[Claim, ...]) -> str:
    """Return the ``claims`` column."""
    return CLAIMS.dump_json(claims, exclude_defaults=True).decode()


Graphs = tuple[SceneGraph, SceneGraph]


def content_changes(graph: SceneGraph) -> frozenset[SceneChange]:
    """Return the differences from the world's base photograph, except viewpoint and light."""
    return frozenset(change for change in graph.changes if change.type not in DISTRACTORS)


def is_no_change(graphs: Graphs) -> bool:
    """Return whether two photographs show the same scene, apart from viewpoint and light."""
    first, second = graphs
    return first.world == second.world and content_changes(first) == content_changes(second)


def stands(thing: SceneObject, relation: Relation, other: SceneObject) -> bool:
    """Return whether two objects of one photograph clearly stand in a relation, to the viewer.

    Left and right: neither has its middle within the other's width, and the middles are well apart.
    In front and behind: they overlap by at least half of the narrower one's width, and the nearer
    one reaches at least as far down the picture. So no two things stand in relations of both kinds;
    many stand in none.
    """
    if relation in ("right of", "behind"):
        return stands(other, OPPOSITES[relation], thing)
    if relation == "left of":
        middle, far = (thing.box[0] + thing.box[2]) / 2, (other.box[0] + other.box[2]) / 2
        return (
            far - middle >= CLEAR_GAP * thing.mask.width
            and middle < other.box[0]
            and far > thing.box[2]
        )
    if thing.depth is None or other.depth is None:
        return False
    overlap = min(thing.box[2], other.box[2]) - max(thing.box[0], other.box[0])
    narrower = min(thing.box[2] - thing.box[0], other.box[2] - other.box[0])
    nearer = DEPTHS.index(thing.depth) < DEPTHS.index(other.depth) and thing.box[3] >= other.box[3]
    return nearer and 2 * overlap >= narrower


def is_true_claim(claim: Claim, graphs: Graphs) -> bool:
    """Return whether the claim is true of the pair of photographs."""
    graph = graphs[claim.side]
    if claim.kind == "no_change":
        return is_no_change(graphs)
    if claim.kind in ("light", "viewpoint", "place"):
        return getattr(graph, claim.kind) == claim.value
    found = claim.selector.select(graph)
    if claim.kind == "relation":
        others = claim.other.select(graph)
        return any(
            stands(a, claim.relation, b)
            for a in found
            for b in others
            if a.id != b.id and claim.relation
        )
    return {"exists": bool(found), "absent": not found, "count": len(found) == claim.count}[
        claim.kind
    ]


def all_hold(claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Return whether a text with these claims is true of the pair."""
    return all(is_true_claim(claim, graphs) for claim in claims)


def may_hold(claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Return whether a text may pass for true: a relation does unless its opposite holds."""

    def is_open(claim: Claim) -> bool:
        return claim.relation is not None and not is_true_claim(
            claim.model_copy(update={"relation": OPPOSITES[claim.relation]}), graphs
        )

    return all(is_true_claim(claim, graphs) or is_open(claim) for claim in claims)
