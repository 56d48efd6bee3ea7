"""Taggers of images: scene graphs for rendered scenes, RAM for photographs.

``prepare`` turns one image into the input of ``tag``, possibly in another process.
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

GROUPINGS = (("colour", "shape"), ("shape",))  # objects that agree in all of these form a group


class Tagger(Protocol):
    """Tagger of images."""

    @property
    def version(self) -> str:
        """Identity, which changes with its tags."""
        ...

    @property
    def prepare(self) -> Callable[[Seen], Any]:
        """Return the function from one image to the input of ``tag``; picklable."""
        ...

    def tag(self, prepared: Sequence[Any]) -> list[tuple[Tag, ...]]:
        """Return the tags of each prepared image, by falling score."""
        ...


@dataclass(frozen=True, slots=True)
class SceneTagger:
    """Tagger of each visible object of a rendered scene, and each group of similar objects ("three yellow balls")."""

    version: str = "scene graphs 1"

    def prepare(self, seen: Seen) -> SceneGraph | None:
        """Return the graph."""
        return seen.graph

    def tag(self, prepared: Sequence[SceneGraph | None]) -> list[tuple[Tag, ...]]:
        """Return single objects first; an image without a graph has no tags."""
        return [tuple(tags_of(graph)) if graph else () for graph in prepared]


def tags_of(graph: SceneGraph) -> list[Tag]:
    """Return a scene's objects and groups of similar objects, each with the objects resting on it."""
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
