"""Withhold rejected texts that are right elsewhere: beside the rejected image, or of another pair.

Reads all pairs with their texts at once, and the scene graphs of a shard's pairs; writes
``WithheldRow``. Only texts with claims are withheld, those of scenes and planted pairs: what people
and models wrote is rejected for other pairs on purpose, by retrieval. A rejected text has to stay
false when a removal takes the place of an image, but for crops, which no graph describes, and for
images that the prior expects, beside texts that it expects. And no text that is chosen in training
is rejected anywhere: compared word for word, as preferences word them. Other methods' texts then
come first; a pair that has no other is left without one.

All pairs with claims are worded once for each shard. Memory: the text tables, as Arrow and without
texts of unknown claims, a digest of each chosen text, and the shard's scene graphs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.claims import CLAIMS, Graphs, may_hold
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import (
    MAKERS,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    ExpectedRow,
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
from pairwright.tasks.preferences.word_texts import UNKNOWN_CLAIMS, select_false, word_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.say_claims import surely_said

TRUE_OF_REJECTED = "true of the rejected image"
CHOSEN_ELSEWHERE = "chosen of another pair in training"
SPLIT = ("subject", "split")
GROUP = ("subject", "group")
SEVERAL = ""
"""Owner of a text that several pairs choose."""
Owners = Mapping[bytes, str]
"""The pair that chooses each text in training, by the text's digest."""
R = TypeVar("R", bound=Row)


class RowsByPair(Generic[R]):
    """Rows of a table by the pair that they are about."""

    def __init__(self, table: pa.Table, row_type: type[R]) -> None:
        """Sort the rows by pair and key."""
        self.row_type = row_type
        self.table = table.sort_by([("subject", "ascending"), ("key", "ascending")])
        self.pair_keys: list[str] = self.table["subject"].to_pylist()

    def rows_of(self, pair_key: str) -> tuple[R, ...]:
        """Return the rows about a pair."""
        start = bisect_left(self.pair_keys, pair_key)
        stop = bisect_right(self.pair_keys, pair_key)
        return tuple(from_table(self.table.slice(start, stop - start), self.row_type))


class PairTexts:
    """Texts of pairs whose chosen texts have claims, worded as their preferences have them."""

    def __init__(
        self,
        config: PreferencesConfig,
        groups: pa.Table,
        differences: pa.Table | None,
        judged_rejected: pa.Table | None,
        texts: Mapping[str, pa.Table],
    ) -> None:
        chosen = _or_empty(differences, DifferenceRow)
        with_claims = chosen.filter(~pc.field("claims").isin(UNKNOWN_CLAIMS))
        described = pa.array(with_claims["subject"].to_pylist(), pa.string())
        is_described = pc.field("subject").isin(described)
        self.config = config
        self.differences = RowsByPair(with_claims, DifferenceRow)
        self.rejected: dict[str, RowsByPair[RejectedTextRow]] = {}
        for maker, table in texts.items():
            self.rejected[maker] = RowsByPair(table.filter(is_described), RejectedTextRow)
        checks = _or_empty(judged_rejected, CheckRow)
        self.checks = RowsByPair(checks.filter(is_described), CheckRow)
        self.groups = dict(zip(*(groups[name].to_pylist() for name in GROUP), strict=True))

    def word_pair(self, pair: PairRow) -> tuple[list[str], list[RejectedTextRow]]:
        """Return a pair's chosen and rejected texts."""
        by_maker: dict[str, dict[str, tuple[RejectedTextRow, ...]]] = {}
        for maker, rows in self.rejected.items():
            by_maker[maker] = {pair.key: rows.rows_of(pair.key)}
        false_texts = select_false(pair.key, by_maker, self.checks.rows_of(pair.key))
        chosen: list[str] = []
        rejected: list[RejectedTextRow] = []
        for difference in self.differences.rows_of(pair.key):
            _, text, others = word_texts(
                pair,
                difference,
                [text for text in false_texts if text.description == difference.key],
                groups=(self.groups.get(pair.first, ""), self.groups.get(pair.second, "")),
                config=self.config,
            )
            chosen.append(text.text)
            rejected.extend(others)
        return chosen, rejected

    def find_owners(self, pairs: pa.Table, train_keys: Sequence[str]) -> Owners:
        """Return which pair of the training split chooses each text."""
        is_described = pc.field("key").isin(pa.array(self.differences.pair_keys, pa.string()))
        is_training = pc.field("key").isin(pa.array(train_keys, pa.string()))
        owners: dict[bytes, str] = {}
        for pair in from_table(pairs.filter(is_described & is_training), PairRow):
            chosen, _ = self.word_pair(pair)
            for text in chosen:
                digest = _digest(text)
                owner = owners.setdefault(digest, pair.key)
                if owner != pair.key:
                    owners[digest] = SEVERAL
        return owners


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
    expected: Mapping[str, ExpectedRow] = NO_ROWS,
    **texts: pa.Table,
) -> Iterator[WithheldRow]:
    """Yield which rejected texts each pair of the shard does without, and why."""
    pair_texts = PairTexts(config, groups, differences, judged_rejected, texts)
    train = splits.filter(pc.field("split") == "train")
    owners = pair_texts.find_owners(everything, train["subject"].to_pylist())
    for row in rows:
        _, rejected = pair_texts.word_pair(row)
        graphs = None
        if row.key not in expected:
            graphs = _show_rejected(row, scenes, rejections.get(row.key), removals)
        reasons: dict[str, str] = {}
        for text in rejected:
            if text.claims in UNKNOWN_CLAIMS:
                continue
            if graphs and _may_be_true(text, graphs):
                reasons[text.key] = TRUE_OF_REJECTED
            elif owners.get(_digest(text.text), row.key) != row.key:
                reasons[text.key] = CHOSEN_ELSEWHERE
        yield WithheldRow(
            key=make_key("withheld", row.key, *reasons, *reasons.values()),
            source_key=row.key,
            subject=row.key,
            texts=tuple(reasons),
            reasons=tuple(reasons.values()),
        )


def _or_empty(table: pa.Table | None, row_type: type[Row]) -> pa.Table:
    return schema_of(row_type).empty_table() if table is None else table


def _digest(text: str) -> bytes:
    return blake2b(plain_text(text).encode(), digest_size=16).digest()


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
    claims = CLAIMS.validate_json(text.claims)
    return may_hold(surely_said(claims), graphs)


def _without(graph: SceneGraph, object_ids: Sequence[str]) -> SceneGraph:
    remaining = tuple(obj for obj in graph.objects if obj.id not in object_ids)
    return graph.model_copy(update={"objects": remaining})


def _all_but(row_type: type[Row], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in schema_of(row_type).names if name not in names)


STAGE = Stage(
    name="withheld",
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
        Uses(table="expected", row=ExpectedRow, on="key", without=("patch",), counts=True),
    ),
    rows_per_shard=5000,
)
