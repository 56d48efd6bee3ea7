"""Unite the pairs of all sources, without excluded or overused images.

Pairs come from the source, from similarity, keypoints and nouns. A pair in several tables counts
once, the source's own first. Limits (ours): on the pairs of one image, so that hubs do not fill a
dataset, and on the pairs of one group of the source (a video, a folder), so that one long sequence
does not. Pairs are taken by falling similarity, ties by key, while both images and their groups are
below their limits. A mined pair whose images were aligned, or cut into tiles, is then that of the
parts (``alignments``).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from sys import intern

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairwright.schemas.arrow import concat_parts, no_rows, schema_of
from pairwright.schemas.config import UnitingConfig
from pairwright.schemas.rows import (
    AdmittedRow,
    AlignmentRow,
    Dropped,
    Failed,
    ImageRow,
    PairRow,
    Row,
    group_of,
    make_key,
)
from pairwright.tasks.store.stage import Stage, Uses

EXCLUDED = "an image of the pair is excluded or has no vector"
UNALIGNED = "the pair is not aligned yet"
MINED = ("mined", "matched", "noun-overlap")
HUB = "image in too many pairs"
FULL = "group in too many pairs"
COLUMNS = ("key", "first", "second", "similarity")
NONE = no_rows(schema_of(PairRow)).select(COLUMNS)
NAMES = ("key", "name", "group")
NO_IMAGES = no_rows(schema_of(ImageRow)).select(NAMES)


def unite_pairs(
    rows: Sequence[PairRow],
    config: UnitingConfig,
    *,
    admitted: Mapping[str, AdmittedRow] | None = None,
    alignments: Mapping[str, Sequence[AlignmentRow]] | None = None,
    given: pa.Table = NONE,
    similar: pa.Table = NONE,
    matched: pa.Table = NONE,
    by_nouns: pa.Table = NONE,
    all_admitted: pa.Table | None = None,
    all_images: pa.Table = NO_IMAGES,
) -> Iterator[PairRow | Dropped | Failed]:
    """Yield the kept pairs of the shard.

    ``admitted`` holds the admitted images of these pairs, ``alignments`` the parts that mined ones
    are compared by. With a limit, ``given``, ``similar``,
    ``matched`` and ``by_nouns`` are ``COLUMNS`` of every pair, and ``all_admitted`` the ``key`` of
    every admitted image (``None``: all are). With a limit on groups, ``all_images`` are ``NAMES``
    of every image.
    """
    refused: dict[str, str] = {}
    if config.is_capped:
        all_pairs = _join_tables((given, similar, matched, by_nouns), all_admitted)
        refused = _refuse(all_pairs, config, all_images)
    for pair in rows:
        excluded = _find_excluded(pair, admitted)
        reason = refused.get(pair.key)
        if excluded:
            detail = " and ".join(excluded)
            yield Dropped(source_key=pair.key, reason=EXCLUDED, detail=detail)
        elif reason:
            detail = f"similarity {pair.similarity:.4f}"
            yield Dropped(source_key=pair.key, reason=reason, detail=detail)
        elif alignments is None or pair.origin not in MINED:
            yield replace(pair, source_key=pair.key)
        else:
            yield from _show_parts(pair, alignments.get(pair.key, ()))


def _show_parts(
    pair: PairRow, alignments: Sequence[AlignmentRow]
) -> Iterator[PairRow | Dropped | Failed]:
    """Yield a mined pair with the parts of its images that are compared."""
    if not alignments:
        yield Failed(source_key=pair.key, reason=UNALIGNED)
    for row in alignments:
        if not row.shown:
            yield Dropped(source_key=pair.key, reason=row.why)
            continue
        first, second = row.shown
        key = pair.key
        if row.window:
            key = make_key("part", pair.key, *row.window, *row.transform)
        yield replace(
            pair,
            key=key,
            source_key=pair.key,
            subject=key,
            first=first,
            second=second,
            window=row.window,
            transform=row.transform,
        )


def _join_tables(tables: Sequence[pa.Table], all_admitted: pa.Table | None) -> pa.Table:
    """Return the pairs of all tables whose images are admitted (``None``: all are)."""
    pairs = concat_parts([table.select(COLUMNS) for table in tables])
    if all_admitted is None:
        return pairs
    images = all_admitted.column("key")
    has_first = pc.field("first").isin(images)
    has_second = pc.field("second").isin(images)
    return pairs.filter(has_first & has_second)


def _find_excluded(
    pair: PairRow,
    admitted: Mapping[str, AdmittedRow] | None,
) -> list[str]:
    """Return which of a pair's images are not admitted ("first", "second")."""
    if admitted is None:
        return []
    images = (("first", pair.first), ("second", pair.second))
    return [position for position, image in images if image not in admitted]


