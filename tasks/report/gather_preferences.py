"""Gather a few preferences about one image, which a source brought: with them there are no pairs to show.

Reads the subjects of all preferences, and then the rows and images of those shown.
"""

from dataclasses import dataclass

from schemas.rows import ImageRow, PreferenceRow
from tasks.report.mark_words import Segment, mark_words
from tasks.report.tables import Tables
from tasks.report.views import RejectedView
from tasks.report.write_images import Picture, PictureFolder

SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleView:
    """Be one preference about one image."""

    picture: Picture
    name: str
    prompt: str
    chosen: tuple[Segment, ...]
    chosen_model: str
    rejected: RejectedView


def gather_preferences(tables: Tables, pictures: PictureFolder) -> list[SingleView]:
    """Return one preference of each of a few images; none where the dataset has pairs."""
    if tables.has("pairs") or not tables.has("preferences"):
        return []
    # Keys are hashes, so the first of them are a mixed sample, and the same one each time.
    subjects = sorted(set(tables.read("preferences", ["subject"]).column("subject").to_pylist()))[:SHOWN]
    shows = ("images", "rejected_images")
    rows = {row.subject: row for row in tables.find("preferences", PreferenceRow, subjects, without=shows)}
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    return [_view(rows[key], images[key], pictures) for key in subjects if key in images]


def _view(row: PreferenceRow, image: ImageRow, pictures: PictureFolder) -> SingleView:
    return SingleView(
        picture=pictures.add_image(image),
        name=image.name,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=mark_words(row.chosen, row.rejected),
        chosen_model=row.chosen_model,
        rejected=RejectedView(
            maker=row.rejected_maker,
            note=row.rejected_note,
            score=None,
            segments=mark_words(row.rejected, row.chosen),
        ),
    )
