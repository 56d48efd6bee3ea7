"""Nouns in, pairs at levels of overlap out: compared with counting every pair, and bounded in
work."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.mining.pair_nouns import build_index, draw_partners, pair_nouns

ROOM = ("background", "chair", "image", "table", "window")
GARDEN = ("grass", "image", "tree")

BOUND = "(noun_pairs.levels=2)"


def nouns_row(name, nouns):
    subject = make_key("image", name)
    return NounsRow(
        key=make_key("nouns", subject, *nouns),
        source_key=subject,
        subject=subject,
        nouns=nouns,
        model="m",
    )


def pair(rows, **settings):
    return list(pair_nouns(rows, NounPairsConfig(**settings), everything=to_table(rows, NounsRow)))


def test_a_pair_names_its_shared_nouns_and_their_cosine():
    rows = [nouns_row("a", ROOM), nouns_row("b", (*ROOM, "cup", "lamp")), nouns_row("c", GARDEN)]
    first, second, none = pair(rows)
    assert isinstance(first, PairRow)
    low, high = sorted((rows[0].subject, rows[1].subject))
    assert (first.first, first.second, first.anchor, first.source_key) == (
        low,
        high,
        rows[0].subject,
        rows[0].key,
    )
    assert first.key == first.subject == make_key("pair", low, high)
    assert (first.origin, first.cluster, first.embedders) == ("noun-overlap", -1, ("nouns",))
    assert first.shared_nouns == ("chair", "table", "window")  # not "background", not "image"
    assert first.similarity == first.similarities[0] == pytest.approx(3 / (3 * 5) ** 0.5)
    assert second == replace(first, anchor=rows[1].subject, source_key=rows[1].key)
    reason = f"no image shares enough nouns {BOUND}"
    assert none == Dropped(source_key=rows[2].key, reason=reason, detail="2: grass, tree")


def test_an_image_with_too_few_nouns_is_no_anchor_and_no_partner():
    rows = [
        nouns_row("a", ("dog", "image")),
        nouns_row("b", ("cat", "dog")),
        nouns_row("c", ("dog",)),
    ]
    assert pair(rows) == [
        Dropped(source_key=rows[0].key, reason=f"too few nouns {BOUND}", detail="1: dog"),
        Dropped(
            source_key=rows[1].key,
            reason=f"no image shares enough nouns {BOUND}",
            detail="2: cat, dog",
        ),
        Dropped(source_key=rows[2].key, reason=f"too few nouns {BOUND}", detail="1: dog"),
    ]
    assert {found.shared_nouns for found in pair(rows, levels=(1,), stop_words=())} == {("dog",)}


def many(count=200):
    rng = np.random.default_rng(3)
    words = [f"w{n:02d}" for n in range(30)]
    return [
        nouns_row(n, tuple(sorted(rng.choice(words, rng.integers(1, 9), replace=False))))
        for n in range(count)
    ]


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


def collection(count, *, nouns=12, seed=0):
    """Return images of 1 to 6 nouns, some much more common than others."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, nouns + 1)
    sets = [
        rng.choice(nouns, rng.integers(1, 7), replace=False, p=share / share.sum()).tolist()
        for _ in range(count)
    ]
    return table([[f"n{noun}" for noun in some] for some in sets])


def table(nouns):
    subjects = [make_key("image", number) for number in range(len(nouns))]
    return pa.table({"subject": subjects, "nouns": pa.array(nouns, pa.list_(pa.string()))})


def draw(images, **settings):
    """Return the partners of every image by its number in the table."""
    config = NounPairsConfig(**settings)
    index = build_index(images, config)
    rows = {key: row for row, key in enumerate(images.column("subject").to_pylist())}
    back = np.array(
        [rows[key] for key in index.keys]
    )  # from the index's numbers to the table's rows
    return [back[draw_partners(index, int(anchor), config)] for anchor in np.argsort(back)]


def count_shared(images):
    """Return how many nouns any two images share."""
    sets = [set(some) for some in images.column("nouns").to_pylist()]
    shared = np.array([[len(a & b) for b in sets] for a in sets])
    np.fill_diagonal(shared, 0)
    return shared


def test_each_level_gives_as_many_partners_as_it_has_and_none_of_another():
    partners = draw(collection(300), levels=(1, 3, 4), pairs_per_level=2, max_candidates=10**6)
    for found, counts in zip(partners, count_shared(collection(300)), strict=True):
        drawn = np.searchsorted([1, 3, 4], counts[found], side="right")
        there = np.searchsorted([1, 3, 4], counts, side="right")
        assert drawn.tolist() == sorted(drawn.tolist())
        assert [(drawn == level).sum() for level in (1, 2, 3)] == [
            min((there == level).sum(), 2) for level in (1, 2, 3)
        ]
        assert len(set(found.tolist())) == len(found)


def test_few_are_drawn_of_many_by_the_seed_and_not_by_place():
    same = table([["dog", "cat"]] * 1500)
    drawn = [np.concatenate(draw(same, levels=(2,), seed=seed)) for seed in range(2)]
    assert (drawn[0] == drawn[1]).sum() < 10  # one of 1499 each: 1 expected
    for one in drawn:
        # How often each is drawn is Poisson distributed with mean 1: never 10 times, variance 1.
        times = np.bincount(one, minlength=1500)
        assert times.max() < 10
        assert 0.8 < times.var() < 1.2
        assert (one[one] == np.arange(1500)).sum() < 10  # a pair is drawn from each side on its own


def test_work_is_bounded_and_rare_nouns_come_first():
    partners = draw(
        table([["dog", "cat"]] * 1000), levels=(1,), pairs_per_level=30, max_candidates=20
    )
    assert {len(found) for found in partners} == {20}
    assert set(np.bincount(np.concatenate(partners)).tolist()) == {20}
    partners = draw(
        table([["dog", f"rare{n // 2}"] for n in range(400)]), levels=(2,), max_candidates=1
    )
    assert np.concatenate(partners).tolist() == [n ^ 1 for n in range(400)]
    partners, shared = (
        draw(collection(300, seed=1), levels=(4,)),
        count_shared(collection(300, seed=1)),
    )
    assert [len(found) > 0 for found in partners] == (shared >= 4).any(axis=1).tolist()