def _refuse(
    pairs: pa.Table,
    config: UnitingConfig,
    images: pa.Table,
) -> dict[str, str]:
    """Return the reason why each pair is left out; empty: it is kept."""
    keys = _strings(pairs, "key")
    firsts = _strings(pairs, "first")
    seconds = _strings(pairs, "second")
    group_by_image = _groups(images)
    pairs_of_image: Counter[str] = Counter()
    pairs_of_group: Counter[str] = Counter()
    verdicts: dict[str, str] = {}
    for row_index in _order_by_similarity(pairs, keys):
        key = str(keys[row_index])
        if key in verdicts:
            continue
        pair = {str(firsts[row_index]), str(seconds[row_index])}
        groups: set[str] = set()
        if config.max_pairs_per_group:
            groups = {group_by_image[image] for image in pair}
        if _is_full(pair, pairs_of_image, config.max_pairs_per_image):
            verdicts[key] = f"{HUB} (mining.max_pairs_per_image={config.max_pairs_per_image})"
        elif _is_full(groups, pairs_of_group, config.max_pairs_per_group):
            verdicts[key] = f"{FULL} (mining.max_pairs_per_group={config.max_pairs_per_group})"
        else:
            verdicts[key] = ""
            pairs_of_image.update(pair)
            pairs_of_group.update(groups)
    return verdicts


def _order_by_similarity(pairs: pa.Table, keys: NDArray[np.str_]) -> list[int]:
    """Return the rows of the pairs by falling similarity, ties by key."""
    similarities = pairs.column("similarity").to_numpy()
    return np.lexsort((keys, -similarities)).tolist()


def _strings(table: pa.Table, column: str) -> NDArray[np.str_]:
    return table.column(column).to_numpy().astype(str)


def _groups(images: pa.Table) -> dict[str, str]:
    """Return the group of each image, by its key."""
    columns = [images.column(name).to_pylist() for name in NAMES]
    groups: dict[str, str] = {}
    for key, name, group in zip(*columns, strict=True):
        groups[key] = intern(group_of(name, group))
    return groups


def _is_full(
    names: set[str],
    counts: Counter[str],
    limit: int,
) -> bool:
    """Return whether one of the images or groups has reached its limit (0: none)."""
    if limit == 0:
        return False
    return any(counts[name] >= limit for name in names)


def _limits_and_excludes(config: UnitingConfig) -> bool:
    return config.is_capped and config.excludes


def _limits_groups(config: UnitingConfig) -> bool:
    return bool(config.max_pairs_per_group)


LIMITS = attrgetter("is_capped")


def _all(
    table: str,
    row: type[Row],
    columns: Sequence[str],
    name: str,
    when: Callable[[UnitingConfig], bool] = LIMITS,
) -> Uses:
    """Return the use of some columns of a whole table."""
    without = tuple(column for column in schema_of(row).names if column not in columns)
    return Uses(table=table, row=row, kind="table", without=without, name=name, when=when)


STAGE = Stage(
    name="pairs",
    version=2,
    group="mining",
    reads={
        "given_pairs": PairRow,
        "similar_pairs": PairRow,
        "matched_pairs": PairRow,
        "noun_pairs": PairRow,
    },
    writes=PairRow,
    function=unite_pairs,
    config=lambda profile: profile.uniting,
    uses=(
        Uses(
            table="admitted", row=AdmittedRow, on="about", counts=True, when=attrgetter("excludes")
        ),
        Uses(table="alignments", row=AlignmentRow, kind="many", counts=True),
        _all("given_pairs", PairRow, COLUMNS, "given"),
        _all("similar_pairs", PairRow, COLUMNS, "similar"),
        _all("matched_pairs", PairRow, COLUMNS, "matched"),
        _all("noun_pairs", PairRow, COLUMNS, "by_nouns"),
        _all("admitted", AdmittedRow, ("key",), "all_admitted", _limits_and_excludes),
        _all("images", ImageRow, NAMES, "all_images", _limits_groups),
    ),
    by_source=True,  # a pair's key hashes its images alone, not what found it
    rows_per_shard=20_000,
)
