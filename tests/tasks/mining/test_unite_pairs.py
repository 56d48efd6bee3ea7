"""What is in the union: admitted images only, and no more pairs per image than allowed."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pyarrow as pa
import pytest

from pairwright.schemas.config import UnitingConfig
from pairwright.schemas.rows import AdmittedRow, Dropped, PairRow, make_key
from pairwright.tasks.mining.unite_pairs import EXCLUDED, FULL, HUB, NONE, unite_pairs
from tests.fixtures.rows import row_of

IMAGES = [make_key("image", number) for number in range(8)]


def pair(first, second, similarity=0.9):
    values = {"first": first, "second": second, "similarity": similarity}
    return row_of(PairRow, "pair", first, second, source=make_key("anchor", first), **values)


def columns_of(rows):
    columns = {name: [getattr(row, name) for row in rows] for name in NONE.column_names}
    return pa.table(columns, schema=NONE.schema)


def limit(rows, most):
    """Return what became of each pair, by its key; half were found by nouns."""
    similar, by_nouns = columns_of(rows[: len(rows) // 2]), columns_of(rows[len(rows) // 2 :])
    config = UnitingConfig(max_pairs_per_image=most, excludes=False)
    results = unite_pairs(rows, config, similar=similar, by_nouns=by_nouns)
    return {row.source_key: row for row in results}


def test_the_most_similar_pairs_of_a_hub_are_kept() -> None:
    hub, *others = IMAGES
    rows = [pair(hub, other, 0.80 + number / 100) for number, other in enumerate(others)]
    results = [limit(rows, 2)[row.key] for row in rows]
    assert [type(row) for row in results] == [Dropped] * 5 + [PairRow] * 2
    reason = f"{HUB} (mining.max_pairs_per_image=2)"
    dropped = Dropped(source_key=rows[0].key, reason=reason, detail="similarity 0.8000")
    assert results[0] == dropped
    assert results[-1] == replace(rows[-1], source_key=rows[-1].key)


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_pair_is_refused_only_where_an_image_is_full_of_better_ones(most) -> None:
    rng = random.Random(most)
    rows = [pair(*both, rng.choice([0.8, 0.85, 0.9])) for both in combinations(IMAGES, 2)]
    results = limit(rows, most)
    rng.shuffle(rows)
    assert limit(rows, most) == results
    pairs = [row for row in rows if isinstance(results[row.key], PairRow)]
    per_image = Counter(image for row in pairs for image in (row.first, row.second))
    assert max(per_image.values()) <= most
    for row in rows:
        better = [r for r in pairs if (-r.similarity, r.key) < (-row.similarity, row.key)]
        counts = Counter(image for r in better for image in (r.first, r.second))
        is_full = counts[row.first] >= most or counts[row.second] >= most
        assert is_full == (row not in pairs)


ONE, OTHER, REFUSED = IMAGES[:3]
ADMITTED = {key: AdmittedRow(key=key, source_key=key, subject=key) for key in (ONE, OTHER)}


def test_both_images_must_be_admitted() -> None:
    rows = [pair(ONE, OTHER), pair(ONE, REFUSED), pair(REFUSED, OTHER), pair(REFUSED, REFUSED)]
    config = UnitingConfig(max_pairs_per_image=0, excludes=True)
    good, *bad = unite_pairs(rows, config, admitted=ADMITTED)
    assert good == replace(rows[0], source_key=rows[0].key)
    details = ("second", "first", "first and second")
    assert bad == [
        Dropped(source_key=row.key, reason=EXCLUDED, detail=detail)
        for row, detail in zip(rows[1:], details, strict=True)
    ]


def test_a_pair_that_is_excluded_takes_no_place_of_another() -> None:
    rows = [pair(ONE, REFUSED, 0.9), pair(ONE, OTHER, 0.8)]
    config = UnitingConfig(max_pairs_per_image=1, excludes=True)
    tables = {"given": columns_of(rows), "all_admitted": pa.table({"key": [ONE, OTHER]})}
    results = unite_pairs(rows, config, admitted=ADMITTED, **tables)
    assert [type(row) for row in results] == [Dropped, PairRow]


def test_a_group_is_in_a_limited_number_of_pairs_its_most_similar_ones() -> None:
    """Of frames that follow 0-1 and 1-2 fill the folder; 4-5 is between the two groups, and 5-6
    and 6-7 are the video's own."""
    rows = [pair(*both, 0.9 - n / 100) for n, both in enumerate(pairwise(IMAGES))]
    names = [f"walk/{key}.png" for key in IMAGES]
    groups = [""] * 5 + ["a.mp4"] * 3
    images = pa.table({"key": IMAGES, "name": names, "group": groups})
    config = UnitingConfig(max_pairs_per_image=0, max_pairs_per_group=2, excludes=False)
    results = list(unite_pairs(rows, config, similar=columns_of(rows), all_images=images))
    assert [type(row) for row in results] == [PairRow] * 2 + [Dropped] * 3 + [PairRow] * 2
    assert {row.reason for row in results[2:5]} == {f"{FULL} (mining.max_pairs_per_group=2)"}
