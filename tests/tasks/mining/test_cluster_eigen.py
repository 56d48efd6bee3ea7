import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from pairwright.tasks.mining.cluster_eigen import EIGEN_ROWS, MIRROR, ROOT, fill_embedding
from pairwright.tasks.mining.cluster_kernel import new_scratch

Floats = NDArray[np.float64]


@njit
def fill(matrix: Floats, n: int, rows: Floats, count: int, dims: int) -> None:
    fill_embedding(matrix, n, rows, count, dims)


def normalise(affinity: Floats) -> tuple[Floats, Floats]:
    np.fill_diagonal(affinity, 0.0)
    roots = np.sqrt(affinity.sum(0))
    safe = np.where(roots > 0, roots, 1.0)
    return affinity / safe / safe[:, None], roots


def embed(matrix: Floats, roots: Floats, count: int, dims: int) -> Floats:
    n = len(roots)
    scratch = new_scratch(n, 8, dims)
    scratch.matrix[:n, :n] = matrix
    scratch.rows[MIRROR, :n] = roots
    scratch.rows[ROOT, :n] = np.where(roots > 0, roots, 1.0)
    fill(scratch.matrix, n, scratch.rows, count, dims)
    found = scratch.rows[EIGEN_ROWS : EIGEN_ROWS + dims, :n]
    return found - found.mean(1, keepdims=True)


def expected(matrix: Floats, roots: Floats, columns: slice) -> Floats:
    vectors = np.linalg.eigh(matrix)[1][:, ::-1][:, columns].T / np.where(roots > 0, roots, 1.0)
    return vectors - vectors.mean(1, keepdims=True)


def distances(points: Floats) -> Floats:
    return ((points[:, :, None] - points[:, None, :]) ** 2).sum(0)


@pytest.mark.parametrize("n", [4, 9, 31, 130])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_vectors_are_those_of_lapack(n: int, spread: float):
    # The smaller the spread, the nearer are all eigenvalues but the first to each other.
    exponents = np.random.default_rng(n).uniform(0, spread, (n, n))
    matrix, roots = normalise(np.exp(-(exponents + exponents.T)))
    found, wanted = embed(matrix, roots, 2, 2), expected(matrix, roots, slice(1, 3))
    signs = np.sign((found * wanted).sum(1, keepdims=True))
    assert found == pytest.approx(signs * wanted, abs=1e-7 * np.abs(wanted).max())


def test_equal_eigenvalues_span_the_space_of_lapacks_vectors():
    # Four unconnected triangles: the eigenvalue 1 four times; one row alone: its first vector is not constant.
    affinity = np.kron(np.eye(4), np.ones((3, 3)))
    affinity = np.pad(affinity, (0, 1))
    matrix, roots = normalise(affinity)
    found = embed(matrix, roots, 3, 4)
    assert distances(found) == pytest.approx(distances(expected(matrix, roots, slice(0, 4))), abs=1e-12)


def test_a_matrix_of_zeros_has_finite_orthogonal_vectors():
    found = embed(np.zeros((9, 9)), np.zeros(9), 2, 2)
    assert np.isfinite(found).all()
    assert np.linalg.matrix_rank(found) == 2
