"""Write, axis by axis, that nothing has changed between two photographs."""

from collections.abc import Mapping

from pairwright.schemas.claims import Claim
from pairwright.schemas.comparison_axes import Axis
from pairwright.tasks.captioning.axes import AxisWriter
from pairwright.tasks.captioning.scope import Scope
from pairwright.tasks.captioning.statements import Statement


def _unchanged(axis: Axis) -> AxisWriter:
    def write(scope: Scope) -> list[Statement]:
        return [Statement(scope.say(f"unchanged_{axis}"), (Claim(side=0, kind="no_change"),))]

    return write


UNCHANGED_WRITERS: Mapping[Axis, AxisWriter] = {
    "object types": _unchanged("object types"),
    "attributes": _unchanged("attributes"),
    "counts": _unchanged("counts"),
    "actions": _unchanged("actions"),
    "locations": _unchanged("locations"),
}
