"""Check what nobody checks: that a removal left no trace and changed nothing else (ours).

Reads ``RemovalRow`` and the images, writes one ``InspectionRow`` per removal; one that fails says why.
"""

from collections.abc import Iterator, Mapping, Sequence

from schemas.config import InspectionConfig
from schemas.rows import Dropped, ImageRow, InspectionRow, RemovalRow, make_key
from tasks.store.stage import Stage, Uses

CHANGED_OUTSIDE = "changed outside"


def inspect_removals(
    rows: Sequence[RemovalRow],
    config: InspectionConfig,  # noqa: ARG001
    *,
    images: Mapping[str, ImageRow],  # noqa: ARG001
) -> Iterator[InspectionRow | Dropped]:
    """Yield the outcome of each removal's checks."""
    for row in rows:
        why = CHANGED_OUTSIDE if row.changed_outside else ""
        yield InspectionRow(
            key=make_key("inspection", row.key, why),
            source_key=row.key,
            subject=row.image_key,
            element=row.subject,
            passed=not why,
            why=why,
            changed_outside=row.changed_outside,
        )


STAGE = Stage(
    name="inspected",
    version=1,
    group="rejected",
    reads="removals",
    row=RemovalRow,
    writes=InspectionRow,
    function=inspect_removals,
    config="inspection",
    uses=(Uses(table="images", row=ImageRow, on="image_key"),),
)
