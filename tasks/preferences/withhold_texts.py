"""Withhold rejected texts that are right elsewhere: beside the rejected image, or of another pair.

Reads all pairs with their texts at once, and the scene graphs of a shard's pairs; writes
``WithheldRow``. A rejected text has to stay false when a removal takes the place of an image:
decided where graphs are known, not for crops. And no text that is chosen in training is rejected
anywhere: compared word for word, as preferences word them. Other methods' texts then come first; a
pair that has no other is left without a rejected text.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import pyarrow as pa

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.claims import CLAIMS, Graphs, may_hold
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import (
    MAKERS,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    ImageRow,
    PairRow,
    RejectedTextRow,
    RejectionRow,
    RemovalRow,
    Row,
    SplitRow,
    WithheldRow,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.preferences.word_texts import select_false, word_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.say_claims import surely_said

TRUE_OF_REJECTED = "true of the rejected image"
CHOSEN_ELSEWHERE = "chosen of another pair in training"
R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class WordedTexts:
    """Texts of one pair as its preferences have them."""

    chosen: tuple[str, ...]
    rejected: tuple[RejectedTextRow, ...]


def withhold_texts(
    rows: Sequence[PairRow],
    config: PreferencesConfig,
    *,
    everything: pa.Table,
    groups: pa.Table,
    splits: pa.Table,
    differences: pa.Table | None = None,
    judged_rejected: pa.Table | None = None,
    scenes: Mapping[str, ImageRow] = NO_ROWS,
    rejections: Mapping[str, RejectionRow] = NO_ROWS,
    removals: Mapping[str, RemovalRow] = NO_ROWS,
    **texts: pa.Table,
) -> Iterator[WithheldRow]:
    """Yield which rejected texts each pair of the shard does without, and why."""
    worded = _word_all(everything, groups, config, differences, judged_rejected, texts)
    split_names = dict(zip(*(splits.column(name).to_pylist() for name in SPLIT), strict=True))
    owners = defaultdict[str, set[str]](set)
    for key, pair_texts in worded.items():
        if split_names.get(key) == "train":
            for text in pair_texts.chosen:
                owners[plain_text(text)].add(key)
    for row in rows:
        shown = _show_rejected(row, scenes, rejections.get(row.key), removals)
        reasons: dict[str, str] = {}
        for text in worded[row.key].rejected:
            if shown and _may_be_true(text, shown):
                reasons[text.key] = TRUE_OF_REJECTED
            elif owners.get(plain_text(text.text), set()) - {row.key}:
                reasons[text.key] = CHOSEN_ELSEWHERE
        yield WithheldRow(
            key=make_key("withheld", row.key, *reasons, *reasons.values()),
            source_key=row.key,
            subject=row.key,
            texts=tuple(reasons),
            reasons=tuple(reasons.values()),
        )


def _word_all(
    everything: pa.Table,
    groups: pa.Table,
    config: PreferencesConfig,
    differences: pa.Table | None,
    judged_rejected: pa.Table | None,
    texts: Mapping[str, pa.Table],
) -> dict[str, WordedTexts]:
    """Return the texts of every pair, worded as in its preferences."""
    by_image = dict(zip(*(groups.column(name).to_pylist() for name in GROUP), strict=True))
    descriptions = _by_subject(differences, DifferenceRow)
    checks = _by_subject(judged_rejected, CheckRow)
    rejected = {maker: _by_subject(table, RejectedTextRow) for maker, table in texts.items()}
    worded: dict[str, WordedTexts] = {}
    for pair in from_table(everything, PairRow):
        false_texts = select_false(pair.key, rejected, checks.get(pair.key, ()))
        chosen: list[str] = []
        reworded: list[RejectedTextRow] = []
        for difference in descriptions.get(pair.key, ()):
            _, text, others = word_texts(
                pair,
                difference,
                [text for text in false_texts if text.description == difference.key],
                groups=(by_image.get(pair.first, ""), by_image.get(pair.second, "")),
                config=config,
            )
            chosen.append(text.text)
            reworded.extend(others)
        worded[pair.key] = WordedTexts(tuple(chosen), tuple(reworded))
    return worded


def _by_subject(table: pa.Table | None, row_type: type[R]) -> dict[str, tuple[R, ...]]:
    if table is None:
        return {}
    rows = defaultdict[str, list[R]](list)
    for row in sorted(from_table(table, row_type), key=attrgetter("key")):
        rows[row.subject].append(row)
    return {subject: tuple(subject_rows) for subject, subject_rows in rows.items()}


def _show_rejected(
    pair: PairRow,
    scenes: Mapping[str, ImageRow],
    rejection: RejectionRow | None,
    removals: Mapping[str, RemovalRow],
) -> Graphs | None:
    """Return the graphs of a pair with its rejected image; ``None``: not known, or none."""
    if rejection is None or rejection.maker != "removal":
        return None
    removal = removals.get(rejection.element)
    first = scenes[pair.first].graph
    second = scenes[pair.second].graph
    if removal is None or first is None or second is None:
        return None
    if rejection.side == 0:
        return _without(first, removal.object_ids), second
    return first, _without(second, removal.object_ids)


def _may_be_true(text: RejectedTextRow, graphs: Graphs) -> bool:
    """Return whether a text with known claims may pass for true of two photographs."""
    claims = CLAIMS.validate_json(text.claims or "[]")
    return bool(claims) and may_hold(surely_said(claims), graphs)


def _without(graph: SceneGraph, object_ids: Sequence[str]) -> SceneGraph:
    remaining = tuple(obj for obj in graph.objects if obj.id not in object_ids)
    return graph.model_copy(update={"objects": remaining})


SPLIT = ("subject", "split")
GROUP = ("subject", "group")


def _all_but(row_type: type[Row], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in schema_of(row_type).names if name not in names)


STAGE = Stage(
    name="withheld",
    version=1,
    group="preferences",
    reads={"pairs": PairRow},
    writes=WithheldRow,
    function=withhold_texts,
    config=lambda profile: profile.complete(profile.preferences),
    prompts=("answer_sentences",),
    uses=(
        Uses(table="pairs", row=PairRow, kind="table", name="everything"),
        Uses(
            table="images",
            row=ImageRow,
            kind="table",
            without=_all_but(ImageRow, GROUP),
            name="groups",
        ),
        Uses(table="splits", row=SplitRow, kind="table", without=_all_but(SplitRow, SPLIT)),
        Uses(table="differences", row=DifferenceRow, kind="table", without=("served",)),
        *(
            Uses(table=maker, row=RejectedTextRow, kind="table", without=("served",))
            for maker in MAKERS
        ),
        Uses(table="judged_rejected", row=CheckRow, kind="table", without=("text", "served")),
        Uses(
            table="images",
            row=ImageRow,
            on="about",
            without=("image", "captions"),
            name="scenes",
        ),
        Uses(table="rejections", row=RejectionRow, on="key", counts=True),
        Uses(
            table="removals", row=RemovalRow, on="about", of="rejections", without=("mask", "patch")
        ),
    ),
    rows_per_shard=1_000_000,
)
