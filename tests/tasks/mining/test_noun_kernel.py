"""Partners are drawn by level: compared with counting every pair, and bounded in work."""

import numpy as np
import pyarrow as pa

from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import make_key
from pairwright.tasks.mining.noun_index import build_index
from pairwright.tasks.mining.noun_kernel import draw_partners

LEVELS = (1, 3, 4)


def collection(count, *, nouns=12, seed=0):
    """Return images of 1 to 6 nouns, some much more common than others."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, nouns + 1)
    sets = [rng.choice(nouns, rng.integers(1, 7), replace=False, p=share / share.sum()).tolist() for _ in range(count)]
    listed = pa.array([[f"n{noun}" for noun in some] for some in sets], pa.list_(pa.string()))
    return pa.table({"subject": [make_key(seed, n) for n in range(count)], "nouns": listed})


def draw(table, levels=LEVELS, *, most=2, looked_at=10**6, seed=0):
    """Return the partners of every image, and how many nouns any two images share."""
    index = build_index(table, NounPairsConfig(levels=levels, seed=seed))
    anchors = index.numbers_of(table.column("subject").to_pylist())
    partners = np.empty((len(anchors), len(levels), most), np.int64)
    draw_partners(anchors, index.lists, np.array(levels), looked_at, partners)
    back = np.argsort(anchors)  # from the index's numbers to the table's rows
    sets = [set(some) for some in table.column("nouns").to_pylist()]
    shared = np.array([[len(a & b) for b in sets] for a in sets])
    np.fill_diagonal(shared, 0)
    return np.where(partners < 0, -1, back[partners]), shared


def test_each_level_gives_as_many_partners_as_it_has_and_none_of_another():
    partners, shared = draw(collection(300))
    for level, (low, high) in enumerate([(1, 2), (3, 3), (4, 99)]):
        there = (shared >= low) & (shared <= high)
        drawn = partners[:, level] >= 0
        assert (drawn.sum(axis=1) == np.minimum(there.sum(axis=1), 2)).all()
        assert np.take_along_axis(there, np.maximum(partners[:, level], 0), axis=1)[drawn].all()
        assert (there.sum(axis=1) == 1).any() or level == 0
    both = partners.min(axis=2) >= 0
    assert (partners[..., 0] != partners[..., 1])[both].all()


def test_the_commonest_nouns_are_not_needed_to_find_who_shares_several():
    partners, shared = draw(collection(300, seed=1), levels=(4,), most=1)
    assert ((partners[:, 0, 0] >= 0) == (shared >= 4).any(axis=1)).all()


def test_few_are_drawn_of_many_by_the_seed_and_not_by_place():
    count = 1500
    same = pa.table({"subject": [make_key(n) for n in range(count)], "nouns": [["dog", "cat"]] * count})
    drawn = np.array([draw(same, (2,), most=1, seed=seed)[0][:, 0, 0] for seed in range(2)])
    assert (drawn[0] == drawn[1]).sum() < 10  # one of 1499 each: 1 expected
    for one in drawn:
        # How often each is drawn is Poisson distributed with mean 1: never 10 times, variance 1.
        times = np.bincount(one, minlength=count)
        assert times.max() < 10
        assert 0.8 < times.var() < 1.2
        mutual = (one[one] == np.arange(count)).sum()
        assert mutual < 10  # a pair is drawn from each side on its own


def test_work_is_bounded_and_everyone_is_looked_at_equally_often():
    count, looked_at = 1000, 20
    same = pa.table({"subject": [make_key(n) for n in range(count)], "nouns": [["dog", "cat"]] * count})
    partners, _ = draw(same, (1,), most=30, looked_at=looked_at)
    found = partners[:, 0]
    assert ((found >= 0).sum(axis=1) == looked_at).all()
    assert (np.bincount(found[found >= 0], minlength=count) == looked_at).all()


def test_rare_nouns_are_looked_at_first():
    rare = [["dog", f"rare{n // 2}"] for n in range(400)]
    table = pa.table({"subject": [make_key(n) for n in range(400)], "nouns": rare})
    partners, _ = draw(table, (2,), most=1, looked_at=1)
    assert partners[:, 0, 0].tolist() == [n ^ 1 for n in range(400)]
