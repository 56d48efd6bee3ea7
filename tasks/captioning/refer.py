"""Refer to objects so that a reader finds them: the shortest phrase that only one object of the photograph fits."""

from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import get_args

from pairwright.schemas.claims import Claim, Graphs, Relation, Selector, stands
from pairwright.schemas.phrases import the
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning.statements import Side, describe, selects

ADDITIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("size",),
    ("column",),
    ("text",),
    ("depth",),
    ("size", "column"),
    ("facing",),
    ("pose",),
    ("column", "depth"),
    ("size", "column", "depth"),
    ("column", "facing"),
    ("column", "pose"),
)
"""What is added to colour, material and shape, shortest first, until a phrase fits one object only."""
SPOKEN: dict[Relation, str] = {
    "left of": "to the left of",
    "right of": "to the right of",
    "in front of": "in front of",
    "behind": "behind",
}
OPPOSITES: dict[Relation, Relation] = {
    "left of": "right of",
    "right of": "left of",
    "in front of": "behind",
    "behind": "in front of",
}


@dataclass(frozen=True, slots=True)
class Related:
    """Two things that a definite phrase can name, and how they stand to each other."""

    thing: Selector
    relation: Relation
    other: Selector

    @property
    def words(self) -> dict[str, str]:
        """Return what a sentence needs."""
        return {"thing": the(self.thing), "relation": SPOKEN[self.relation], "other": the(self.other)}

    def claims(self, side: Side) -> tuple[Claim, ...]:
        """Return what the sentence claims: each phrase fits one object, and they stand like this."""
        related = Claim(side=side, kind="relation", selector=self.thing, relation=self.relation, other=self.other)
        return _only(side, self.thing), _only(side, self.other), related


def referring(thing: SceneObject, graph: SceneGraph) -> Selector | None:
    """Return the shortest selector that chooses this object alone, if there is one."""
    for names in ADDITIONS:
        if all(getattr(thing, name) is not None for name in names):
            selector = describe(thing, *names)
            if selects(selector, graph) == 1:
                return selector
    return None


def find_relation(thing: SceneObject, graph: SceneGraph, rng: Random) -> Related | None:
    """Relate the object to another one that it clearly stands beside, before or behind."""
    named = referring(thing, graph)
    if named is None:
        return None
    for other in rng.sample(graph.objects, len(graph.objects)):
        relations = [relation for relation in get_args(Relation) if stands(thing, relation, other)]
        if other.id != thing.id and relations and (partner := referring(other, graph)):
            return Related(named, rng.choice(relations), partner)
    return None


def find_reversal(graphs: Graphs, rng: Random) -> tuple[Related, Related] | None:
    """Relate two things that both photographs show and that stand the other way round in the second."""
    first, second = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    names = [(name, referring(thing, graphs[0])) for name, thing in first.items() if name in second]
    # A phrase that names a place which the thing has left would name another thing.
    named = {name: it for name, it in names if it is not None and it == referring(second[name], graphs[1])}
    pairs = list(permutations(named, 2))
    for a, b in rng.sample(pairs, len(pairs)):
        for relation, opposite in OPPOSITES.items():
            if stands(first[a], relation, first[b]) and stands(second[a], opposite, second[b]):
                return Related(named[a], relation, named[b]), Related(named[a], opposite, named[b])
    return None


def _only(side: Side, selector: Selector) -> Claim:
    return Claim(side=side, kind="count", selector=selector, count=1)
