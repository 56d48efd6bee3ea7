"""Gather everything about a few pairs, or preferences about one image, with their pictures.

In a notebook, one row is a page, and a few rows are a table, with embedded pictures and styles.
"""

import base64
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from jinja2 import Environment
from PIL import Image

from pairwright.schemas.checks import MEANINGS
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
    are_one_group,
    make_key,
)
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.images.regions import changed_objects, same_world
from pairwright.tasks.pages.environment import LOOKS, make_environment
from pairwright.tasks.report.card_removals import RemovalsView, Steps, view_removals
from pairwright.tasks.report.card_texts import PREFERENCE_IMAGES, Texts, mark_words, split_sides
from pairwright.tasks.report.measure_writing import says_something
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
    candidates: Sequence[DifferenceRow]
    """Descriptions that were not chosen, those that passed all checks first."""
    checks: Mapping[str, Sequence[CheckRow]]  # by the words of the description
    preference: PreferenceRow | None
    authors: Mapping[str, RejectedTextRow]
    """Rejected texts of served models, by their words; a rule wrote the others."""
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


@dataclass(frozen=True, kw_only=True)
class PairRows:
    """Rows about some pairs."""

    images: Mapping[str, ImageRow]
    splits: Mapping[str, str]
    steps: Steps
    texts: Texts

    @classmethod
    def gather(cls, tables: Tables, pairs: Sequence[PairRow]) -> Self:
        """Return the rows about some pairs."""
        keys = [pair.key for pair in pairs]
        image_keys: list[str] = []
        for pair in pairs:
            image_keys += (pair.first, pair.second)
        images = tables.find_rows("images", ImageRow, image_keys)
        splits = tables.find_rows("splits", SplitRow, keys)
        return cls(
            images={row.key: row for row in images},
            splits={row.subject: row.split for row in splits},
            steps=Steps(tables, keys, images=image_keys),
            texts=Texts(tables, pairs),
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
    """Yield the pairs in the given order, with decisions.

    ``unpaired`` are candidates outside the dataset.
    """
    pairs = {row.key: row for row in tables.find_rows("pairs", PairRow, keys)}
    pairs |= unpaired
    rows = PairRows.gather(tables, list(pairs.values()))
    for number, key in enumerate(keys, first_number):
        yield _view_pair(
            pairs[key],
            rows,
            pictures,
            decisions,
            number=number,
            page=page,
        )


def _view_pair(
    pair: PairRow,
    rows: PairRows,
    pictures: PictureFolder,
    decisions: Decisions,
    *,
    number: int,
    page: str,
) -> PairView:
    key = pair.key
    texts = rows.texts
    preference = texts.preferences.get(key)
    both = rows.images[pair.first], rows.images[pair.second]
    images = _view_images(pair, both, texts, pictures)
    first = images[0].picture
    second = images[1].picture
    pictured = [(both[0], first), (both[1], second)]
    return PairView(
        number=number,
        page=page,
        row=pair,
        images=images,
        split=rows.splits.get(key, ""),
        same_group=are_one_group(both[0].group, both[1].group),
        changes=list(_list_changes(both)),
        difference=texts.differences.get(key),
        candidates=texts.candidates(key),
        checks=texts.checks_by_text(key),
        preference=preference,
        authors=texts.authors(key),
        removals=view_removals(key, pictured, rows.steps, pictures),
        comparison=texts.comparisons.get(key),
        questions=texts.questions.get(key, ()),
        heat=pictures.add_heat(make_key("heat", key), first, second),
        decision=decisions.decision_on(preference) if preference else decisions.by_key.get(key),
    )


def _view_images(
    pair: PairRow, both: tuple[ImageRow, ImageRow], texts: Texts, pictures: PictureFolder
) -> tuple[ImageView, ImageView]:
    """Return both images, each with the masks of the objects that differ in the other.

    A change mask that the source gave is shown over both images, if they are of one size.
    """
    world = same_world((both[0].graph, both[1].graph))
    changed = changed_objects(world) if world else set[str | None]()
    given = Mask.model_validate_json(pair.change_mask) if pair.change_mask else None
    views: list[ImageView] = []
    for row, other, side in zip(both, reversed(both), SIDES, strict=True):
        picture = pictures.add_image(row)
        objects = row.graph.objects if row.graph else ()
        masks = [(item.mask, CHANGED) for item in objects if item.id in changed]
        if given and (given.width, given.height) == (row.width, row.height):
            masks.append((given, CHANGED))
        overlay = pictures.add_masks(
            make_key("changed", row.key, other.key, pair.change_mask), masks, over=picture
        )
        views.append(ImageView(picture, row, side, texts.caption(row), overlay))
    return views[0], views[1]


def _list_changes(both: tuple[ImageRow, ImageRow]) -> Iterator[tuple[str, str]]:
    """Yield the known changes of each photograph from its world's base that the other lacks."""
    graphs = same_world((both[0].graph, both[1].graph)) or ()
    for side, graph in enumerate(graphs):
        for change in graph.changes:
            if change in graphs[1 - side].changes:
                continue
            values = " → ".join(filter(None, (change.before, change.after)))
            yield SIDES[side], f"{change.type}: {values}" if values else change.type


def gather_preferences(
    tables: Tables, pictures: PictureFolder, decisions: Decisions = UNDECIDED
) -> list[SingleView]:
    """Return one preference of each of a few images; none if the dataset has pairs."""
    table = tables.preferences
    if tables.has_table("pairs") or not table:
        return []
    # Keys are hashes, so the first ones are a fixed random sample.
    query = f"SELECT DISTINCT subject FROM {table} ORDER BY 1 LIMIT {SINGLES}"
    subjects = [subject for (subject,) in tables.query(query, {table: ["subject"]})]
    rows = tables.find_rows(table, PreferenceRow, subjects, without=PREFERENCE_IMAGES)
    keys = {row.subject: row.key for row in rows}
    return gather_singles(
        tables,
        table,
        [(keys[subject], subject) for subject in subjects],
        pictures=pictures,
        first_number=1,
        decisions=decisions,
    )


@dataclass(frozen=True, kw_only=True)
class SingleRows:
    """Rows about some preferences of one image each."""

    preferences: Mapping[str, PreferenceRow]
    images: Mapping[str, ImageRow]
    scored: Mapping[str, str]  # key that removals were scored for, by key of the preference
    steps: Steps

    @classmethod
    def gather(
        cls,
        tables: Tables,
        table: str,
        images: Sequence[str],
    ) -> Self:
        """Return the rows about the preferences of some images."""
        preferences = tables.find_rows(table, PreferenceRow, images, without=PREFERENCE_IMAGES)
        # A preference with a rejected image has a new key; its removals were scored for the
        # source's preference.
        if tables.has_table("preferences"):
            scored = {row.key: row.source_key for row in preferences}
        else:
            scored = {row.key: row.key for row in preferences}
        return cls(
            preferences={row.key: row for row in preferences},
            images={row.key: row for row in tables.find_rows("images", ImageRow, images)},
            scored=scored,
            steps=Steps(tables, list(scored.values()), images=images),
        )


def gather_singles(
    tables: Tables,
    table: str,
    keys: Sequence[tuple[str, str]],
    *,
    pictures: PictureFolder,
    first_number: int,
    decisions: Decisions = UNDECIDED,
) -> list[SingleView]:
    """Return preferences of a table, by keys and subjects, in the given order."""
    rows = SingleRows.gather(tables, table, [subject for _, subject in keys])
    views: list[SingleView] = []
    for key, subject in keys:
        if subject not in rows.images:
            continue
        image = rows.images[subject]
        picture = pictures.add_image(image)
        removals = view_removals(rows.scored[key], [(image, picture)], rows.steps, pictures)
        view = SingleView(
            number=first_number + len(views),
            picture=picture,
            name=image.name,
            preference=rows.preferences[key],
            removals=removals,
            decision=decisions.decision_on(rows.preferences[key]),
        )
        views.append(view)
    return views


STYLES = (LOOKS, HERE / "pairs.css")
MEDIA_TYPES = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}
THUMBNAIL = 96  # longest side of a small picture in pixels
QUALITY = 80  # of its JPEG
LONGEST = 2_000  # characters of a field


