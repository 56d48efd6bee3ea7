"""The pair rule against a slow, separate implementation that uses scikit-learn, and rule by
rule."""

import numpy as np
import pytest
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.schemas.config import MiningConfig, SearchConfig
from pairwright.schemas.rows import Dropped, NeighbourRow, PairRow, Row, make_key
from pairwright.tasks.mining.pair_neighbours import pair_neighbours
from pairwright.tasks.mining.search_neighbours import search_neighbours
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.rows import row_of

NAMES = ("colour-layout", "gradients")


def spaces(raw):
    """Return the spaces of images 0, 1, ... from their raw vectors, and the images' keys."""
    keys = sorted(make_key("image", number) for number in range(len(raw[0])))
    stored = np.array([key.encode() for key in keys], dtype="S32")
    made = {}
    for name, vectors in zip(NAMES, raw, strict=True):
        norms = np.linalg.norm(vectors, axis=1)
        unit = (vectors / np.maximum(norms, 1e-9)[:, None]).astype(np.float16)
        made[name] = Vectors(stored, unit, norms.astype(np.float32))
    return made, keys


def crowd(seed=0, groups=6, size=20):
    """Return raw vectors in groups, the members of each in three looser subgroups."""
    rng = np.random.default_rng(seed)
    raw = []
    for width in (12, 30):
        centres = np.repeat(rng.normal(size=(groups, width)), size, axis=0)
        parts = np.repeat(rng.normal(size=(groups * 4, width)), size // 4, axis=0)
        scale = rng.uniform(0.5, 2, (groups * size, 1))
        raw.append(scale * (centres + 0.45 * parts + 0.12 * rng.normal(size=centres.shape)))
    return spaces(raw)


def anchors(keys):
    return [Row(key=make_key("a", key), source_key="", subject=key) for key in keys]


def slow_pairs(vectors, keys, *, k, config):
    """Yield, by the rules as they are written down, each anchor with the best of each of its
    clusters.

    The best are all that come within what the rounding of the stored vectors can turn round.
    """
    unit = [vectors[name].matrix.astype(np.float64) for name in NAMES]
    for anchor in range(len(keys)):
        kept = []
        for matrix in unit:
            similar = np.float32(matrix @ matrix[anchor])
            others = sorted(
                (i for i in range(len(keys)) if i != anchor), key=lambda i: (-similar[i], i)
            )[:k]
            if max(similar[others]) < config.min_best_similarity:
                break
            kept.append(
                {i for i in others if config.min_similarity <= similar[i] <= config.max_similarity}
            )
        else:
            candidates = sorted(set.intersection(*kept))
            scale = [1 if config.normalised else vectors[name].norms[:, None] for name in NAMES]
            joined = np.hstack(
                [w * m * s for w, m, s in zip(config.weights, unit, scale, strict=True)]
            )
            if not candidates:
                continue
            if len(candidates) <= config.clusters:
                labels = np.arange(len(candidates))
            else:
                maker = SpectralClustering(
                    config.clusters, affinity="rbf", gamma=config.gamma, random_state=config.seed
                )
                labels = maker.fit_predict(joined[candidates])
            length = np.linalg.norm(joined, axis=1)
            cosines = joined @ joined[anchor] / length / length[anchor]
            for cluster in set(labels):
                inside = [
                    c for c, label in zip(candidates, labels, strict=True) if label == cluster
                ]
                yield (
                    keys[anchor],
                    {keys[c] for c in inside if cosines[c] > max(cosines[inside]) - 3e-4},
                )


@pytest.mark.parametrize("normalised", [True, False])
def test_equals_the_slow_rule(normalised):
    vectors, keys = crowd()
    config = MiningConfig(
        min_best_similarity=0.8,
        min_similarity=0.7,
        max_similarity=0.985,
        weights=(0.4, 0.6),
        normalised=normalised,
    )
    rows = list(search_neighbours(anchors(keys), SearchConfig(k=16), vectors=vectors))
    got = list(pair_neighbours(rows, config, vectors=vectors))
    with threadpool_limits(1):
        expected = list(slow_pairs(vectors, keys, k=16, config=config))
    found = [
        (row.anchor, row.second if row.anchor == row.first else row.first)
        for row in got
        if isinstance(row, PairRow)
    ]
    assert len(found) == len(expected) > 50
    assert all(
        any(anchor == pair[0] and pair[1] in best for pair in found) for anchor, best in expected
    )
    assert sum(len(best) for _, best in expected) < 1.1 * len(expected)
    assert {row.source_key for row in got} == {row.key for row in rows}


def hand(first, second):
    """Return an anchor's row with these similarities in two spaces, and the spaces (of unit vectors
    along one axis)."""
    count = max(len(first), len(second)) + 1
    vectors, keys = spaces([np.eye(count), np.eye(count)])
    anchor, others = keys[0], keys[1:]
    neighbours = tuple(
        tuple(key for _, key in sorted(zip(values, others, strict=False), reverse=True))
        for values in (first, second)
    )
    similarities = tuple(
        tuple(sorted(map(float, values), reverse=True)) for values in (first, second)
    )
    row = NeighbourRow(
        key="row",
        source_key=anchor,
        subject=anchor,
        embedders=NAMES,
        neighbours=neighbours,
        similarities=similarities,
    )
    return row, vectors, others


def outcome(first, second, **config):
    row, vectors, others = hand(first, second)
    made = list(pair_neighbours([row], MiningConfig(**config), vectors=vectors))
    if isinstance(made[0], Dropped):
        assert len(made) == 1
        assert made[0].source_key == "row"
        return made[0].reason, made[0].detail
    partners = [one.second if one.first == row.subject else one.first for one in made]
    return [(others.index(key), one) for key, one in zip(partners, made, strict=True)]


def test_the_set_filter_looks_at_the_raw_neighbours_and_the_band_is_closed():
    reason = "nothing similar enough in gradients (mining.min_best_similarity=0.8)"
    assert outcome([0.79, 0.9], [0.79, 0.7]) == (reason, "best 0.7900")
    assert outcome([0.5, 0.6], [0.79, 0.7])[0].startswith(
        "nothing similar enough in colour-layout ("
    )
    assert outcome([0.8], [0.8])[0][0] == 0
    # The best neighbour is too near to be paired, but it lets the set pass.
    ((other, pair),) = outcome([0.99, 0.785], [0.99, 0.785])
    assert other == 1
    assert pair.similarities == (0.785, 0.785)
    got = outcome([0.75, 0.875], [0.75, 0.875], min_similarity=0.75, max_similarity=0.875)
    assert [other for other, _ in got] == [0, 1]


def test_the_second_set_test_looks_at_the_raw_neighbours_or_the_kept_ones():
    reason = (
        "one of its neighbours too far in colour-layout (mining.min_worst_similarity=0.78, "
        "mining.check_worst={})"
    )
    dropped = (reason.format("before"), "worst 0.7000")
    assert outcome([0.9, 0.7], [0.9, 0.9], check_worst="before") == dropped
    for setting in ("none", "after"):
        assert [other for other, _ in outcome([0.9, 0.7], [0.9, 0.9], check_worst=setting)] == [0]
    got = outcome([0.9, 0.72], [0.9, 0.72], check_worst="after", min_similarity=0.7)
    assert got == (reason.format("after"), "worst 0.7200")


def test_candidates_must_fit_in_every_space():
    got = outcome([0.9, 0.7, 0.97], [0.96, 0.9, 0.9])
    bounds = "(mining.min_similarity=0.78, mining.max_similarity=0.95)"
    assert got == (
        f"no neighbour as similar as a pair may be {bounds}",
        "colour-layout: 3 neighbours of 0.7000 to 0.9700, 1 too far, 1 too near; "
        "gradients: 3 neighbours of 0.9000 to 0.9600, 0 too far, 1 too near",
    )
    ((other, _),) = outcome([0.9, 0.7, 0.97, 0.9], [0.96, 0.9, 0.9, 0.9])
    assert other == 3


def test_no_neighbours():
    row = NeighbourRow(
        key="row",
        source_key="a",
        subject="a",
        embedders=NAMES,
        neighbours=((), ()),
        similarities=((), ()),
    )
    (got,) = pair_neighbours([row], MiningConfig(), vectors={})
    assert got == Dropped(source_key="row", reason="no neighbours", detail="colour-layout")
    assert list(pair_neighbours([], MiningConfig(), vectors={})) == []


def test_fewer_candidates_than_clusters_are_all_paired():
    (first, one), (second, two) = outcome([0.9, 0.8], [0.85, 0.95])
    assert ({first, second}, {one.cluster, two.cluster}) == ({0, 1}, {0, 1})
    # (0.16 * 0.9 + 0.36 * 0.85) / 0.52
    assert {0: one, 1: two}[first].similarity == pytest.approx(0.865385)
    assert {0: one, 1: two}[first].similarities == (0.9, 0.85)
    assert one.first < one.second
    assert one.key == one.subject == make_key("pair", one.first, one.second)
    assert (one.origin, one.source_key) == ("mined", "row")
    # One cluster, all alike: the first in the order of keys.
    ((other, _),) = outcome([0.8, 0.9, 0.9, 0.9], [0.8, 0.9, 0.9, 0.9], clusters=1)
    assert other == 1


def hashed(bits):
    """Return an anchor's row with a neighbour for each number of bits in which its hash differs,
    and the spaces."""
    row, vectors, others = hand([0.9] * len(bits), [0.9] * len(bits))
    hashes = np.full((len(bits) + 1, 64), 0.125, dtype=np.float16)
    for place, number in enumerate(bits, start=1):
        hashes[place, :number] = -0.125
    space = Vectors(vectors[NAMES[0]].keys, hashes, np.ones(len(hashes), np.float32))
    return row, {**vectors, "perceptual-hash": space}, others


def test_near_identical_neighbours_are_left_out_before_all_else():
    row, vectors, others = hashed([0, 2, 3, 40])
    made = list(pair_neighbours([row], MiningConfig(min_hash_distance=3), vectors=vectors))
    assert {image for pair in made for image in (pair.first, pair.second)} - {row.subject} == set(
        others[2:]
    )
    (refused,) = pair_neighbours(
        [row], MiningConfig(min_hash_distance=3, min_best_similarity=0.95), vectors=vectors
    )
    assert (
        refused.reason
        == "nothing similar enough in colour-layout (mining.min_best_similarity=0.95)"
    )
    row, vectors, others = hashed([0, 1])
    (refused,) = pair_neighbours([row], MiningConfig(min_hash_distance=2), vectors=vectors)
    assert (refused.reason, refused.detail) == (
        "only near-identical neighbours (mining.min_hash_distance=2)",
        "2 of them",
    )


@pytest.mark.parametrize(("quota", "expected"), [(1, [1]), (2, [1, 3]), (9, [1, 3, 0, 2])])
def test_a_cluster_gives_its_most_similar_candidates_up_to_its_quota(quota, expected):
    similarities = [0.85, 0.92, 0.8, 0.9]
    got = outcome(similarities, similarities, clusters=1, max_per_cluster=quota)
    assert [other for other, _ in got] == expected
    assert {pair.cluster for _, pair in got} == {0}
    assert [pair.similarity for _, pair in got] == pytest.approx(
        [similarities[other] for other in expected]
    )


def test_candidates_are_far_nearer_than_strangers():
    # Partners at 0.1 and 0.2, strangers from the fourth to the eighth at 0.4 to 0.8: 0.6 in the
    # mean.
    keys = tuple(make_key("near", number) for number in range(9))
    distances = (0.1, 0.2, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    similarities = tuple(1 - distance for distance in distances)
    row = row_of(
        NeighbourRow,
        source="anchor",
        embedders=NAMES,
        neighbours=(keys, keys),
        similarities=(similarities,) * 2,
    )
    vectors = spaces([np.eye(9, dtype=np.float64)] * 2)[0]
    stored = np.array(sorted(key.encode() for key in keys), dtype="S32")
    vectors = {name: Vectors(stored, space.matrix, space.norms) for name, space in vectors.items()}
    bands = {
        "min_best_similarity": 0,
        "min_similarity": 0,
        "max_similarity": 1,
        "clusters": 9,
        "max_per_cluster": 9,
    }

    def paired(ratio, group=3):
        config = MiningConfig(max_ratio=ratio, group=group, **bands)
        return list(pair_neighbours([row], config, vectors=vectors))

    # 0.1 / 0.6 is a sixth, 0.2 / 0.6 a third; of three that show one thing an image has two
    # partners.
    assert [len(paired(ratio)) for ratio in (0.18, 0.34, 0.99, 1)] == [1, 2, 2, 9]
    (none,) = paired(0.16)
    assert isinstance(none, Dropped)
    assert none.reason == "no candidate nearer than strangers (mining.max_ratio=0.16)"
    assert len(paired(0.16, group=9)) == 9  # no strangers are known
