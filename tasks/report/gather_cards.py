"""Gather what was made about a few pairs, or preferences about one image, with their pictures, ready to be shown.

Reads the rows about what is shown and its images only; those of one call are in memory together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pairwright.schemas.claims import content_changes
from pairwright.schemas.decisions import UNDECIDED, Decision, Decisions
from pairwright.schemas.rows import ImageRow, Negative, PairRow, PreferenceRow, SplitRow, make_key
from pairwright.schemas.scene import Mask, SceneChange, SceneGraph
from pairwright.tasks.report.card_removals import RemovalsView, find_steps, view_removals
from pairwright.tasks.report.card_texts import (
    CaptionView,
    ComparisonView,
    DifferenceView,
    QuestionView,
    RejectedView,
    Segment,
    Texts,
    author_of,
    find_texts,
    mark_words,
    view_candidates,
    view_caption,
    view_comparison,
    view_difference,
    view_questions,
    view_rejected,
    view_unused,
)
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.write_images import CHANGED, SIDES, Picture, PictureFolder

SAME_SHAPE = 0.02
"""By how much of their ratio the shapes of two pictures may differ: sides are whole pixels."""
SINGLES = 12
"""Preferences about one image that a report shows."""
SHOWS = ("images", "rejected_images")
Both = tuple[ImageRow, ImageRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """One image of a pair."""

    picture: Picture
    name: str
    side: str
    caption: CaptionView | None
    changed: str
    """Overlay of what is known to be changed; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """Map of where the two images of a pair differ."""

    src: str
    """Overlay of both pictures; empty: they differ all over, or nowhere."""
    share: float
    """Of the picture, how much differs visibly."""
    stretched: bool
    """Whether the second image was brought to the first's shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceView:
    """Chosen text and everything that is rejected."""

    key: str
    prompt: str
    chosen: Sequence[Segment]
    chosen_model: str
    rejected: RejectedView | None
    negatives: Sequence[RejectedView]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Pair with all that was made about it."""

    number: int
    key: str
    page: str
    images: tuple[ImageView, ImageView]
    split: str
    origin: str
    similarity: float
    similarities: Sequence[tuple[str, float]]
    same_group: bool | None
    """Whether both images are of one group; ``None``: not known."""
    changes: Sequence[tuple[str, str]]
    """Side and words of each change that is known."""
    given: Sequence[tuple[str, str]]
    """What the source brought about the pair: what it is, and its words."""
    difference: DifferenceView | None
    candidates: Sequence[DifferenceView]
    """Descriptions that were not taken; those that failed no check first."""
    no_change: bool
    preference: PreferenceView | None
    removals: RemovalsView | None
    unused: Sequence[RejectedView]
    """Rejected texts that are in no preference."""
    comparison: ComparisonView | None
    questions: Sequence[QuestionView]
    heat: HeatView
    decision: Decision | None
    """What somebody decided about it."""

    @property
    def decided(self) -> str:
        """Return the key that a decision is about: the preference's; without one, the pair's."""
        return self.preference.key if self.preference else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleView:
    """Preference about one image, which a source brought: with them there are no pairs to show."""

    number: int
    key: str
    picture: Picture
    name: str
    preference: PreferenceView
    removals: RemovalsView | None
    decision: Decision | None


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
    """Yield the pairs in the given order, with what was decided about each; ``unpaired`` are none of the dataset's."""
    pairs = {row.key: row for row in tables.find("pairs", PairRow, keys)} | dict(unpaired)
    shown = [key for pair in pairs.values() for key in (pair.first, pair.second)]
    images = {row.key: row for row in tables.find("images", ImageRow, shown)}
    splits = {row.subject: row.split for row in tables.find("splits", SplitRow, list(pairs))}
    steps, texts = find_steps(tables, list(pairs), images=shown), find_texts(tables, list(pairs.values()))
    for number, pair in enumerate((pairs[key] for key in keys), first_number):
        both = (images[pair.first], images[pair.second])
        difference, preference = texts.differences.get(pair.key), texts.preferences.get(pair.key)
        graphs = _graphs(both)
        first, second = (
            ImageView(
                picture=(picture := pictures.add_image(row)),
                name=row.name,
                side=SIDES[side],
                caption=view_caption(row, texts),
                changed=_draw_changed(both, side, graphs, picture, pictures) if graphs else "",
            )
            for side, row in enumerate(both)
        )
        yield PairView(
            number=number,
            key=pair.key,
            page=page,
            images=(first, second),
            split=splits.get(pair.key, ""),
            origin=pair.origin,
            similarity=pair.similarity,
            similarities=list(zip(pair.embedders, pair.similarities, strict=True)),
            same_group=both[0].group == both[1].group if both[0].group and both[1].group else None,
            changes=list(_changes(graphs)) if graphs else [],
            given=list(_given(pair)),
            difference=view_difference(difference, texts, chosen=difference) if difference else None,
            candidates=view_candidates(pair.key, texts),
            no_change=bool(difference and difference.no_change),
            preference=view_preference(preference, texts) if preference else None,
            removals=view_removals(pair.key, [(both[0], first.picture), (both[1], second.picture)], steps, pictures),
            unused=view_unused(pair.key, texts),
            comparison=view_comparison(pair.key, texts),
            questions=view_questions(pair.key, texts),
            heat=_heat(pair.key, first.picture, second.picture, pictures=pictures),
            decision=decisions.about(preference) if preference else decisions.by_key.get(pair.key),
        )


