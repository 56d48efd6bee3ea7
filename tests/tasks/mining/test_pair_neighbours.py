"""The pair rule against a slow, separate implementation by scikit-learn, and rule by rule."""

import numpy as np
import pytest
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.schemas.config import MiningConfig, SearchConfig
from pairwright.schemas.rows import Dropped, NeighbourRow, PairRow, make_key
from pairwright.tasks.mining.pair_neighbours import pair_neighbours
from pairwright.tasks.mining.search_neighbours import search_neighbours
from tests.fixtures.rows import row_of
from tests.fixtures.spaces import anchors_of, hash_of, image_keys, space_of

NAMES = ("colour-layout", "gradients")


def spaces_of(first, second):
    keys = image_keys(len(first))
    return dict(zip(NAMES, (space_of(first, keys), space_of(second, keys)), strict=True)), keys


def crowd(groups=6, size=20):
    """Return spaces of vectors in groups, the members of each in three looser subgroups."""
    rng = np.random.default_rng(0)
    raw = []
    for width in (12, 30):
        centres = np.repeat(rng.normal(size=(groups, width)), size, axis=0)
        parts = np.repeat(rng.normal(size=(groups * 4, width)), size // 4, axis=0)
        scale = rng.uniform(0.5, 2, (groups * size, 1))
        raw.append(scale * (centres + 0.45 * parts + 0.12 * rng.normal(size=centres.shape)))
    return spaces_of(*raw)


def slow_pairs(vectors, keys, *, k, config):
    """Yield, by the rules as they are written down, each anchor with the best of each of its
    clusters.

    The best are all that come within what the rounding of the stored vectors can turn round.
    """
    unit = [vectors[name].matrix.astype(np.float64) for name in NAMES]
    for anchor in range(len(keys)):
        near = []
        for matrix in unit:
            similar = np.float32(matrix @ matrix[anchor])
            others = [i for i in range(len(keys)) if i != anchor]
            others = sorted(others, key=lambda i: (-similar[i], i))[:k]
            if max(similar[others]) < config.min_best_similarity:
                break
            low, high = config.min_similarity, config.max_similarity
            near.append({i for i in others if low <= similar[i] <= high})
        else:
            candidates = sorted(set.intersection(*near))
            scale = [1 if config.normalised else vectors[name].norms[:, None] for name in NAMES]
            parts = [w * m * s for w, m, s in zip(config.weights, unit, scale, strict=True)]
            joined = np.hstack(parts)
            if not candidates:
                continue
            labels = np.arange(len(candidates))
            if len(candidates) > config.clusters:
                settings = {"gamma": config.gamma, "random_state": config.seed}
                clustering = SpectralClustering(config.clusters, affinity="rbf", **settings)
                labels = clustering.fit_predict(joined[candidates])
            length = np.linalg.norm(joined, axis=1)
            cosines = joined @ joined[anchor] / length / length[anchor]
            for cluster in set(labels):
                inside = np.array(candidates)[labels == cluster]
                best = inside[cosines[inside] > cosines[inside].max() - 3e-4]
                yield keys[anchor], {keys[place] for place in best}


def partner_of(pair, anchor):
    return pair.second if pair.first == anchor else pair.first


@pytest.mark.parametrize("normalised", [True, False])
def test_equals_the_slow_rule(normalised) -> None:
    vectors, keys = crowd()
    bounds = {"min_best_similarity": 0.8, "min_similarity": 0.7, "max_similarity": 0.985}
    config = MiningConfig(**bounds, weights=(0.4, 0.6), normalised=normalised)
    rows = list(search_neighbours(anchors_of(keys), SearchConfig(k=16), vectors=vectors))
    results = list(pair_neighbours(rows, config, vectors=vectors))
    with threadpool_limits(1):
        expected = list(slow_pairs(vectors, keys, k=16, config=config))
    pairs = [row for row in results if isinstance(row, PairRow)]
    partners = {key: set() for key in keys}
    for pair in pairs:
        partners[pair.anchor].add(partner_of(pair, pair.anchor))
    assert len(pairs) == len(expected) > 50
    assert all(partners[anchor] & best for anchor, best in expected)
    assert sum(len(best) for _, best in expected) < 1.1 * len(expected)
    assert {row.source_key for row in results} == {row.key for row in rows}


def hand(first, second):
    """Return an anchor's row with these similarities in two spaces, the spaces, and the others."""
    vectors, (anchor, *others) = spaces_of(*[np.eye(len(first) + 1)] * 2)
    ranked = [
        sorted(zip(map(float, values), others, strict=True), reverse=True)
        for values in (first, second)
    ]
    row = NeighbourRow(
        key="row",
        source_key=anchor,
        subject=anchor,
        embedders=NAMES,
        neighbours=tuple(tuple(key for _, key in space) for space in ranked),
        similarities=tuple(tuple(similarity for similarity, _ in space) for space in ranked),
    )
    return row, vectors, others


def pair(first, second, **config):
    """Return the pairs by the numbers of the other images."""
    row, vectors, others = hand(first, second)
    pairs = list(pair_neighbours([row], MiningConfig(**config), vectors=vectors))
    return {others.index(partner_of(pair, row.subject)): pair for pair in pairs}


def refuse(first, second, **config):
    """Return the reason and the detail of an anchor without pairs."""
    row, vectors, _ = hand(first, second)
    (dropped,) = pair_neighbours([row], MiningConfig(**config), vectors=vectors)
    assert isinstance(dropped, Dropped)
    assert dropped.source_key == "row"
    return dropped.reason, dropped.detail


def test_the_set_filter_looks_at_the_raw_neighbours() -> None:
    reason = "nothing similar enough in {} (mining.min_best_similarity=0.8)"
    assert refuse([0.79, 0.9], [0.79, 0.7]) == (reason.format("gradients"), "best 0.7900")
    assert refuse([0.5, 0.6], [0.79, 0.7])[0] == reason.format("colour-layout")
    pairs = pair([0.99, 0.785], [0.99, 0.785])
    assert list(pairs) == [1], "the best is too near to be paired, but lets the set pass"
    assert pairs[1].similarities == (0.785, 0.785)


def test_the_bounds_belong_to_the_band() -> None:
    assert list(pair([0.8], [0.8])) == [0]
    pairs = pair([0.75, 0.875], [0.75, 0.875], min_similarity=0.75, max_similarity=0.875)
    assert list(pairs) == [0, 1]


def test_the_second_set_test_looks_at_the_raw_neighbours_or_the_kept_ones() -> None:
    reason = (
        "one of its neighbours too far in colour-layout (mining.min_worst_similarity=0.78, "
        "mining.check_worst={})"
    )
    refusal = refuse([0.9, 0.7], [0.9, 0.9], check_worst="before")
    assert refusal == (reason.format("before"), "worst 0.7000")
    assert list(pair([0.9, 0.7], [0.9, 0.9], check_worst="none")) == [0]
    assert list(pair([0.9, 0.7], [0.9, 0.9], check_worst="after")) == [0]
    refusal = refuse([0.9, 0.72], [0.9, 0.72], check_worst="after", min_similarity=0.7)
    assert refusal == (reason.format("after"), "worst 0.7200")


def test_candidates_must_fit_in_every_space() -> None:
    bounds = "(mining.min_similarity=0.78, mining.max_similarity=0.95)"
    assert refuse([0.9, 0.7, 0.97], [0.96, 0.9, 0.9]) == (
        f"no neighbour as similar as a pair may be {bounds}",
        "colour-layout: 3 neighbours of 0.7000 to 0.9700, 1 too far, 1 too near; "
        "gradients: 3 neighbours of 0.9000 to 0.9600, 0 too far, 1 too near",
    )
    assert list(pair([0.9, 0.7, 0.97, 0.9], [0.96, 0.9, 0.9, 0.9])) == [3]
    assert refuse([], []) == ("no neighbours", "colour-layout")
    assert list(pair_neighbours([], MiningConfig(), vectors={})) == []


def test_fewer_candidates_than_clusters_are_all_paired() -> None:
    """The similarity is (0.16 * 0.9 + 0.36 * 0.85) / 0.52."""
    pairs = pair([0.9, 0.8], [0.85, 0.95])
    assert set(pairs) == {row.cluster for row in pairs.values()} == {0, 1}
    row = pairs[0]
    assert row.similarity == pytest.approx(0.865385)
    assert row.similarities == (0.9, 0.85)
    assert row.first < row.second
    assert row.key == row.subject == make_key("pair", row.first, row.second)
    assert (row.origin, row.source_key) == ("mined", "row")
    like = [0.8, 0.9, 0.9, 0.9]
    assert list(pair(like, like, clusters=1)) == [1], "the first in the order of keys"


def pair_hashed(bits, **config):
    """Pair an anchor with neighbours whose hashes differ in so many bits; return those it has."""
    row, vectors, others = hand([0.9] * len(bits), [0.9] * len(bits))
    hashes = np.stack([hash_of(number) for number in (0, *bits)])
    keys = [key.decode() for key in vectors[NAMES[0]].keys]
    spaces = vectors | {"perceptual-hash": space_of(hashes, keys)}
    rows = list(pair_neighbours([row], MiningConfig(**config), vectors=spaces))
    if isinstance(rows[0], Dropped):
        return rows[0].reason, rows[0].detail
    return sorted(others.index(partner_of(row, row.anchor)) for row in rows)


def test_near_identical_neighbours_are_left_out_before_all_else() -> None:
    bits = [0, 2, 3, 40]
    assert pair_hashed(bits, min_hash_distance=3) == [2, 3]
    reason, _ = pair_hashed(bits, min_hash_distance=3, min_best_similarity=0.95)
    assert reason == "nothing similar enough in colour-layout (mining.min_best_similarity=0.95)"
    identical = ("only near-identical neighbours (mining.min_hash_distance=2)", "2 of them")
    assert pair_hashed([0, 1], min_hash_distance=2) == identical


@pytest.mark.parametrize(("quota", "expected"), [(1, [1]), (2, [1, 3]), (9, [1, 3, 0, 2])])
def test_a_cluster_gives_its_most_similar_candidates_up_to_its_quota(quota, expected) -> None:
    similarities = [0.85, 0.92, 0.8, 0.9]
    pairs = pair(similarities, similarities, clusters=1, max_per_cluster=quota)
    assert list(pairs) == expected
    assert {row.cluster for row in pairs.values()} == {0}
    for other, row in pairs.items():
        assert row.similarity == pytest.approx(similarities[other])


DISTANCES = (0.1, 0.2, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Partners at 0.1 and 0.2, strangers from the fourth to the eighth: 0.6 in the mean."""


@pytest.mark.parametrize(
    ("ratio", "group", "count"),
    [
        pytest.param(0.18, 3, 1, id="0.1 / 0.6 is a sixth"),
        pytest.param(0.34, 3, 2, id="0.2 / 0.6 is a third"),
        pytest.param(0.99, 3, 2, id="of three that show one thing"),
        pytest.param(1, 3, 9, id="any"),
        pytest.param(0.16, 9, 9, id="no strangers are known"),
    ],
)
def test_candidates_are_far_nearer_than_strangers(ratio, group, count) -> None:
    assert [type(row) for row in pair_by_ratio(ratio, group)] == [PairRow] * count
    (dropped,) = pair_by_ratio(0.16, 3)
    assert dropped.reason == "no candidate nearer than strangers (mining.max_ratio=0.16)"


def pair_by_ratio(ratio, group):
    keys = tuple(make_key("near", number) for number in range(9))
    similarities = tuple(1 - distance for distance in DISTANCES)
    values = {"neighbours": (keys, keys), "similarities": (similarities, similarities)}
    row = row_of(NeighbourRow, source="anchor", embedders=NAMES, **values)
    vectors = dict.fromkeys(NAMES, space_of(np.eye(9), sorted(keys)))
    band = {"min_best_similarity": 0, "min_similarity": 0, "max_similarity": 1}
    quotas = {"clusters": 9, "max_per_cluster": 9}
    config = MiningConfig(max_ratio=ratio, group=group, **band, **quotas)
    return list(pair_neighbours([row], config, vectors=vectors))
