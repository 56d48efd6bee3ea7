"""Make triplets for image editing of rows: source image, instruction, edited image, failed edit.

An edit turns one image of a pair into the other; its failed edit is the row's rejected image on the
edited side, which lacks a thing. A removal behind a rejected image is an edit of its own, in both
directions: the image with the thing, and without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pairwright.schemas.control_tokens import refuse_control
from pairwright.schemas.phrases import with_article
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


def make_triplets(row: PreferenceRow) -> list[Triplet]:
    """Return the edits of a row; ``UnheldError``: it has none."""
    triplets = [*_edits_of_pair(row), *_edits_of_removal(row)]
    if not triplets:
        raise UnheldError(NO_INSTRUCTION)
    for triplet in triplets:
        refused = refuse_control(triplet.instruction)
        if refused:
            raise UnheldError(f"{refused.reason} in an instruction")
    return triplets


def _edits_of_pair(row: PreferenceRow) -> Iterator[Triplet]:
    """Yield the edits that turn one image into the other."""
    if not isinstance(row, PairedRow) or len(row.images) != 2:
        return
    for edit in row.edits:
        target = 1 - edit.source
        failed = None
        if row.rejected_images and row.rejected_images[target] != row.images[target]:
            name = f"{row.image_keys[target]}-failed"
            failed = image_cell(row.rejected_images[target], name)
        yield Triplet(
            key=make_key("edit", row.key, edit.source, edit.instruction),
            instruction=edit.instruction,
            task=edit.task,
            source=image_cell(row.images[edit.source], row.image_keys[edit.source]),
            edited=image_cell(row.images[target], row.image_keys[target]),
            failed=failed,
        )


def _edits_of_removal(row: PreferenceRow) -> Iterator[Triplet]:
    """Yield the removal behind a rejected image, and its reverse."""
    if row.rejected_image_maker != "removal":
        return
    for score in row.removal_scores:
        if not score.chosen:
            continue
        original = image_cell(row.images[score.side], row.image_keys[score.side])
        without = image_cell(row.rejected_images[score.side], score.removal)
        edits = (
            (f"Remove the {score.tag}.", "removal", original, without),
            (f"Add {with_article(score.tag)}.", "addition", without, original),
        )
        for instruction, task, source, edited in edits:
            yield Triplet(
                key=make_key("edit", row.key, score.removal, instruction),
                instruction=instruction,
                task=task,
                source=source,
                edited=edited,
                failed=None,
            )


def check_instruction(text: object) -> None:
    """Check that an instruction is a text that an editor can follow."""
    require(isinstance(text, str) and text.strip(), "no instruction")
    refused = refuse_control(str(text))
    require(not refused, f"the instruction has {refused and refused.detail}")
