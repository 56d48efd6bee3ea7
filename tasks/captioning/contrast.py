"""Find what differs between two photographs, object by object.

In photographs of one world, objects are compared by their ids, and only where the scene itself was changed: what
another viewpoint turns or hides is no difference. Photographs of different worlds are compared by what each has and
the other lacks.
"""

from dataclasses import dataclass

from pairwright.schemas.claims import Graphs, content_changes
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning.statements import Side, describe

ATTRIBUTES = ("shape", "colour", "material", "size", "facing", "pose", "text")


@dataclass(frozen=True, slots=True)
class Contrast:
    """Be one object as the two photographs show it; ``None`` where a photograph lacks it."""

    first: SceneObject | None
    second: SceneObject | None

    @property
    def changed(self) -> tuple[str, ...]:
        """Name the attributes that differ; nothing where a photograph lacks the object."""
        if self.first is None or self.second is None:
            return ()
        return tuple(name for name in ATTRIBUTES if getattr(self.first, name) != getattr(self.second, name))

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
        return [Contrast(thing, None) for thing in _lacking(first, second)] + [
            Contrast(None, thing) for thing in _lacking(second, first)
        ]
    before, after = ({thing.id: thing for thing in graph.objects} for graph in graphs)
    found = (Contrast(before.get(name), after.get(name)) for name in _changed_ids(graphs))
    return [contrast for contrast in found if _differs(contrast)]


def _lacking(graph: SceneGraph, other: SceneGraph) -> list[SceneObject]:
    return [thing for thing in graph.objects if not describe(thing).select(other)]


def _changed_ids(graphs: Graphs) -> list[str]:
    """Name the objects that were changed in one photograph and not, or not in the same way, in the other."""
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1])
    return sorted({name for change in changes for name in (change.object_id, *change.object_ids) if name})


def _differs(contrast: Contrast) -> bool:
    return bool(contrast.changed) or (contrast.first is None) != (contrast.second is None)
