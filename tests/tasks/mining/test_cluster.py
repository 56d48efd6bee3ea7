"""Partitions are scikit-learn's; where it raises or leaves it to chance, rules hold."""

import warnings

import numpy as np
import pytest
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.tasks.mining.cluster import spectral_labels


def unit(values):
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def flat(rng, n, d):
    """One anchor's neighbours without structure, cosines about 0.8: affinities lie in [0.96, 1]."""
    return unit(rng.normal(size=d) + 0.5 * rng.normal(size=(n, d))).astype(np.float32)


def grouped(rng, n, d):
    centres = rng.normal(size=d) + 0.4 * rng.normal(size=(3, d))
    return unit(centres[rng.integers(0, 3, n)] + 0.3 * rng.normal(size=(n, d))).astype(np.float32)


def raw(rng, n, d):
    """Two weighted parts with the norms of CLIP (10) and DINOv2 (46) features: affinities from
    1e-3 to 1e-15."""

    def part(weight):
        return weight * unit(rng.normal(size=d // 2) + 0.4 * rng.normal(size=(n, d // 2)))

    return np.concatenate([part(0.4 * 10), part(0.6 * 46)], axis=1).astype(np.float32)


KINDS = (flat, grouped, raw)


def reference(features, n_clusters=3, gamma=0.1, seed=0):
    model = SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        warnings.filterwarnings("ignore", "The spectral clustering API has changed")
        return model.fit(features).labels_


def labels_of(*sets, **settings):
    """Return the labels of sets whose rows stand in one table."""
    ends = np.cumsum([len(rows) for rows in sets])
    places = np.split(np.arange(ends[-1]), ends[:-1])
    return spectral_labels(np.concatenate(sets), places, **settings)


def is_same(left, right):
    return np.array_equal(left[:, None] == left, right[:, None] == right)


@threadpool_limits.wrap(limits=1)
def count_mismatches(sets, **settings):
    expected = (reference(rows, **settings) for rows in sets)
    results = labels_of(*sets, **settings)
    return sum(not is_same(*both) for both in zip(results, expected, strict=True))


@pytest.mark.parametrize(
    ("count", "most"), [(60, 1), pytest.param(1000, 3, marks=pytest.mark.slow)]
)
def test_the_partition_is_scikit_learns(count, most) -> None:
    """Of 999 of 1,000 sets."""
    rng = np.random.default_rng(1)
    mismatches = 0
    for width in (16, 40, 96):
        sets = [KINDS[i % 3](rng, int(rng.integers(4, 65)), width) for i in range(count)]
        mismatches += count_mismatches(sets)
    assert mismatches <= most


@pytest.mark.parametrize(("n_clusters", "gamma", "seed"), [(2, 0.1, 0), (4, 1.0, 7), (5, 0.1, 123)])
def test_other_settings_follow_scikit_learn(n_clusters, gamma, seed) -> None:
    rng = np.random.default_rng(3)
    sets = [KINDS[i % 2](rng, int(rng.integers(n_clusters + 1, 33)), 48) for i in range(40)]
    assert count_mismatches(sets, n_clusters=n_clusters, gamma=gamma, seed=seed) <= 1


def test_labels_depend_on_nothing_but_the_set() -> None:
    rng = np.random.default_rng(6)
    vectors = np.concatenate([grouped(rng, 100, 40), flat(rng, 100, 40)])
    sets = [rng.permutation(200)[:n] for n in rng.integers(0, 65, 100)]
    together = spectral_labels(vectors, sets)
    for rows, labels in zip(sets, together, strict=True):
        assert len(labels) == len(rows)
        assert np.array_equal(spectral_labels(vectors, [rows])[0], labels)
    assert not all(map(np.array_equal, together, spectral_labels(vectors, sets, seed=1)))


def test_few_candidates_one_cluster_and_no_sets() -> None:
    vectors = np.random.default_rng(7).normal(size=(4, 5)).astype(np.float32)
    for n in range(4):
        assert spectral_labels(vectors, [np.arange(n)])[0].tolist() == list(range(n))
    assert labels_of(np.eye(6, dtype=np.float32), n_clusters=1)[0].tolist() == [0] * 6
    assert spectral_labels(np.zeros((3, 4), np.float32), []) == []


def test_rows_that_are_identical_count_once() -> None:
    distinct = grouped(np.random.default_rng(8), 10, 32)
    source = np.array([0, 1, 2, 1, 3, 4, 5, 0, 6, 7, 1, 8, 9, 9])
    labels, expected = labels_of(distinct[source], distinct)
    assert np.array_equal(labels, expected[source])


def test_rows_that_are_nearly_identical_count_twice() -> None:
    row = flat(np.random.default_rng(10), 1, 1792)[0]
    almost = row.copy()
    almost[5] = np.nextafter(row[5], np.float32(1))
    assert labels_of(np.stack([row, almost, row]))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("source", [[0, 0], [0, 0, 1, 0], [0, 1, 1, 2, 0, 2], [0] * 9])
def test_few_distinct_rows_are_each_their_own_cluster(source) -> None:
    assert labels_of(flat(np.random.default_rng(9), 3, 200)[source])[0].tolist() == source


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e3])
def test_sets_without_any_structure_still_get_labels(scale) -> None:
    """All distances are equal, so every eigenvector is as good; at 1e3 all affinities are 0."""
    features = np.float32(scale) * np.eye(12, dtype=np.float32)
    first, again = (labels_of(features)[0] for _ in range(2))
    assert set(first) <= {0, 1, 2}
    assert np.array_equal(first, again)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_impossible_features_are_refused_by_the_set_they_are_in(value) -> None:
    sets = [flat(np.random.default_rng(i), 9, 20) for i in range(6)]
    sets[4][-1, 17] = value
    with pytest.raises(ValueError, match=r"set 4: .*NaN"):
        labels_of(*sets)
