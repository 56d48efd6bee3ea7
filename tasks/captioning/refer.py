"""Refer to objects so that a reader finds them: the shortest phrase that only one object of the photograph fits."""

from schemas.claims import Claim, Selector
from schemas.scene import SceneGraph, SceneObject
from tasks.captioning.statements import Side, describe, selects

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


def referring(thing: SceneObject, graph: SceneGraph) -> Selector | None:
    """Return the shortest selector that chooses this object alone, if there is one."""
    for names in ADDITIONS:
        if all(getattr(thing, name) is not None for name in names):
            selector = describe(thing, *names)
            if selects(selector, graph) == 1:
                return selector
    return None


def only(side: Side, selector: Selector) -> Claim:
    """Return the claim that a definite phrase makes: exactly one object fits it."""
    return Claim(side=side, kind="count", selector=selector, count=1)


def referable(graph: SceneGraph) -> list[tuple[SceneObject, Selector]]:
    """Return the objects that a definite phrase can name, each with its selector."""
    found = ((thing, referring(thing, graph)) for thing in graph.objects)
    return [(thing, selector) for thing, selector in found if selector is not None]
