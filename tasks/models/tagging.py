"""Name what is in images: rendered scenes name their objects themselves; RAM names what is in photographs.

A tagger works in two steps, so that the first can run in other processes than the second: ``prepare`` turns one image
into what the model takes of it, ``tag`` names what is in many of those.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import noun, number
from pairwright.schemas.rows import Tag
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.models.prepare_ahead import Seen

GROUPINGS = (("colour", "shape"), ("shape",))
"""Objects alike in all of these form a group."""


class Tagger(Protocol):
    """Name what is in images."""

    @property
    def version(self) -> str:
        """What changes when the same image would get other tags."""
        ...

    @property
    def prepare(self) -> Callable[[Seen], Any]:
        """Return what gives ``tag`` what it takes of one image; can be sent to another process."""
        ...

    def tag(self, prepared: Sequence[Any]) -> list[tuple[Tag, ...]]:
        """Return the tags of each prepared image, by falling score."""
        ...


@dataclass(frozen=True, slots=True)
class SceneTagger:
    """Name each visible object of a rendered scene, and each group of like objects ("three yellow balls")."""

    version: str = "scene graphs 1"

    def prepare(self, seen: Seen) -> SceneGraph | None:
        """Return the graph."""
        return seen.graph

    def tag(self, prepared: Sequence[SceneGraph | None]) -> list[tuple[Tag, ...]]:
        """Return single objects first; an image without a graph has no tags."""
        return [tuple(tags_of(graph)) if graph else () for graph in prepared]


def tags_of(graph: SceneGraph) -> list[Tag]:
    """Return the objects of a scene, and its groups of like objects; what rests on one goes with it."""
    riders: dict[str | None, list[SceneObject]] = defaultdict(list)
    for thing in graph.objects:
        riders[thing.support].append(thing)
    found = [
        _tag(noun(Selector(colour=thing.colour, material=thing.material, shape=thing.shape)), [thing], riders)
        for thing in graph.objects
    ]
    for names in GROUPINGS:
        members: dict[Selector, list[SceneObject]] = defaultdict(list)
        for thing in graph.objects:
            members[Selector(**{name: getattr(thing, name) for name in names})].append(thing)
        found += [
            _tag(f"{number(len(things))} {noun(selector, len(things))}", things, riders)
            for selector, things in members.items()
            if len(things) > 1
        ]
    return found


def _tag(name: str, things: Sequence[SceneObject], riders: Mapping[str | None, Sequence[SceneObject]]) -> Tag:
    ids = [one.id for thing in things for one in (thing, *riders.get(thing.id, ()))]
    return Tag(name=name, score=1.0, tagger="scene-graph", objects=tuple(dict.fromkeys(ids)))
