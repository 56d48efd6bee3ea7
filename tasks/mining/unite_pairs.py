"""Unite the pairs found by similarity, keypoints, nouns and the source, without excluded or overused images.

A pair in several tables counts once, the source's own first. Limits (ours): on the pairs of one
image, so that hubs do not fill a dataset, and on the pairs of one group of the source (a video, a
folder), so that one long sequence does not. Pairs are taken by falling similarity, ties by key,
while both images and their groups are below their limits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from sys import intern

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairwright.schemas.arrow import no_rows, schema_of
from pairwright.schemas.config import UnitingConfig
from pairwright.schemas.rows import AdmittedRow, Dropped, ImageRow, PairRow, Row, group_of
from pairwright.tasks.store.stage import Stage, Uses

EXCLUDED, HUB = "an image of the pair is excluded or has no vector", "image in too many pairs"
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
    given: pa.Table = NONE,
    similar: pa.Table = NONE,
    matched: pa.Table = NONE,
    by_nouns: pa.Table = NONE,
    all_admitted: pa.Table | None = None,
    all_images: pa.Table = NO_IMAGES,
) -> Iterator[PairRow | Dropped]:
    """Yield the kept pairs of the shard.

    ``admitted`` holds the admitted images of these pairs. With a limit, ``given``, ``similar``,
    ``matched`` and ``by_nouns`` are ``COLUMNS`` of every pair, and ``all_admitted`` the ``key`` of
    every admitted image (``None``: all are). With a limit on groups, ``all_images`` are ``NAMES``
    of every image.
    """
    everything = pa.concat_tables(
        [table.select(COLUMNS) for table in (given, similar, matched, by_nouns)]
    )
    if all_admitted is not None:
        images = all_admitted.column("key")
        everything = everything.filter(
            pc.field("first").isin(images) & pc.field("second").isin(images)
        )
    refused = _refuse(everything, config, all_images) if config.limits else {}
    for pair in rows:
        images = (("first", pair.first), ("second", pair.second))
        lacking = (
            [] if admitted is None else [word for word, image in images if image not in admitted]
        )
        if lacking:
            yield Dropped(source_key=pair.key, reason=EXCLUDED, detail=" and ".join(lacking))
        elif reason := refused.get(pair.key):
            yield Dropped(
                source_key=pair.key, reason=reason, detail=f"similarity {pair.similarity:.4f}"
            )
        else:
            yield replace(pair, source_key=pair.key)


def _refuse(pairs: pa.Table, config: UnitingConfig, images: pa.Table) -> dict[str, str]:
    """Return the reason why each pair is left out; empty: it is kept."""
    keys, first, second = (
        pairs.column(name).to_numpy().astype(str) for name in ("key", "first", "second")
    )
    names = (images.column(name).to_pylist() for name in NAMES)
    groups = {key: intern(group_of(name, group)) for key, name, group in zip(*names, strict=True)}
    count: Counter[str] = Counter()
    count_of_group: Counter[str] = Counter()
    verdicts: dict[str, str] = {}
    for place in np.lexsort((keys, -pairs.column("similarity").to_numpy())).tolist():
        key, both = str(keys[place]), {str(first[place]), str(second[place])}
        of = {groups[image] for image in both} if config.max_pairs_per_group else set[str]()
        if key in verdicts:
            continue
        if config.max_pairs_per_image and any(
            count[image] >= config.max_pairs_per_image for image in both
        ):
            verdicts[key] = f"{HUB} (mining.max_pairs_per_image={config.max_pairs_per_image})"
        elif any(count_of_group[group] >= config.max_pairs_per_group for group in of):
            verdicts[key] = f"{FULL} (mining.max_pairs_per_group={config.max_pairs_per_group})"
        else:
            verdicts[key] = ""
            count.update(both)
            count_of_group.update(of)
    return verdicts


def fit_stage(stage: Stage, config: UnitingConfig) -> Stage:
    """Return the stage for a configuration: only limits need all pairs, only exclusion needs the images."""
    needed = {
        "admitted": config.excludes,
        "all_admitted": config.limits and config.excludes,
        "all_images": bool(config.max_pairs_per_group),
    }
    uses = tuple(use for use in stage.uses if needed.get(use.argument, config.limits))
    return replace(stage, uses=uses, whole=config.limits)


def _all(table: str, row: type[Row], columns: Sequence[str], name: str) -> Uses:
    without = tuple(column for column in schema_of(row).names if column not in columns)
    return Uses(table=table, row=row, kind="table", without=without, name=name)


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
        Uses(table="admitted", row=AdmittedRow, on="images", counts=True),
        _all("given_pairs", PairRow, COLUMNS, "given"),
        _all("similar_pairs", PairRow, COLUMNS, "similar"),
        _all("matched_pairs", PairRow, COLUMNS, "matched"),
        _all("noun_pairs", PairRow, COLUMNS, "by_nouns"),
        _all("admitted", AdmittedRow, ("key",), "all_admitted"),
        _all("images", ImageRow, NAMES, "all_images"),
    ),
    by_source=True,  # a pair's key hashes its images alone, not what found it
    fit=fit_stage,
    rows_per_shard=20_000,
)
