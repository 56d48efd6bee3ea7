"""Gather everything about a few pairs, or preferences about one image, with their pictures.

In a notebook, one row is a page of its own, and a few rows are a table, with embedded pictures and styles.
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
    ComparisonRow,
    ImageRow,
    Negative,
    PairRow,
    PreferenceRow,
    QuestionRow,
    Row,
    SplitRow,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.pages.environment import HERE as LOOKS
from pairwright.tasks.pages.environment import make_environment
from pairwright.tasks.report import card_texts
from pairwright.tasks.report.card_removals import RemovalsView, Steps, view_removals
from pairwright.tasks.report.measure_texts import says_something
from pairwright.tasks.report.tables import PREFERENCES, Tables
from pairwright.tasks.report.write_images import CHANGED, Heat, Picture, PictureFolder
from pairwright.tasks.store.images import decode_rgb

HERE = Path(__file__).parent
SIDES = ("first", "second")
SINGLES = 12
"""Preferences about one image in a report."""


class ImageView(NamedTuple):
    """One image of a pair."""

    picture: Picture
    name: str
    side: str
    caption: CaptionRow | None
    changed: str
    """Overlay of the known changes; empty: none."""
    size: tuple[int, int]
    """Width and height of the image itself."""


class PreferenceView(NamedTuple):
    """Chosen text and its rejected texts."""

    key: str
    prompt: str
    chosen: Sequence[card_texts.Segment]
    chosen_model: str
    rejected: card_texts.RejectedView | None
    negatives: Sequence[card_texts.RejectedView]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Pair with all rows about it."""

    number: int
    page: str
    row: PairRow
    images: tuple[ImageView, ImageView]
    split: str
    same_group: bool | None
    """Whether both images are of one group; ``None``: unknown."""
    changes: Sequence[tuple[str, str]]
    """Side and words of each known change."""
    difference: card_texts.DifferenceView | None
    candidates: Sequence[card_texts.DifferenceView]
    """Descriptions that were not chosen, those that passed all checks first."""
    preference: PreferenceView | None
    removals: RemovalsView | None
    unused: Sequence[card_texts.RejectedView]
    comparison: ComparisonRow | None
    questions: Sequence[QuestionRow]
    heat: Heat
    decision: Decision | None

    @property
    def decided(self) -> str:
        """Return the key for a decision: the preference's or, without one, the pair's."""
        return self.preference.key if self.preference else self.row.key


class SingleView(NamedTuple):
    """Preference about one image from a source; a dataset of these has no pairs."""

    number: int
    key: str
    picture: Picture
    name: str
    preference: PreferenceView
    removals: RemovalsView | None
    decision: Decision | None


def make_card_environment() -> Environment:
    """Return the environment of the pages with cards."""
    return make_environment(
        HERE, byline=card_texts.byline, says_something=says_something, split_sides=card_texts.split_sides
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
    steps, texts = Steps(tables, list(pairs), images=shown), card_texts.Texts(tables, list(pairs.values()))
    for number, pair in enumerate((pairs[key] for key in keys), first_number):
        first, second = both = images[pair.first], images[pair.second]
        difference, preference = texts.differences.get(pair.key), texts.preferences.get(pair.key)
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
            difference=card_texts.view_difference(difference, texts, chosen=difference) if difference else None,
            candidates=card_texts.view_candidates(pair.key, texts),
            preference=view_preference(preference, texts) if preference else None,
            removals=view_removals(pair.key, list(zip(both, written, strict=True)), steps, pictures),
            unused=card_texts.view_unused(pair.key, texts),
            comparison=texts.comparisons.get(pair.key),
            questions=texts.questions.get(pair.key, ()),
            heat=pictures.add_heat(make_key("heat", pair.key), *written),
            decision=decisions.about(preference) if preference else decisions.by_key.get(pair.key),
        )


def view_preference(row: PreferenceRow, texts: card_texts.Texts | None = None) -> PreferenceView:
    """Return a preference, with its rejected texts marked against the chosen one."""
    first = Negative(text=row.rejected, maker=row.rejected_maker, note=row.rejected_note, score=0.0)
    rejected = [
        card_texts.view_rejected(
            one,
            row.chosen,
            card_texts.find_author(row.subject, texts, text=one.text) if texts else None,
            scored=one is not first,
        )
        for one in (first, *row.negatives)
    ]
    return PreferenceView(
        key=row.key,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=card_texts.mark_words(row.chosen, row.rejected),
        chosen_model=row.chosen_model,
        rejected=rejected[0] if row.rejected else None,
        negatives=rejected[1:],
    )