def render_card(tables: Tables, table: str, row: Row) -> str:
    """Return the page of a table's row.

    A pair is shown with everything about it, another row with its fields and image.
    """
    with tempfile.TemporaryDirectory(prefix="pairwright-") as folder:
        pictures = PictureFolder(Path(folder))
        content = _view_row(tables, table, row, pictures)
        page = (
            make_card_environment()
            .get_template("card.html.j2")
            .render(
                **content,
                worded=tables.has_table("differences"),
                table=table,
                row=row,
                looks="\n".join(path.read_text() for path in STYLES),
            )
        )
        for picture in pictures.written.values():
            path = pictures.root / picture.src
            url = _data_url(path.read_bytes(), MEDIA_TYPES[path.suffix])
            page = page.replace(f'src="{picture.src}"', f'src="{url}"')
        return page


def _view_row(
    tables: Tables,
    table: str,
    row: Row,
    pictures: PictureFolder,
) -> dict[str, Any]:
    """Return the content of a row's page for its template."""
    content: dict[str, Any] = {"pair": None, "single": None}
    if tables.find_rows("pairs", PairRow, [row.subject]):
        (content["pair"],) = gather_pairs(
            tables, [row.subject], pictures=pictures, first_number=1, page=""
        )
    elif isinstance(row, PreferenceRow):
        keys = [(row.key, row.subject)]
        (content["single"],) = gather_singles(
            tables, table, keys, pictures=pictures, first_number=1
        )
    else:
        images = tables.find_rows("images", ImageRow, [row.subject])
        content["images"] = [(pictures.add_image(image), image.name) for image in images]
        content["fields"] = list(_list_fields(row))
    return content


def _list_fields(row: Row) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a row's fields, without empty ones and bytes."""
    for field in fields(row):
        value = getattr(row, field.name)
        if value not in ("", (), None) and not isinstance(value, bytes):
            yield field.name, str(value)[:LONGEST]


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:image/{media_type};base64,{base64.b64encode(data).decode()}"


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
