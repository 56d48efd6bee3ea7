"""Bounds of similarity by quantiles of an album's own random pairs."""

import numpy as np
import pytest

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.mining.choose_bounds import choose_bounds
from pairwright.tasks.store.vectors import Vectors


def vectors_of(matrix):
    count = len(matrix)
    keys = np.array([f"{number:032x}".encode() for number in range(count)], dtype="S32")
    norms = np.linalg.norm(matrix, axis=1)
    units = (matrix / norms[:, None]).astype(np.float16)
    return Vectors(keys, units, norms.astype(np.float32))


@pytest.fixture(scope="module")
def album():
    """Return 300 vectors of 8 numbers, all on one side, as encoders' are."""
    rng = np.random.default_rng(3)
    return vectors_of(rng.normal(size=(300, 8)) + 1)


def test_the_lower_bound_is_the_quantile_of_all_pairs(album):
    config = choose_bounds(album, MiningConfig(quantile=0.95))
    units = album.matrix.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
    assert config.min_similarity == pytest.approx(np.quantile(cosines, 0.95), abs=0.01)
    distance = 1 - config.min_similarity
    assert config.min_best_similarity == pytest.approx(1 - distance * 20 / 22, abs=1e-4)
    assert config.max_similarity == pytest.approx(1 - distance * 5 / 22, abs=1e-4)


def test_the_papers_lower_bound_gives_the_papers_other_two():
    """Two images at a cosine of 0.78: every random pair has it."""
    angle = np.arccos(0.78)
    album = vectors_of(np.array([[1, 0], [np.cos(angle), np.sin(angle)]]))
    config = choose_bounds(album, MiningConfig(quantile=0.5))
    assert config.min_similarity == pytest.approx(0.78, abs=1e-3)
    assert config.min_best_similarity == pytest.approx(0.80, abs=1e-3)
    assert config.max_similarity == pytest.approx(0.95, abs=1e-3)


def test_bounds_are_the_same_each_time_and_stay_without_a_quantile(album):
    config = MiningConfig(quantile=0.9, seed=5)
    assert choose_bounds(album, config) == choose_bounds(album, config)
    assert choose_bounds(album, MiningConfig()) == MiningConfig()
    alone = vectors_of(np.ones((1, 4)))
    assert choose_bounds(alone, config) == config
