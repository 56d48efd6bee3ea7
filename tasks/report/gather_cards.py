"""Gather everything about a few pairs, or preferences about one image, with their pictures.

In a notebook, one row is a page of its own, and a few rows are a table, with embedded pictures and
styles.
"""

import base64
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment
from PIL import Image

from pairwright.schemas.claims import content_changes
from pairwright.schemas.decisions import UNDECIDED, Decision, Decisions
from pairwright.schemas.rows import (
    CaptionRow,
    CheckRow,
    ComparisonRow,
    DifferenceRow,
    ImageRow,
    PairRow,
    PreferenceRow,
    QuestionRow,
    RejectedTextRow,
    Row,
    SplitRow,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.pages.environment import LOOKS, make_environment
from pairwright.tasks.report.card_removals import RemovalsView, Steps, view_removals
from pairwright.tasks.report.card_texts import SHOWN_IMAGES, Texts, mark_words, split_sides
from pairwright.tasks.report.measure_writing import MEANINGS, says_something
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_images import CHANGED, Heat, PictureFolder, WrittenImage

HERE = Path(__file__).parent
SIDES = ("first", "second")
SINGLES = 12  # preferences about one image in a report


class ImageView(NamedTuple):
    """One image of a pair."""

    picture: WrittenImage
    row: ImageRow
    side: str
    caption: CaptionRow | None
    changed: str  # overlay of the known changes; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Pair with all rows about it."""

    number: int
    page: str
    row: PairRow
    images: tuple[ImageView, ImageView]
    split: str
    same_group: bool | None  # whether both images are of one group; ``None``: unknown
    changes: Sequence[tuple[str, str]]  # side and words of each known change
    difference: DifferenceRow | None
    candidates: Sequence[
        DifferenceRow
    ]  # descriptions that were not chosen, those that passed all checks first
    checks: Mapping[str, Sequence[CheckRow]]  # by the words of the description
    preference: PreferenceRow | None
    authors: Mapping[
        str, RejectedTextRow
    ]  # rejected texts of served models, by their words; a rule wrote the others
    removals: RemovalsView | None
    comparison: ComparisonRow | None
    questions: Sequence[QuestionRow]
    heat: Heat
    decision: Decision | None


class SingleView(NamedTuple):
    """Preference about one image from a source; a dataset of these has no pairs."""

    number: int
    picture: WrittenImage
    name: str
    preference: PreferenceRow
    removals: RemovalsView | None
    decision: Decision | None


def make_card_environment() -> Environment:
    """Return the environment of the pages with cards."""
    return make_environment(
        HERE,
        mark_words=mark_words,
        says_something=says_something,
        split_sides=split_sides,
        meanings=MEANINGS,
    )


def gather_pairs(
    tables: Tables,
    keys: Sequence[str],
    *,
    pictures: PictureFolder,
    first_number: int,
    page: str,
    decisions: Decisions = UNDECIDED,
    unpaired: Mapping[str, PairRow] = MappingProxyType({}),
) -> Iterator[PairView]:
    """Yield the pairs in the given order, with decisions; ``unpaired`` are candidates outside the dataset."""
    pairs = {row.key: row for row in tables.find("pairs", PairRow, keys)} | dict(unpaired)
    shown = [key for pair in pairs.values() for key in (pair.first, pair.second)]
    images = {row.key: row for row in tables.find("images", ImageRow, shown)}
    splits = {row.subject: row.split for row in tables.find("splits", SplitRow, list(pairs))}
    steps, texts = Steps(tables, list(pairs), images=shown), Texts(tables, list(pairs.values()))
    for number, pair in enumerate((pairs[key] for key in keys), first_number):
        first, second = both = images[pair.first], images[pair.second]
        preference = texts.preferences.get(pair.key)
        views = _view_images(both, texts, pictures)
        written = [view.picture for view in views]
        yield PairView(
            number=number,
            page=page,
            row=pair,
            images=views,
            split=splits.get(pair.key, ""),
            same_group=first.group == second.group if first.group and second.group else None,
            changes=list(_list_changes(both)),
            difference=texts.differences.get(pair.key),
            candidates=texts.candidates(pair.key),
            checks=texts.checks(pair.key),
            preference=preference,
            authors={row.text: row for row in texts.rejected.get(pair.key, ()) if row.served},
            removals=view_removals(
                pair.key, list(zip(both, written, strict=True)), steps, pictures
            ),
            comparison=texts.comparisons.get(pair.key),
            questions=texts.questions.get(pair.key, ()),
            heat=pictures.add_heat(make_key("heat", pair.key), *written),
            decision=decisions.about(preference) if preference else decisions.by_key.get(pair.key),
        )


def _view_images(
    both: tuple[ImageRow, ImageRow], texts: Texts, pictures: PictureFolder
) -> tuple[ImageView, ImageView]:
    """Return both images, each with the masks of the objects that differ in the other."""
    graphs = _same_world(both)
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1]) if graphs else ()
    changed = {name for change in changes for name in (change.object_id, *change.object_ids)}
    views: list[ImageView] = []
    for row, other, side in zip(both, reversed(both), SIDES, strict=True):
        picture = pictures.add_image(row)
        masks = (
            [(one.mask, CHANGED) for one in row.graph.objects if one.id in changed]
            if row.graph
            else []
        )
        overlay = pictures.add_masks(make_key("changed", row.key, other.key), masks, over=picture)
        views.append(ImageView(picture, row, side, texts.caption(row), overlay))
    return views[0], views[1]


