import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from threadpoolctl import threadpool_limits

from pairwright.tasks.mining.cluster import CandidateSets, spectral_labels, spectral_labels_gathered

Features = NDArray[np.float32]


def unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def flat(rng: np.random.Generator, n: int, d: int) -> Features:
    """One anchor's neighbours without structure, cosines about 0.8: affinities lie in [0.96, 1]."""
    return unit(rng.normal(size=d) + 0.5 * rng.normal(size=(n, d))).astype(np.float32)


def grouped(rng: np.random.Generator, n: int, d: int) -> Features:
    centres = rng.normal(size=d) + 0.4 * rng.normal(size=(3, d))
    return unit(centres[rng.integers(0, 3, n)] + 0.3 * rng.normal(size=(n, d))).astype(np.float32)


def raw(rng: np.random.Generator, n: int, d: int) -> Features:
    """Two parts with the norms of CLIP (10) and DINOv2 (46) features, weighted: affinities from 1e-3 to 1e-15."""
    parts = [w * unit(rng.normal(size=d // 2) + 0.4 * rng.normal(size=(n, d // 2))) for w in (0.4 * 10, 0.6 * 46)]
    return np.concatenate(parts, axis=1).astype(np.float32)


KINDS = (flat, grouped, raw)


def reference(features: Features, n_clusters: int = 3, gamma: float = 0.1, seed: int = 0) -> NDArray[np.int32]:
    model = SpectralClustering(n_clusters, affinity="rbf", gamma=gamma, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        warnings.filterwarnings("ignore", "The spectral clustering API has changed")  # said of as many rows as columns
        return model.fit(features).labels_


def same_partition(left: NDArray[np.int32], right: NDArray[np.int32]) -> bool:
    return bool(np.array_equal(left[:, None] == left, right[:, None] == right))


def gathered(sets: list[Features]) -> tuple[Features, CandidateSets]:
    ends = np.cumsum([len(one) for one in sets])
    return np.concatenate(sets), CandidateSets(np.arange(ends[-1]), np.append(0, ends))


def count_mismatches(sets: list[Features], **settings: float) -> int:
    vectors, rows = gathered(sets)
    labels = np.split(spectral_labels_gathered(vectors, rows, **settings), rows.offsets[1:-1])
    with threadpool_limits(1):
        return sum(not same_partition(ours, reference(one, **settings)) for ours, one in zip(labels, sets, strict=True))


def test_partition_is_scikit_learns():
    rng = np.random.default_rng(1)
    for d in (16, 40, 96):
        assert count_mismatches([KINDS[i % 3](rng, int(rng.integers(4, 65)), d) for i in range(60)]) <= 1


@pytest.mark.slow
def test_partition_is_scikit_learns_on_999_in_1000_sets():
    rng = np.random.default_rng(1)
    mismatches = 0
    for d in (16, 40, 96):
        mismatches += count_mismatches([KINDS[i % 3](rng, int(rng.integers(4, 65)), d) for i in range(1000)])
    assert mismatches <= 3


def test_partition_is_scikit_learns_at_the_papers_width():
    rng = np.random.default_rng(2)
    assert count_mismatches([KINDS[i % 3](rng, 4 + 2 * i, 1792) for i in range(31)]) == 0


@pytest.mark.parametrize(("n_clusters", "gamma", "seed"), [(2, 0.1, 0), (4, 1.0, 7), (5, 0.1, 123)])
def test_other_settings_follow_scikit_learn(n_clusters: int, gamma: float, seed: int):
    rng = np.random.default_rng(3)
    sets = [KINDS[i % 2](rng, int(rng.integers(n_clusters + 1, 33)), 48) for i in range(200)]
    assert count_mismatches(sets, n_clusters=n_clusters, gamma=gamma, seed=seed) <= 1


def test_the_seed_matters():
    features = np.stack([flat(np.random.default_rng(seed), 40, 32) for seed in range(20)])
    labels = [spectral_labels(features, 3, 0.1, seed) for seed in (0, 1)]
    assert not all(same_partition(*pair) for pair in zip(*labels, strict=True))


@pytest.mark.parametrize(("groups", "far"), [((0, 3, 6), 9000), ((0, 3, 500), 9000), ((0, 12, 24), 28)])
@pytest.mark.parametrize("place", [0, 20])
def test_a_row_far_from_all_others_costs_no_precision(place: int, groups: tuple[int, ...], far: int):
    # At 9000, squared distances of about 10 are lost in float32 norms of 10 ** 8 if they are taken from there, and all
    # its affinities are 0, so that it has no part in the first eigenvector. At 28 its degree is about 1e-32, so that
    # rounding in an eigenvector is magnified 1e16 times.
    rng = np.random.default_rng(4)
    for _ in range(20):
        near = rng.choice(groups, (20, 1)) * [1, 0] + rng.normal(size=(20, 2))
        features = np.insert(near, place, [0, far], axis=0).astype(np.float32)
        assert same_partition(spectral_labels(features[None])[0], reference(features))


def test_labels_depend_on_nothing_but_the_set():
    rng = np.random.default_rng(5)
    features = np.stack([KINDS[i % 3](rng, 12, 64) for i in range(60)])
    labels = spectral_labels(features)
    order = rng.permutation(60)
    assert np.array_equal(spectral_labels(features[order]), labels[order])
    assert np.array_equal(np.concatenate([spectral_labels(features[:7]), spectral_labels(features[7:])]), labels)
    assert all(np.array_equal(spectral_labels(features, threads=threads), labels) for threads in (2, 3, 64))
    assert np.array_equal(spectral_labels(features.copy(order="F")), labels)


def test_sets_of_all_sizes_gathered_at_once_equal_those_alone():
    rng = np.random.default_rng(6)
    vectors = np.concatenate([grouped(rng, 100, 40), flat(rng, 100, 40)])
    vectors.flags.writeable = False
    sets = [rng.permutation(200)[:n].astype(np.uint16) for n in rng.integers(0, 65, 80)]
    rows = CandidateSets(np.concatenate(sets), np.append(0, np.cumsum([len(one) for one in sets])))
    together = np.split(spectral_labels_gathered(vectors, rows, threads=2), rows.offsets[1:-1])
    for one, labels in zip(sets, together, strict=True):
        assert np.array_equal(labels, spectral_labels(vectors[one][None])[0])


@pytest.mark.parametrize("n", range(4))
def test_no_more_candidates_than_clusters_are_each_their_own(n: int):
    features = np.random.default_rng(7).normal(size=(2, n, 5)).astype(np.float32)
    labels = spectral_labels(features)
    assert labels.shape == (2, n)
    assert labels.tolist() == [list(range(n))] * 2


def test_one_cluster_holds_all():
    assert spectral_labels(np.eye(6, dtype=np.float32)[None], n_clusters=1).tolist() == [[0] * 6]


def test_no_sets_have_no_labels():
    assert spectral_labels(np.zeros((0, 5, 4), np.float32)).shape == (0, 5)
    none = CandidateSets(np.zeros(0, np.int64), np.zeros(1, np.int64))
    assert spectral_labels_gathered(np.zeros((3, 4), np.float32), none).shape == (0,)


def test_identical_rows_share_a_label_and_do_not_sway_the_others():
    rng = np.random.default_rng(8)
    distinct = grouped(rng, 10, 32)
    source = np.array([0, 1, 2, 1, 3, 4, 5, 0, 6, 7, 1, 8, 9, 9])
    labels = spectral_labels(distinct[source][None])[0]
    assert np.array_equal(labels, spectral_labels(distinct[None])[0][source])


@pytest.mark.parametrize("source", [[0, 0], [0, 0, 1, 0], [0, 1, 1, 2, 0, 2], [0] * 9])
def test_few_distinct_rows_are_each_their_own_cluster(source: list[int]):
    rows = flat(np.random.default_rng(9), 3, 200)
    assert spectral_labels(rows[source][None])[0].tolist() == source


def test_rows_that_differ_in_one_bit_are_not_identical():
    row = flat(np.random.default_rng(10), 1, 1792)[0]
    almost = row.copy()
    almost[5] = np.nextafter(row[5], np.float32(1))
    assert spectral_labels(np.stack([row, almost, row])[None]).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e3])
def test_sets_without_any_structure_still_get_labels(scale: float):
    # All distances are equal: every eigenvector is as good; at 1e3 all affinities are 0.
    labels = spectral_labels(np.float32(scale) * np.eye(12, dtype=np.float32)[None])
    assert set(labels[0]) <= {0, 1, 2}
    assert np.array_equal(labels, spectral_labels(np.float32(scale) * np.eye(12, dtype=np.float32)[None]))


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_impossible_features_are_refused_by_the_set_they_are_in(value: float, row: int, n: int):
    features = np.stack([flat(np.random.default_rng(i), n, 20) for i in range(6)])
    features[4, row, 17] = value
    for threads in (1, 2):
        with pytest.raises(ValueError, match=r"set 4: .*NaN"):
            spectral_labels(features, threads=threads)


def test_rows_outside_all_sets_are_not_looked_at():
    vectors = np.stack([np.full(3, np.nan), *np.eye(3)]).astype(np.float32)
    rows = CandidateSets(np.array([1, 2, 3]), np.array([0, 3]))
    assert spectral_labels_gathered(vectors, rows).tolist() == [0, 1, 2]


FINE = np.zeros((2, 4, 3), np.float32)


@pytest.mark.parametrize(
    ("features", "settings", "error", "message"),
    [
        (FINE.astype(np.float64), {}, TypeError, "float64"),
        (FINE.tolist(), {}, TypeError, "list"),
        (FINE[0], {}, ValueError, "3 dimensions"),
        (FINE[:, :, :0], {}, ValueError, "columns"),
        (FINE, {"n_clusters": 0}, ValueError, "n_clusters"),
        (FINE, {"n_clusters": 2.5}, TypeError, "float"),
        (FINE, {"gamma": 0.0}, ValueError, "gamma"),
        (FINE, {"gamma": np.nan}, ValueError, "gamma"),
        (FINE, {"seed": -1}, ValueError, "Seed"),
        (FINE, {"threads": 0}, ValueError, "threads"),
    ],
)
def test_wrong_arguments_are_refused(features: Features, settings: dict[str, float], error: type, message: str):
    with pytest.raises(error, match=message):
        spectral_labels(features, **settings)


@pytest.mark.parametrize(
    ("indices", "offsets", "error", "message"),
    [
        ([0, 1, 4], [0, 3], ValueError, " 0 .* 3"),
        ([0, -1, 2], [0, 3], ValueError, " 0 .* 3"),
        ([0, 1, 2], [0, 2], ValueError, "offsets"),
        ([0, 1, 2], [0, 2, 1, 3], ValueError, "offsets"),
        ([0, 1, 2], [1, 3], ValueError, "offsets"),
        ([0, 1, 2], [], ValueError, "offsets"),
        ([0.0, 1.0, 2.0], [0, 3], TypeError, "indices"),
        ([[0, 1, 2]], [0, 3], TypeError, "indices"),
    ],
)
def test_wrong_sets_are_refused(indices: list[int], offsets: list[int], error: type, message: str):
    with pytest.raises(error, match=message):
        spectral_labels_gathered(FINE[0], CandidateSets(np.array(indices), np.array(offsets)))


def test_importing_loads_no_numba():
    code = "import sys, pairwright.tasks.mining.cluster; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