def view_preference(row: PreferenceRow, texts: Texts | None = None) -> PreferenceView:
    """Return a preference, its rejected texts marked where they differ from the chosen one."""
    first = Negative(text=row.rejected, maker=row.rejected_maker, note=row.rejected_note, score=0.0)
    shown = [*([first] if row.rejected else []), *row.negatives]
    rejected = [
        view_rejected(
            one,
            row.chosen,
            author_of(row.subject, texts, text=one.text) if texts else None,
            scored=one is not first,
        )
        for one in shown
    ]
    return PreferenceView(
        key=row.key,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=mark_words(row.chosen, row.rejected) if row.rejected else [Segment(row.chosen, differs=False)],
        chosen_model=row.chosen_model,
        rejected=rejected[0] if row.rejected else None,
        negatives=rejected[bool(row.rejected) :],
    )


def _heat(pair: str, first: Picture, second: Picture, *, pictures: PictureFolder) -> HeatView:
    src, share = pictures.add_heat(make_key("heat", pair), first, second)
    shapes = [picture.width / picture.height for picture in (first, second)]
    return HeatView(src=src, share=share, stretched=abs(shapes[0] / shapes[1] - 1) > SAME_SHAPE)


def _graphs(both: Both) -> tuple[SceneGraph, SceneGraph] | None:
    """Return the scene graphs of two photographs of one world."""
    first, second = both[0].graph, both[1].graph
    return (first, second) if first and second and first.world == second.world else None


def _draw_changed(
    both: Both, side: int, graphs: tuple[SceneGraph, SceneGraph], over: Picture, pictures: PictureFolder
) -> str:
    """Draw the masks of the objects whose state is not the same in both photographs."""
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1])
    names = {name for change in changes for name in (change.object_id, *change.object_ids) if name}
    masks: list[Mask] = [thing.mask for thing in graphs[side].objects if thing.id in names]
    key = make_key("changed", both[side].key, both[1 - side].key)
    return pictures.add_masks(key, masks, over=over, colour=CHANGED)


def _changes(graphs: tuple[SceneGraph, SceneGraph]) -> Iterator[tuple[str, str]]:
    """Yield what is known of how each photograph differs from its world's base, where the other does not."""
    for side, graph in enumerate(graphs):
        for change in graph.changes:
            if change not in graphs[1 - side].changes:
                yield SIDES[side], _words(change)


def _words(change: SceneChange) -> str:
    values = " → ".join(value for value in (change.before, change.after) if value)
    return f"{change.type}: {values}" if values else change.type


def _given(pair: PairRow) -> Iterator[tuple[str, str]]:
    """Yield what the source brought about the pair, which served models may have been told."""
    for text in pair.human_differences or ():
        yield "what people wrote", text
    if pair.instruction:
        yield "edit instruction", pair.instruction
    if pair.change_types:
        yield "kinds of change", ", ".join(pair.change_types)


def gather_preferences(tables: Tables, pictures: PictureFolder, decisions: Decisions = UNDECIDED) -> list[SingleView]:
    """Return one preference of each of a few images; none where the dataset has pairs."""
    name = next((name for name in ("preferences", "given_preferences") if tables.has(name)), "")
    if tables.has("pairs") or not name:
        return []
    # Keys are hashes, so the first of them are a mixed sample, and the same one each time.
    with tables.database(**{name: ["subject"]}) as database:
        found = database.execute(f"SELECT DISTINCT subject FROM {name} ORDER BY 1 LIMIT {SINGLES}").fetchall()
    rows = {row.subject: row for row in tables.find(name, PreferenceRow, [key for (key,) in found], without=SHOWS)}
    shown = [(rows[key].key, key) for (key,) in found]
    return gather_singles(tables, name, shown, pictures=pictures, first_number=1, decisions=decisions)


def gather_singles(
    tables: Tables, name: str, found: Sequence[tuple[str, str]], *, pictures: PictureFolder, first_number: int,
    decisions: Decisions = UNDECIDED,
) -> list[SingleView]:  # fmt: skip
    """Return some preferences of a table, by their keys and what they are about, in the given order."""
    subjects = [subject for _, subject in found]
    rows = {row.key: row for row in tables.find(name, PreferenceRow, subjects, without=SHOWS)}
    images = {row.key: row for row in tables.find("images", ImageRow, subjects)}
    # A preference with its rejected image was made of the one that the source brought, which is what was scored.
    own = tables.has("preferences")
    brought = {row.key: row.source_key if own else row.key for row in rows.values()}
    steps = find_steps(tables, list(brought.values()), images=subjects)
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
