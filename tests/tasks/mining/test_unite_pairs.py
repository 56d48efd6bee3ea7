"""What is in the union: admitted images only, and the limit of pairs per image against a check by
brute force."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pyarrow as pa
import pytest

from pairwright.schemas.config import UnitingConfig
from pairwright.schemas.rows import AdmittedRow, Dropped, PairRow, make_key
from pairwright.tasks.mining.unite_pairs import EXCLUDED, FULL, HUB, NONE, unite_pairs
from tests.fixtures.rows import row_of

IMAGES = [make_key("image", number) for number in range(8)]


def pair(first: str, second: str, similarity: float) -> PairRow:
    anchor = make_key("anchor", first)
    return row_of(
        PairRow,
        "pair",
        first,
        second,
        source=anchor,
        first=first,
        second=second,
        similarity=similarity,
    )


def columns_of(rows: list[PairRow]) -> pa.Table:
    return pa.table(
        {name: [getattr(row, name) for row in rows] for name in NONE.column_names},
        schema=NONE.schema,
    )


def limited(rows: list[PairRow], most: int) -> dict[str, PairRow | Dropped]:
    """Return what became of each pair, by its key."""
    everything = columns_of(rows)
    cut = len(everything) // 2  # some were found by similarity, others by nouns
    found = unite_pairs(
        rows, UnitingConfig(max_pairs_per_image=most, excludes=False),
        similar=everything.slice(0, cut), by_nouns=everything.slice(cut),
    )  # fmt: skip
    return {row.source_key: row for row in found}


def test_the_most_similar_pairs_of_a_hub_are_kept() -> None:
    hub, *others = IMAGES
    rows = [pair(hub, other, 0.80 + number / 100) for number, other in enumerate(others)]
    found = limited(rows, 2)
    assert [isinstance(found[row.key], PairRow) for row in rows] == [False] * 5 + [True] * 2
    reason = f"{HUB} (mining.max_pairs_per_image=2)"
    assert found[rows[0].key] == Dropped(
        source_key=rows[0].key, reason=reason, detail="similarity 0.8000"
    )
    kept = found[rows[-1].key]
    assert isinstance(kept, PairRow)
    assert (kept.key, kept.first, kept.second, kept.source_key) == (
        rows[-1].key,
        hub,
        others[-1],
        rows[-1].key,
    )


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_pair_is_refused_only_where_an_image_is_full_of_better_ones(most: int) -> None:
    rng = random.Random(most)
    rows = [
        pair(first, second, rng.choice([0.8, 0.85, 0.9]))
        for first, second in combinations(IMAGES, 2)
    ]
    found = limited(rows, most)
    rng.shuffle(rows)
    assert limited(rows, most) == found
    kept = [row for row in rows if isinstance(found[row.key], PairRow)]
    counts = Counter(image for row in kept for image in (row.first, row.second))
    assert max(counts.values()) <= most
    for row in rows:
        better = [r for r in kept if (-r.similarity, r.key) < (-row.similarity, row.key)]
        full = [
            sum(image in (r.first, r.second) for r in better) >= most
            for image in (row.first, row.second)
        ]
        assert any(full) == (row not in kept)


def test_both_images_must_be_admitted() -> None:
    one, other, refused = IMAGES[:3]
    admitted = {key: AdmittedRow(key=key, source_key=key, subject=key) for key in (one, other)}
    rows = [
        pair(one, other, 0.9),
        pair(one, refused, 0.9),
        pair(refused, other, 0.9),
        pair(refused, refused, 0.9),
    ]
    good, *bad = unite_pairs(
        rows, UnitingConfig(max_pairs_per_image=0, excludes=True), admitted=admitted
    )
    assert good == replace(rows[0], source_key=rows[0].key)
    assert bad == [
        Dropped(source_key=row.key, reason=EXCLUDED, detail=detail)
        for row, detail in zip(rows[1:], ("second", "first", "first and second"), strict=True)
    ]


def test_a_pair_that_is_excluded_takes_no_place_of_another() -> None:
    one, other, refused = IMAGES[:3]
    admitted = {key: AdmittedRow(key=key, source_key=key, subject=key) for key in (one, other)}
    rows = [pair(one, refused, 0.9), pair(one, other, 0.8)]
    config, keys = (
        UnitingConfig(max_pairs_per_image=1, excludes=True),
        pa.table({"key": [one, other]}),
    )
    found = unite_pairs(rows, config, admitted=admitted, given=columns_of(rows), all_admitted=keys)
    assert [type(row) for row in found] == [Dropped, PairRow]


def test_a_group_is_in_a_limited_number_of_pairs_its_most_similar_ones() -> None:
    rows = [
        pair(*IMAGES[place : place + 2], 0.9 - place / 100) for place in range(7)
    ]  # a video whose frames follow
    names = {
        "key": IMAGES,
        "name": [f"walk/{key}.png" for key in IMAGES],
        "group": [""] * 5 + ["a.mp4"] * 3,
    }
    config = UnitingConfig(max_pairs_per_image=0, max_pairs_per_group=2, excludes=False)
    found = list(unite_pairs(rows, config, similar=columns_of(rows), all_images=pa.table(names)))
    # 0-1 and 1-2 fill the folder; 4-5 is between the two groups, and 5-6 and 6-7 are the video's
    # own
    assert [isinstance(row, PairRow) for row in found] == [
        True,
        True,
        False,
        False,
        False,
        True,
        True,
    ]
    assert {row.reason for row in found if isinstance(row, Dropped)} == {
        f"{FULL} (mining.max_pairs_per_group=2)"
    }
