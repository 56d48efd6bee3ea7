"""Nouns in, pairs at levels of overlap out: as if every pair were counted, and bounded in work."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import Dropped, NounsRow, PairRow, make_key
from pairwright.tasks.mining.pair_nouns import build_index, draw_partners, pair_nouns
from tests.fixtures.rows import row_of

ROOM = ("background", "chair", "image", "table", "window")
TOO_FEW = "too few nouns (noun_pairs.levels=2)"
NONE_SHARES = "no image shares enough nouns (noun_pairs.levels=2)"


def nouns_row(name, *nouns):
    image = make_key("image", name)
    return row_of(NounsRow, "nouns", image, *nouns, source=image, nouns=nouns, model="m")


def pair(rows, **settings):
    return list(pair_nouns(rows, NounPairsConfig(**settings), everything=to_table(rows, NounsRow)))


def test_a_pair_names_its_shared_nouns_and_their_cosine():
    rows = [
        nouns_row("a", *ROOM),
        nouns_row("b", *ROOM, "cup", "lamp"),
        nouns_row("c", "grass", "image", "tree"),
    ]
    first, second, none = pair(rows)
    assert isinstance(first, PairRow)
    assert [first.first, first.second] == sorted((rows[0].subject, rows[1].subject))
    assert (first.anchor, first.source_key) == (rows[0].subject, rows[0].key)
    assert first.key == first.subject == make_key("pair", first.first, first.second)
    assert (first.origin, first.cluster, first.embedders) == ("noun-overlap", -1, ("nouns",))
    assert first.shared_nouns == ("chair", "table", "window"), "not background, not image"
    assert first.similarity == first.similarities[0] == pytest.approx(3 / (3 * 5) ** 0.5)
    assert second == replace(first, anchor=rows[1].subject, source_key=rows[1].key)
    assert none == Dropped(source_key=rows[2].key, reason=NONE_SHARES, detail="2: grass, tree")


def test_an_image_with_too_few_nouns_is_no_anchor_and_no_partner():
    rows = [nouns_row("a", "dog", "image"), nouns_row("b", "cat", "dog"), nouns_row("c", "dog")]
    assert pair(rows) == [
        Dropped(source_key=rows[0].key, reason=TOO_FEW, detail="1: dog"),
        Dropped(source_key=rows[1].key, reason=NONE_SHARES, detail="2: cat, dog"),
        Dropped(source_key=rows[2].key, reason=TOO_FEW, detail="1: dog"),
    ]
    pairs = pair(rows, levels=(1,), stop_words=())
    assert {row.shared_nouns for row in pairs} == {("dog",)}


def test_pairs_depend_neither_on_shards_nor_on_the_order_of_the_table():
    rng = np.random.default_rng(3)
    nouns = [f"w{n:02d}" for n in range(30)]
    drawn = [sorted(rng.choice(nouns, rng.integers(1, 9), replace=False)) for _ in range(200)]
    rows = [nouns_row(n, *each) for n, each in enumerate(drawn)]
    config, table = NounPairsConfig(max_candidates=40), to_table(rows, NounsRow)
    whole = list(pair_nouns(rows, config, everything=table))
    mixed = table.take(pa.array(np.random.default_rng(0).permutation(len(rows))))
    shards = (rows[:77], rows[77:150], rows[150:])
    assert [row for shard in shards for row in pair_nouns(shard, config, everything=mixed)] == whole
    other = NounPairsConfig(max_candidates=40, seed=1)
    assert list(pair_nouns(rows, other, everything=table)) != whole


def table_of(nouns):
    subjects = [make_key("image", number) for number in range(len(nouns))]
    return pa.table({"subject": subjects, "nouns": pa.array(nouns, pa.list_(pa.string()))})


def draw(nouns, **settings):
    """Return the partners of every image by its number in the table."""
    images, config = table_of(nouns), NounPairsConfig(**settings)
    index = build_index(images, config)
    numbers = {key: number for number, key in enumerate(images.column("subject").to_pylist())}
    by_index = np.array([numbers[key] for key in index.keys])
    return [by_index[draw_partners(index, int(anchor), config)] for anchor in np.argsort(by_index)]


def collection(count, *, nouns=12, seed=0):
    """Return the nouns of images, 1 to 6, some much more common than others."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, nouns + 1)
    share /= share.sum()
    drawn = [rng.choice(nouns, rng.integers(1, 7), replace=False, p=share) for _ in range(count)]
    return [[f"n{noun}" for noun in each] for each in drawn]


def count_shared(nouns):
    """Return how many nouns any two images share."""
    sets = [set(each) for each in nouns]
    shared = np.array([[len(a & b) for b in sets] for a in sets])
    np.fill_diagonal(shared, 0)
    return shared


def test_each_level_gives_as_many_partners_as_it_has_and_none_of_another():
    nouns, levels = collection(300), (1, 3, 4)
    partners = draw(nouns, levels=levels, pairs_per_level=2, max_candidates=10**6)
    for numbers, counts in zip(partners, count_shared(nouns), strict=True):
        by_level = np.searchsorted(levels, counts, side="right")
        drawn = by_level[numbers]
        expected = [level for level in (1, 2, 3) for _ in range(min((by_level == level).sum(), 2))]
        assert drawn.tolist() == expected
        assert len(set(numbers.tolist())) == len(numbers)


def test_few_are_drawn_of_many_by_the_seed_and_not_by_place():
    """How often each of 1500 is drawn is Poisson distributed with mean 1: variance 1, never 10
    times. A pair is drawn from each side on its own, and two seeds draw one alike."""
    like = [["dog", "cat"]] * 1500
    drawn = [np.concatenate(draw(like, levels=(2,), seed=seed)) for seed in range(2)]
    assert (drawn[0] == drawn[1]).sum() < 10
    for partners in drawn:
        times = np.bincount(partners, minlength=1500)
        assert times.max() < 10
        assert 0.8 < times.var() < 1.2
        assert (partners[partners] == np.arange(1500)).sum() < 10


def test_work_is_bounded():
    like = [["dog", "cat"]] * 1000
    partners = draw(like, levels=(1,), pairs_per_level=30, max_candidates=20)
    assert {len(numbers) for numbers in partners} == {20}
    assert set(np.bincount(np.concatenate(partners)).tolist()) == {20}


def test_rare_nouns_come_first():
    rare = [["dog", f"rare{n // 2}"] for n in range(400)]
    partners = draw(rare, levels=(2,), max_candidates=1)
    assert np.concatenate(partners).tolist() == [n ^ 1 for n in range(400)]
    nouns = collection(300, seed=1)
    shared = (count_shared(nouns) >= 4).any(axis=1)
    assert [len(numbers) > 0 for numbers in draw(nouns, levels=(4,))] == shared.tolist()
