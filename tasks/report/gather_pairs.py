"""Gather what was made about a few pairs, write their pictures, and return them ready to be shown.

Reads the rows about the given pairs and their images only; those of one call are in memory together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pairwright.schemas.claims import content_changes
from pairwright.schemas.decisions import UNDECIDED, Decisions
from pairwright.schemas.rows import ImageRow, Negative, PairRow, PreferenceRow, SplitRow, make_key
from pairwright.schemas.scene import Mask, SceneChange, SceneGraph
from pairwright.tasks.report.gather_removals import Steps, find_steps, view_removals
from pairwright.tasks.report.gather_texts import (
    Texts,
    author_of,
    find_texts,
    view_candidates,
    view_caption,
    view_comparison,
    view_difference,
    view_questions,
    view_unused,
)
from pairwright.tasks.report.mark_words import Segment, mark_words
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.views import (
    SIDES,
    HeatView,
    ImageView,
    PairView,
    PreferenceView,
    RejectedView,
)
from pairwright.tasks.report.write_images import CHANGED, Picture, PictureFolder

SAME_SHAPE = 0.02
"""By how much of their ratio the shapes of two pictures may differ: sides are whole pixels."""

Both = tuple[ImageRow, ImageRow]


@dataclass(frozen=True)
class Found:
    """Hold the rows about some pairs by what they are about."""

    images: dict[str, ImageRow]
    splits: dict[str, SplitRow]
    steps: Steps
    texts: Texts


def gather_pairs(
    tables: Tables,
    keys: Sequence[str],
    *,
    pictures: PictureFolder,
    first_number: int,
    page: str,
    decisions: Decisions = UNDECIDED,
) -> Iterator[PairView]:
    """Yield the pairs in the given order, with what was decided about each."""
    pairs = {row.key: row for row in tables.find("pairs", PairRow, keys)}
    found = find_rows(tables, list(pairs.values()))
    for number, key in enumerate(keys, first_number):
        pair = pairs[key]
        view = _view(pair, found, pictures=pictures, number=number, page=page)
        preference = found.texts.preferences.get(key)
        yield replace(view, decision=decisions.about(preference) if preference else decisions.by_key.get(key))


def find_rows(tables: Tables, pairs: Sequence[PairRow]) -> Found:
    """Read everything about the pairs."""
    keys = [pair.key for pair in pairs]
    images = [key for pair in pairs for key in (pair.first, pair.second)]
    return Found(
        images={row.key: row for row in tables.find("images", ImageRow, images)},
        splits={row.subject: row for row in tables.find("splits", SplitRow, keys)},
        steps=find_steps(tables, keys, images=images),
        texts=find_texts(tables, pairs),
    )


def _view(pair: PairRow, found: Found, *, pictures: PictureFolder, number: int, page: str) -> PairView:
    both = (found.images[pair.first], found.images[pair.second])
    texts, split = found.texts, found.splits.get(pair.key)
    difference, preference = texts.differences.get(pair.key), texts.preferences.get(pair.key)
    first, second = (_image(both, side, found=found, pictures=pictures) for side in (0, 1))
    return PairView(
        number=number,
        key=pair.key,
        page=page,
        images=(first, second),
        split=split.split if split else "",
        origin=pair.origin,
        similarity=pair.similarity,
        similarities=tuple(zip(pair.embedders, pair.similarities, strict=True)),
        same_group=both[0].group == both[1].group if both[0].group and both[1].group else None,
        changes=tuple(_changes(both)),
        given=tuple(_given(pair)),
        difference=view_difference(pair.key, texts),
        candidates=view_candidates(pair.key, texts),
        no_change=bool(difference and difference.no_change),
        preference=_preference(preference, found) if preference else None,
        removals=view_removals(
            pair.key, [*zip(both, (first.picture, second.picture), strict=True)], found.steps, pictures
        ),
        unused=view_unused(pair.key, texts),
        comparison=view_comparison(pair.key, texts),
        questions=view_questions(pair.key, texts),
        heat=_heat(pair.key, first.picture, second.picture, pictures=pictures),
    )


def _heat(pair: str, first: Picture, second: Picture, *, pictures: PictureFolder) -> HeatView:
    src, share = pictures.add_heat(make_key("heat", pair), first, second)
    shapes = [picture.width / picture.height for picture in (first, second)]
    return HeatView(src=src, share=share, stretched=abs(shapes[0] / shapes[1] - 1) > SAME_SHAPE)


def _image(both: Both, side: int, *, found: Found, pictures: PictureFolder) -> ImageView:
    row = both[side]
    picture = pictures.add_image(row)
    key = make_key("changed", both[side].key, both[1 - side].key)
    return ImageView(
        picture=picture,
        name=row.name,
        side=SIDES[side],
        caption=view_caption(row, found.texts),
        changed=pictures.add_masks(key, _changed_masks(both, side), over=picture, colour=CHANGED),
    )


def _graphs(both: Both) -> tuple[SceneGraph, SceneGraph] | None:
    """Return the scene graphs of two photographs of one world."""
    first, second = both[0].graph, both[1].graph
    return (first, second) if first and second and first.world == second.world else None


def _changed_masks(both: Both, side: int) -> list[Mask]:
    """Return the masks of the objects whose state is not the same in both photographs."""
    graphs = _graphs(both)
    if not graphs:
        return []
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1])
    names = {name for change in changes for name in (change.object_id, *change.object_ids) if name}
    return [thing.mask for thing in graphs[side].objects if thing.id in names]


def _changes(both: Both) -> Iterator[tuple[str, str]]:
    """Yield what is known of how each photograph differs from its world's base, where the other does not."""
    graphs = _graphs(both)
    if graphs:
        for side, graph in enumerate(graphs):
            for change in graph.changes:
                if change not in graphs[1 - side].changes:
                    yield SIDES[side], _words(change)


def _given(pair: PairRow) -> Iterator[tuple[str, str]]:
    """Yield what the source brought about the pair, which served models may have been told."""
    for text in pair.human_differences or ():
        yield "what people wrote", text
    if pair.instruction:
        yield "edit instruction", pair.instruction
    if pair.change_types:
        yield "kinds of change", ", ".join(pair.change_types)


def _words(change: SceneChange) -> str:
    values = " → ".join(value for value in (change.before, change.after) if value)
    return f"{change.type}: {values}" if values else change.type


def _preference(row: PreferenceRow, found: Found) -> PreferenceView:
    first = Negative(text=row.rejected, maker=row.rejected_maker, note=row.rejected_note, score=0.0)
    return PreferenceView(
        key=row.key,
        prompt="\n".join(turn.text for turn in row.prompt),
        chosen=mark_words(row.chosen, row.rejected) if row.rejected else (Segment(row.chosen, differs=False),),
        chosen_model=row.chosen_model,
        rejected=_rejected(row, found, first, scored=False) if row.rejected else None,
        negatives=tuple(_rejected(row, found, one) for one in row.negatives),
    )


def _rejected(row: PreferenceRow, found: Found, one: Negative, *, scored: bool = True) -> RejectedView:
    return RejectedView(
        maker=one.maker,
        note=one.note,
        score=one.score if scored else None,
        segments=mark_words(one.text, row.chosen),
        by=author_of(row.subject, found.texts, text=one.text),
    )
