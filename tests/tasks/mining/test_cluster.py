"""Partitions are scikit-learn's; where it raises or leaves it to chance, rules hold."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.tasks.mining.cluster import spectral_labels

Features = NDArray[np.float32]
Labels = NDArray[np.int32]


def unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def flat(rng: np.random.Generator, n: int, d: int) -> Features:
    """One anchor's neighbours without structure, cosines about 0.8: affinities lie in [0.96, 1]."""
    return unit(rng.normal(size=d) + 0.5 * rng.normal(size=(n, d))).astype(np.float32)


def grouped(rng: np.random.Generator, n: int, d: int) -> Features:
    centres = rng.normal(size=d) + 0.4 * rng.normal(size=(3, d))
    return unit(centres[rng.integers(0, 3, n)] + 0.3 * rng.normal(size=(n, d))).astype(np.float32)


def raw(rng: np.random.Generator, n: int, d: int) -> Features:
    """Two parts with the norms of CLIP (10) and DINOv2 (46) features, weighted: affinities from
    1e-3 to 1e-15."""
    parts = [
        w * unit(rng.normal(size=d // 2) + 0.4 * rng.normal(size=(n, d // 2)))
        for w in (0.4 * 10, 0.6 * 46)
    ]
    return np.concatenate(parts, axis=1).astype(np.float32)


KINDS = (flat, grouped, raw)


def reference(features: Features, n_clusters: int = 3, gamma: float = 0.1, seed: int = 0) -> Labels:
    model = SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        warnings.filterwarnings(
            "ignore", "The spectral clustering API has changed"
        )  # said of as many rows as columns
        return model.fit(features).labels_


def labelled(*sets: Features, **settings: float) -> list[Labels]:
    """Return the labels of sets whose rows stand in one table."""
    ends = np.cumsum([len(one) for one in sets])
    return spectral_labels(
        np.concatenate(sets), np.split(np.arange(ends[-1]), ends[:-1]), **settings
    )


def same_partition(left: Labels, right: Labels) -> bool:
    return bool(np.array_equal(left[:, None] == left, right[:, None] == right))


def count_mismatches(sets: list[Features], **settings: float) -> int:
    with threadpool_limits(1):
        pairs = zip(
            labelled(*sets, **settings), (reference(one, **settings) for one in sets), strict=True
        )
        return sum(not same_partition(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize(
    ("count", "most"), [(60, 1), pytest.param(1000, 3, marks=pytest.mark.slow)]
)
def test_partition_is_scikit_learns(count: int, most: int):
    """On 999 of 1,000 sets."""
    rng = np.random.default_rng(1)
    sets = [
        [KINDS[i % 3](rng, int(rng.integers(4, 65)), d) for i in range(count)] for d in (16, 40, 96)
    ]
    assert sum(map(count_mismatches, sets)) <= most


@pytest.mark.parametrize(("n_clusters", "gamma", "seed"), [(2, 0.1, 0), (4, 1.0, 7), (5, 0.1, 123)])
def test_other_settings_follow_scikit_learn(n_clusters: int, gamma: float, seed: int):
    rng = np.random.default_rng(3)
    sets = [KINDS[i % 2](rng, int(rng.integers(n_clusters + 1, 33)), 48) for i in range(60)]
    assert count_mismatches(sets, n_clusters=n_clusters, gamma=gamma, seed=seed) <= 1


def test_labels_depend_on_nothing_but_the_set():
    rng = np.random.default_rng(6)
    vectors = np.concatenate([grouped(rng, 100, 40), flat(rng, 100, 40)])
    sets = [rng.permutation(200)[:n] for n in rng.integers(0, 65, 300)]
    together = spectral_labels(vectors, sets)
    assert [len(one) for one in together] == [len(one) for one in sets]
    for one, labels in zip(sets, together, strict=True):
        assert np.array_equal(spectral_labels(vectors, [one])[0], labels)
    assert not all(map(np.array_equal, together, spectral_labels(vectors, sets, seed=1)))


@pytest.mark.parametrize("n", range(4))
def test_no_more_candidates_than_clusters_are_each_their_own(n: int):
    vectors = np.random.default_rng(7).normal(size=(4, 5)).astype(np.float32)
    assert spectral_labels(vectors, [np.arange(n)])[0].tolist() == list(range(n))


def test_one_cluster_no_sets_and_rows_that_are_identical():
    assert labelled(np.eye(6, dtype=np.float32), n_clusters=1)[0].tolist() == [0] * 6
    assert spectral_labels(np.zeros((3, 4), np.float32), []) == []
    rng = np.random.default_rng(8)
    distinct = grouped(rng, 10, 32)
    source = np.array([0, 1, 2, 1, 3, 4, 5, 0, 6, 7, 1, 8, 9, 9])
    labels, expected = labelled(distinct[source], distinct)
    assert np.array_equal(labels, expected[source])
    row = flat(np.random.default_rng(10), 1, 1792)[0]
    almost = row.copy()
    almost[5] = np.nextafter(row[5], np.float32(1))
    assert labelled(np.stack([row, almost, row]))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("source", [[0, 0], [0, 0, 1, 0], [0, 1, 1, 2, 0, 2], [0] * 9])
def test_few_distinct_rows_are_each_their_own_cluster(source: list[int]):
    assert labelled(flat(np.random.default_rng(9), 3, 200)[source])[0].tolist() == source


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e3])
def test_sets_without_any_structure_still_get_labels(scale: float):
    # All distances are equal: every eigenvector is as good; at 1e3 all affinities are 0.
    features = np.float32(scale) * np.eye(12, dtype=np.float32)
    first, again = (labelled(features)[0] for _ in range(2))
    assert set(first) <= {0, 1, 2}
    assert np.array_equal(first, again)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_impossible_features_are_refused_by_the_set_they_are_in(value: float):
    sets = [flat(np.random.default_rng(i), 9, 20) for i in range(6)]
    sets[4][-1, 17] = value
    with pytest.raises(ValueError, match=r"set 4: .*NaN"):
        labelled(*sets)
