"""Make triplets for image editing of rows: source image, instruction, edited image, failed edit.

The failed edit is the row's rejected image on the edited side: the image without a thing that the
chosen text mentions.
"""

from dataclasses import dataclass

from pairwright.schemas.control_tokens import refuse_control
from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.tasks.export.form import UnheldError, require
from pairwright.tasks.export.paired_row import PairedRow
from pairwright.tasks.export.parquet import Record, image_cell

NO_INSTRUCTION = "no instruction makes one image of the other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Triplet:
    """One edit, with images as cells of Parquet."""

    key: str
    instruction: str
    task: str
    source: Record
    edited: Record
    failed: Record | None
    image: bytes
    """The source image."""


def make_triplets(row: PreferenceRow) -> list[Triplet]:
    """Return the edits of a row; ``UnheldError``: it has none."""
    edits = row.edits if isinstance(row, PairedRow) else ()
    if not edits or len(row.images) != 2:
        raise UnheldError(NO_INSTRUCTION)
    triplets: list[Triplet] = []
    for edit in edits:
        refused = refuse_control(edit.instruction)
        if refused:
            raise UnheldError(f"{refused.reason} in an instruction")
        target = 1 - edit.source
        failed = None
        if row.rejected_images and row.rejected_images[target] != row.images[target]:
            name = f"{row.image_keys[target]}-failed"
            failed = image_cell(row.rejected_images[target], name)
        triplet = Triplet(
            key=make_key("edit", row.key, edit.source, edit.instruction),
            instruction=edit.instruction,
            task=edit.task,
            source=image_cell(row.images[edit.source], row.image_keys[edit.source]),
            edited=image_cell(row.images[target], row.image_keys[target]),
            failed=failed,
            image=row.images[edit.source],
        )
        triplets.append(triplet)
    return triplets


def check_instruction(text: object) -> None:
    """Check that an instruction is a text that an editor can follow."""
    require(isinstance(text, str) and text.strip(), "no instruction")
    refused = refuse_control(str(text))
    require(not refused, f"the instruction has {refused and refused.detail}")
