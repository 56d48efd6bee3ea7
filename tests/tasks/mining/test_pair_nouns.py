"""Nouns in, pairs at levels of overlap out; the paper's 8 is a level, an image has no pair with itself."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.mining.pair_nouns import pair_nouns

ROOM = ("background", "chair", "image", "table", "window")
GARDEN = ("grass", "image", "tree")


def nouns_row(name, nouns):
    subject = make_key("image", name)
    return NounsRow(key=make_key("nouns", subject, *nouns), source_key=subject, subject=subject, nouns=nouns, model="m")


def pair(rows, **settings):
    return list(pair_nouns(rows, NounPairsConfig(**settings), everything=to_table(rows, NounsRow)))


def test_a_pair_names_its_shared_nouns_and_their_cosine():
    rows = [nouns_row("a", ROOM), nouns_row("b", (*ROOM, "cup", "lamp")), nouns_row("c", GARDEN)]
    first, second, none = pair(rows)
    assert isinstance(first, PairRow)
    low, high = sorted((rows[0].subject, rows[1].subject))
    assert (first.first, first.second, first.anchor, first.source_key) == (low, high, rows[0].subject, rows[0].key)
    assert first.key == first.subject == make_key("pair", low, high)
    assert (first.origin, first.cluster, first.embedders) == ("noun-overlap", -1, ("nouns",))
    assert first.shared_nouns == ("chair", "table", "window")  # not "background", not "image"
    assert first.similarity == first.similarities[0] == pytest.approx(3 / (3 * 5) ** 0.5)
    assert second == replace(first, anchor=rows[1].subject, source_key=rows[1].key)
    assert none == Dropped(source_key=rows[2].key, reason="no image shares enough nouns", detail="2: grass, tree")


def test_an_image_with_too_few_nouns_is_no_anchor_and_no_partner():
    rows = [nouns_row("a", ("dog", "image")), nouns_row("b", ("cat", "dog")), nouns_row("c", ("dog",))]
    assert pair(rows) == [
        Dropped(source_key=rows[0].key, reason="too few nouns", detail="1: dog"),
        Dropped(source_key=rows[1].key, reason="no image shares enough nouns", detail="2: cat, dog"),
        Dropped(source_key=rows[2].key, reason="too few nouns", detail="1: dog"),
    ]
    assert {found.shared_nouns for found in pair(rows, levels=(1,), stop_words=())} == {("dog",)}


def test_each_level_gives_pairs_of_its_own():
    every = tuple(f"n{n}" for n in range(10))
    rows = [nouns_row("a", every), *(nouns_row(n, every[:n]) for n in range(1, 10))]
    found = [len(row.shared_nouns) for row in pair(rows) if row.source_key == rows[0].key]
    assert [number // 2 * 2 for number in found] == [2, 4, 6, 8]
    found = [len(row.shared_nouns) for row in pair(rows, pairs_per_level=2) if row.source_key == rows[0].key]
    assert sorted(found) == [2, 3, 4, 5, 6, 7, 8, 9]
    only = [row for row in pair(rows, levels=(8,), pairs_per_level=9) if isinstance(row, PairRow)]
    assert {len(row.shared_nouns) for row in only} == {8, 9}


def many(count=200):
    rng = np.random.default_rng(3)
    words = [f"w{n:02d}" for n in range(30)]
    return [nouns_row(n, tuple(sorted(rng.choice(words, rng.integers(1, 9), replace=False)))) for n in range(count)]


def test_pairs_depend_neither_on_shards_nor_on_the_order_of_the_table():
    rows = many()
    config, table = NounPairsConfig(max_candidates=40), to_table(rows, NounsRow)
    whole = list(pair_nouns(rows, config, everything=table))
    mixed = table.take(pa.array(np.random.default_rng(0).permutation(len(rows))))
    shards = (rows[:77], rows[77:150], rows[150:])
    cut = [row for shard in shards for row in pair_nouns(shard, config, everything=mixed)]
    assert cut == whole
    other = list(pair_nouns(rows, NounPairsConfig(max_candidates=40, seed=1), everything=table))
    assert other != whole


def test_every_anchor_is_answered_in_order_with_true_pairs():
    rows = many()
    found = pair(rows, levels=(2, 4))
    by_subject = {row.subject: set(row.nouns) for row in rows}
    assert list(dict.fromkeys(row.source_key for row in found)) == [row.key for row in rows]
    for row in found:
        if isinstance(row, PairRow):
            assert row.first < row.second
            assert row.anchor in (row.first, row.second)
            assert set(row.shared_nouns) == by_subject[row.first] & by_subject[row.second]
    assert set(Counter(row.source_key for row in found).values()) == {1, 2}


def test_a_single_image_has_no_partner():
    (found,) = pair([nouns_row("a", ROOM)])
    assert isinstance(found, Dropped)
