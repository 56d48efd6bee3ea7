"""Gather a few preferences about one image, which a source brought: with them there are no pairs to show.

Reads the subjects of all preferences, and then the rows and images of those shown, with what was removed from these.
"""

from dataclasses import dataclass

from schemas.rows import ImageRow, PreferenceRow
from tasks.report.gather_removals import Steps, find_steps, view_removals
from tasks.report.mark_words import Segment, mark_words
from tasks.report.tables import Tables
from tasks.report.views import RejectedView, RemovalsView
from tasks.report.write_images import Picture, PictureFolder

SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleView:
    """Be one preference about one image."""

    number: int
    picture: Picture
    name: str
    prompt: str
    chosen: tuple[Segment, ...]
    chosen_model: str
    rejected: RejectedView | None
    removals: RemovalsView | None


def gather_preferences(tables: Tables, pictures: PictureFolder) -> list[SingleView]:
    """Return one preference of each of a few images; none where the dataset has pairs."""
    name = next((name for name in ("preferences", "given") if tables.has(name)), "")
    if tables.has("pairs") or not name:
        return []
    # Keys are hashes, so the first of them are a mixed sample, and the same one each time.
    subjects = sorted(set(tables.read(name, ["subject"]).column("subject").to_pylist()))[:SHOWN]
    shows = ("images", "rejected_images")
    rows = {row.subject: row for row in tables.find(name, PreferenceRow, subjects, without=shows)}
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    # A preference with its rejected image was made of the one that the source brought, which is what was scored.
    brought = {key: row.source_key if name == "preferences" else row.key for key, row in rows.items()}
    steps = find_steps(tables, list(brought.values()), images=subjects)
    known = [key for key in subjects if key in images]
    return [
        _view(rows[key], images[key], view=(number, brought[key]), steps=steps, pictures=pictures)
        for number, key in enumerate(known, 1)
    ]


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
        picture=picture,
        name=image.name,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=mark_words(row.chosen, row.rejected) if row.rejected else (Segment(row.chosen, differs=False),),
        chosen_model=row.chosen_model,
        rejected=rejected if row.rejected else None,
        removals=view_removals(brought, [(image, picture)], steps, pictures),
    )