def _same_world(both: tuple[ImageRow, ImageRow]) -> tuple[SceneGraph, SceneGraph] | None:
    first, second = both[0].graph, both[1].graph
    return (first, second) if first and second and first.world == second.world else None


def _list_changes(both: tuple[ImageRow, ImageRow]) -> Iterator[tuple[str, str]]:
    """Yield the known changes of each photograph from its world's base that the other lacks."""
    graphs = _same_world(both) or ()
    for side, graph in enumerate(graphs):
        for change in graph.changes:
            if change not in graphs[1 - side].changes:
                values = " → ".join(value for value in (change.before, change.after) if value)
                yield SIDES[side], f"{change.type}: {values}" if values else change.type


def gather_preferences(
    tables: Tables, pictures: PictureFolder, decisions: Decisions = UNDECIDED
) -> list[SingleView]:
    """Return one preference of each of a few images; none if the dataset has pairs."""
    name = tables.preferences
    if tables.has("pairs") or not name:
        return []
    # Keys are hashes, so the first ones are a fixed random sample.
    query = f"SELECT DISTINCT subject FROM {name} ORDER BY 1 LIMIT {SINGLES}"
    found = [key for (key,) in tables.ask(query, {name: ["subject"]})]
    rows = {
        row.subject: row for row in tables.find(name, PreferenceRow, found, without=SHOWN_IMAGES)
    }
    shown = [(rows[key].key, key) for key in found]
    return gather_singles(
        tables, name, shown, pictures=pictures, first_number=1, decisions=decisions
    )


def gather_singles(
    tables: Tables, name: str, found: Sequence[tuple[str, str]], *, pictures: PictureFolder, first_number: int,
    decisions: Decisions = UNDECIDED,
) -> list[SingleView]:  # fmt: skip
    """Return preferences of a table, by keys and subjects, in the given order."""
    subjects = [subject for _, subject in found]
    rows = {
        row.key: row for row in tables.find(name, PreferenceRow, subjects, without=SHOWN_IMAGES)
    }
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    # A preference with a rejected image has a new key; its removals were scored for the source's
    # preference.
    own = tables.has("preferences")
    scored = {row.key: row.source_key if own else row.key for row in rows.values()}
    steps = Steps(tables, list(scored.values()), images=subjects)
    views: list[SingleView] = []
    for row in (rows[key] for key, subject in found if subject in images):
        image = images[row.subject]
        picture = pictures.add_image(image)
        views.append(
            SingleView(
                number=first_number + len(views),
                picture=picture,
                name=image.name,
                preference=row,
                removals=view_removals(scored[row.key], [(image, picture)], steps, pictures),
                decision=decisions.about(row),
            )
        )
    return views


STYLES = (LOOKS, HERE / "pairs.css")
KINDS = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}
THUMBNAIL, QUALITY = 96, 80  # longest side in pixels and JPEG quality of a small picture
LONGEST = 2_000


def render_card(tables: Tables, table: str, row: Row) -> str:
    """Return the page of a table's row: of a pair with everything about it, else of its fields and image."""
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pictures = PictureFolder(Path(place))
        told: dict[str, Any] = {"pair": None, "single": None, "worded": tables.has("differences")}
        if tables.find("pairs", PairRow, [row.subject]):
            (told["pair"],) = gather_pairs(
                tables, [row.subject], pictures=pictures, first_number=1, page=""
            )
        elif isinstance(row, PreferenceRow):
            found = [(row.key, row.subject)]
            (told["single"],) = gather_singles(
                tables, table, found, pictures=pictures, first_number=1
            )
        else:
            images = tables.find("images", ImageRow, [row.subject])
            told["images"] = [(pictures.add_image(image), image.name) for image in images]
            values = [(one.name, getattr(row, one.name)) for one in fields(row)]
            filled = [
                one
                for one in values
                if one[1] not in ("", (), None) and not isinstance(one[1], bytes)
            ]
            told["fields"] = [(name, str(value)[:LONGEST]) for name, value in filled]
        looks = "\n".join(path.read_text() for path in STYLES)
        page = (
            make_card_environment()
            .get_template("card.html.j2")
            .render(**told, table=table, row=row, looks=looks)
        )
        for picture in pictures.written.values():
            path = pictures.root / picture.src
            page = page.replace(
                f'src="{picture.src}"', f'src="{_data_url(path.read_bytes(), KINDS[path.suffix])}"'
            )
        return page


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def render_rows(
    name: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str]]],
    *,
    total: int,
) -> str:
    """Return rows of a table, each its small pictures and its cells, as escaped HTML."""
    template = make_card_environment().get_template("rows.html.j2")
    return template.render(name=name, columns=columns, rows=rows, total=total)


def small_picture(data: bytes) -> str:
    """Return the data URL of an encoded image's thumbnail."""
    image = Image.fromarray(decode_rgb(data))
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY)
    return _data_url(sink.getvalue(), "jpeg")
