"""Gather a few preferences about one image, which a source brought: with them there are no pairs to show.

Reads the subjects of all preferences a row group at a time, and then the rows and images of those shown, with what was
removed from these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute

from pairwright.schemas.decisions import UNDECIDED, Decision, Decisions
from pairwright.schemas.rows import ImageRow, PreferenceRow
from pairwright.tasks.report.gather_removals import Steps, find_steps, view_removals
from pairwright.tasks.report.mark_words import Segment, mark_words
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.views import RejectedView, RemovalsView
from pairwright.tasks.report.write_images import Picture, PictureFolder

pc: Any = pyarrow.compute
SHOWN = 12
SHOWS = ("images", "rejected_images")


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleView:
    """Be one preference about one image."""

    number: int
    key: str
    picture: Picture
    name: str
    prompt: str
    chosen: tuple[Segment, ...]
    chosen_model: str
    rejected: RejectedView | None
    removals: RemovalsView | None
    decision: Decision | None = None


def gather_preferences(tables: Tables, pictures: PictureFolder, decisions: Decisions = UNDECIDED) -> list[SingleView]:
    """Return one preference of each of a few images; none where the dataset has pairs."""
    name = next((name for name in ("preferences", "given_preferences") if tables.has(name)), "")
    if tables.has("pairs") or not name:
        return []
    # Keys are hashes, so the first of them are a mixed sample, and the same one each time.
    subjects = _first_subjects(tables, name)
    rows = {row.subject: row for row in tables.find(name, PreferenceRow, subjects, without=SHOWS)}
    return list(_view_rows(tables, [rows[key] for key in subjects], pictures, 1, decisions))


def _first_subjects(tables: Tables, name: str) -> list[str]:
    first: list[str] = []
    for table in tables.stream(name, ["subject"]):
        found = pc.unique(table.column("subject"))
        first = sorted({*first, *found.take(pc.sort_indices(found)[:SHOWN]).to_pylist()})[:SHOWN]
    return first


def gather_singles(
    tables: Tables, name: str, found: Sequence[tuple[str, str]], *, pictures: PictureFolder, first_number: int,
    decisions: Decisions = UNDECIDED,
) -> list[SingleView]:  # fmt: skip
    """Return some preferences of a table, by their keys and what they are about, in the given order."""
    subjects = [subject for _, subject in found]
    rows = {row.key: row for row in tables.find(name, PreferenceRow, subjects, without=SHOWS)}
    return list(_view_rows(tables, [rows[key] for key, _ in found], pictures, first_number, decisions))


def _view_rows(
    tables: Tables, rows: Sequence[PreferenceRow], pictures: PictureFolder, first_number: int, decisions: Decisions
) -> Iterator[SingleView]:
    subjects = [row.subject for row in rows]
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    # A preference with its rejected image was made of the one that the source brought, which is what was scored.
    own = tables.has("preferences")
    brought = {row.key: row.source_key if own else row.key for row in rows}
    steps = find_steps(tables, list(brought.values()), images=subjects)
    known = (row for row in rows if row.subject in images)
    for number, row in enumerate(known, first_number):
        view = _view(row, images[row.subject], view=(number, brought[row.key]), steps=steps, pictures=pictures)
        yield replace(view, decision=decisions.about(row))


def _view(
    row: PreferenceRow, image: ImageRow, *, view: tuple[int, str], steps: Steps, pictures: PictureFolder
) -> SingleView:
    number, brought = view
    picture = pictures.add_image(image)
    rejected = RejectedView(
        maker=row.rejected_maker, note=row.rejected_note, score=None, segments=mark_words(row.rejected, row.chosen)
    )
    return SingleView(
        number=number,
        key=row.key,
        picture=picture,
        name=image.name,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=mark_words(row.chosen, row.rejected) if row.rejected else (Segment(row.chosen, differs=False),),
        chosen_model=row.chosen_model,
        rejected=rejected if row.rejected else None,
        removals=view_removals(brought, [(image, picture)], steps, pictures),
    )
