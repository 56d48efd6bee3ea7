"""Write, axis by axis, that nothing has changed between two photographs, and how light and viewpoint differ."""

from collections.abc import Mapping

from schemas.claims import Claim
from tasks.captioning.axes import AxisWriter
from tasks.captioning.scope import Scope
from tasks.captioning.statements import Statement
from tasks.captioning.validate_comparisons import Axis


def _unchanged(axis: Axis) -> AxisWriter:
    def write(scope: Scope) -> list[Statement]:
        return [Statement(scope.say(f"unchanged_{axis}"), (Claim(side=0, kind="no_change"),))]

    return write


def _unmoved(scope: Scope) -> list[Statement]:
    """Say that nothing was moved, and how the photographs differ otherwise."""
    first, second = scope.graphs
    found = _unchanged("locations")(scope)
    kinds = [kind for kind in ("viewpoint", "light") if getattr(first, kind) != getattr(second, kind)]
    if kinds:
        claims = tuple(claim for kind in ("viewpoint", "light") for claim in scope.phrases(kind))
        values = {
            f"{name}_{kind}": getattr(graph, kind)
            for name, graph in zip(("first", "second"), scope.graphs, strict=True)
            for kind in ("viewpoint", "light")
        }
        found.append(Statement(scope.say(f"unchanged_{'_'.join(kinds)}", **values), claims))
    return found


UNCHANGED_WRITERS: Mapping[Axis, AxisWriter] = {
    "object types": _unchanged("object types"),
    "attributes": _unchanged("attributes"),
    "counts": _unchanged("counts"),
    "actions": _unchanged("actions"),
    "locations": _unmoved,
}