def _view_images(
    both: tuple[ImageRow, ImageRow], texts: card_texts.Texts, pictures: PictureFolder
) -> tuple[ImageView, ImageView]:
    """Return both images, each with the masks of the objects that differ in the other."""
    graphs = _same_world(both)
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1]) if graphs else ()
    changed = {name for change in changes for name in (change.object_id, *change.object_ids)}
    views: list[ImageView] = []
    for row, other, side in zip(both, reversed(both), SIDES, strict=True):
        picture = pictures.add_image(row)
        masks = [(one.mask, CHANGED) for one in row.graph.objects if one.id in changed] if row.graph else []
        overlay = pictures.add_masks(make_key("changed", row.key, other.key), masks, over=picture)
        views.append(
            ImageView(
                picture=picture,
                name=row.name,
                side=side,
                caption=card_texts.find_caption(row, texts),
                changed=overlay,
                size=(row.width, row.height),
            )
        )
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


def gather_preferences(tables: Tables, pictures: PictureFolder, decisions: Decisions = UNDECIDED) -> list[SingleView]:
    """Return one preference of each of a few images; none if the dataset has pairs."""
    name = next((name for name in PREFERENCES if tables.has(name)), "")
    if tables.has("pairs") or not name:
        return []
    # Keys are hashes, so the first ones are a fixed random sample.
    query = f"SELECT DISTINCT subject FROM {name} ORDER BY 1 LIMIT {SINGLES}"
    found = [key for (key,) in tables.ask(query, {name: ["subject"]})]
    rows = {row.subject: row for row in tables.find(name, PreferenceRow, found, without=card_texts.SHOWN_IMAGES)}
    shown = [(rows[key].key, key) for key in found]
    return gather_singles(tables, name, shown, pictures=pictures, first_number=1, decisions=decisions)


def gather_singles(
    tables: Tables, name: str, found: Sequence[tuple[str, str]], *, pictures: PictureFolder, first_number: int,
    decisions: Decisions = UNDECIDED,
) -> list[SingleView]:  # fmt: skip
    """Return preferences of a table, by keys and subjects, in the given order."""
    subjects = [subject for _, subject in found]
    rows = {row.key: row for row in tables.find(name, PreferenceRow, subjects, without=card_texts.SHOWN_IMAGES)}
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    # A preference with a rejected image was made from the source's, which was scored.
    own = tables.has("preferences")
    brought = {row.key: row.source_key if own else row.key for row in rows.values()}
    steps = Steps(tables, list(brought.values()), images=subjects)
    views: list[SingleView] = []
    for row in (rows[key] for key, subject in found if subject in images):
        image = images[row.subject]
        picture = pictures.add_image(image)
        views.append(
            SingleView(
                number=first_number + len(views),
                key=row.key,
                picture=picture,
                name=image.name,
                preference=view_preference(row),
                removals=view_removals(brought[row.key], [(image, picture)], steps, pictures),
                decision=decisions.about(row),
            )
        )
    return views


STYLES = (LOOKS / "report.css", HERE / "pairs.css")
KINDS = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}
THUMBNAIL, QUALITY = 96, 80
"""Longest side in pixels and JPEG quality of a small picture."""
LONGEST = 2_000


def render_card(tables: Tables, table: str, row: Row) -> str:
    """Return the page of a table's row: of a pair with everything about it, else of its fields and image."""
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pictures = PictureFolder(Path(place))
        told: dict[str, Any] = {"pair": None, "single": None, "worded": tables.has("differences")}
        if tables.find("pairs", PairRow, [row.subject]):
            (told["pair"],) = gather_pairs(tables, [row.subject], pictures=pictures, first_number=1, page="")
        elif isinstance(row, PreferenceRow):
            found = [(row.key, row.subject)]
            (told["single"],) = gather_singles(tables, table, found, pictures=pictures, first_number=1)
        else:
            images = tables.find("images", ImageRow, [row.subject])
            told["images"] = [(pictures.add_image(image), image.name) for image in images]
            values = [(one.name, getattr(row, one.name)) for one in fields(row)]
            filled = [one for one in values if one[1] not in ("", (), None) and not isinstance(one[1], bytes)]
            told["fields"] = [(name, str(value)[:LONGEST]) for name, value in filled]
        looks = "\n".join(path.read_text() for path in STYLES)
        page = make_card_environment().get_template("card.html.j2").render(**told, table=table, row=row, looks=looks)
        for picture in pictures.written.values():
            path = pictures.root / picture.src
            page = page.replace(f'src="{picture.src}"', f'src="{_data_url(path.read_bytes(), KINDS[path.suffix])}"')
        return page


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """Displayed row of a table: small pictures, then cells."""

    pictures: Sequence[str]
    cells: Sequence[str]


def render_rows(name: str, columns: Sequence[str], rows: Sequence[ShownRow], *, total: int) -> str:
    """Return the rows as escaped HTML."""
    template = make_card_environment().get_template("rows.html.j2")
    return template.render(name=name, columns=columns, rows=rows, total=total)


def small_picture(data: bytes) -> str:
    """Return the data URL of an encoded image's thumbnail."""
    image = Image.fromarray(decode_rgb(data))
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY)
    return _data_url(sink.getvalue(), "jpeg")
