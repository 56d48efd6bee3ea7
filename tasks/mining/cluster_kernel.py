"""Cluster many sets of rows in one compiled loop: the part of ``cluster.py`` that needs numba.

Reads rows of one float32 matrix by index, writes one label per index; imported only when sets are clustered.

For each set: gather its rows, Gram matrix in float32, then in float64 squared distances, RBF affinity, normalised
Laplacian, the ``k - 1`` eigenvectors after the constant one (``cluster_eigen``) and k-means with scikit-learn's random
draws (``cluster_kmeans``). What is done differently, and why the partition is the same:

* Rows are centred on the set's first row, so that float32 rounds the differences between neighbours, not their norms;
  where that row is itself far away, distances are taken again in float64.
* The first eigenvector is known, so it is reflected away; its constant column would not change any distance (it is
  not constant, and is kept, if some row is so far from all others that its affinities are 0).
* Signs are not normalised: k-means does not change under reflection.
* A k-means run that reaches a partition that an earlier run passed through ends there: both would go on alike.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import float32
from numpy.typing import DTypeLike, NDArray

from pairwright.tasks.mining.cluster_eigen import EIGEN_ROWS, HIGH, LOW, MIRROR, ROOT, START, UPDATE, fill_embedding
from pairwright.tasks.mining.cluster_jit import (
    LANES,
    Floats,
    Integers,
    Singles,
    compiled,
    compiled_entry,
    compiled_sum,
    row_numbers,
)
from pairwright.tasks.mining.cluster_kmeans import BEST, KEYS, MARKS, MARKS_WIDTH, fill_labels

TILE = 4  # rows by rows of a Gram tile: its 16 sums and 8 rows fit 32 vector registers
ROUGH = 1e-3  # below this share of the norms rounding in float32 takes four digits of a distance, or all
UNEVEN = 1e-6  # ratio of the roots of degrees under which ten digits or fewer are left
LEAST_VALUE = 0.01  # eigenvalue down to which to polish: dividing by less loses as much

(NORM,) = row_numbers(1, 2)
SAME, FIRST = row_numbers(MARKS, MARKS + 2)


class Scratch(NamedTuple):
    """Working memory of one thread: 4 n d + 16 n² bytes and 200 kB or so, for sets of at most ``n`` rows of ``d``."""

    block: Singles  # the set's centred rows
    pairs: Floats  # Gram matrix, then squared distances, then those of the embedded points
    matrix: Floats  # normalised affinity
    rows: Floats  # work vectors and the embedding, see cluster_eigen and cluster_kmeans
    centres: Floats  # of k-means, in k - 1 dimensions
    all_centres: Floats  # in k, for sets with a row that has no neighbours
    marks: Integers  # integer work vectors, see cluster_kmeans; which distinct row each row is, and the first of each


def new_scratch(n_rows: int, width: int, k: int) -> Scratch:
    """Allocate for sets of at most ``n_rows`` rows of ``width`` in ``k`` clusters."""
    n = -(-n_rows // LANES) * LANES
    rows = _aligned((EIGEN_ROWS + k, n + LANES * k))
    marks = _aligned((MARKS + 2, n + MARKS_WIDTH), np.int64)
    numbers = np.random.default_rng(0)
    rows[START] = numbers.uniform(0.5, 1.5, rows.shape[1])  # any start without symmetry serves inverse iteration
    marks[KEYS] = numbers.integers(-(2**63), 2**63, marks.shape[1])
    return Scratch(
        _aligned((n, -(-width // 16) * 16), np.float32),
        _aligned((n, n)),
        _aligned((n, n)),
        rows,
        _aligned((k, k - 1)),
        _aligned((k, k)),
        marks,
    )


def _aligned(shape: tuple[int, int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return zeros that start, as does each row of whole vectors, at a cache line: others cost half as much again."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


@compiled
def _gather(vectors: Singles, members: Integers, at: int, n: int, block: Singles) -> None:
    for i in range(n):
        row, first = members[at + i], members[at]
        for c in range(vectors.shape[1]):
            block[i, c] = vectors[row, c] - vectors[first, c]


@compiled_sum
def _fill_tile(block: Singles, i: int, j: int, out: Floats) -> None:
    """Fill in the 16 inner products of four rows with four rows, each number read once."""
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = float32(0)
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = float32(0)
    for c in range(block.shape[1]):
        x0, x1, x2, x3 = block[i, c], block[i + 1, c], block[i + 2, c], block[i + 3, c]
        y0, y1, y2, y3 = block[j, c], block[j + 1, c], block[j + 2, c], block[j + 3, c]
        s00, s01, s02, s03 = s00 + x0 * y0, s01 + x0 * y1, s02 + x0 * y2, s03 + x0 * y3
        s10, s11, s12, s13 = s10 + x1 * y0, s11 + x1 * y1, s12 + x1 * y2, s13 + x1 * y3
        s20, s21, s22, s23 = s20 + x2 * y0, s21 + x2 * y1, s22 + x2 * y2, s23 + x2 * y3
        s30, s31, s32, s33 = s30 + x3 * y0, s31 + x3 * y1, s32 + x3 * y2, s33 + x3 * y3
    out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = s00, s01, s02, s03
    out[i + 1, j], out[i + 1, j + 1], out[i + 1, j + 2], out[i + 1, j + 3] = s10, s11, s12, s13
    out[i + 2, j], out[i + 2, j + 1], out[i + 2, j + 2], out[i + 2, j + 3] = s20, s21, s22, s23
    out[i + 3, j], out[i + 3, j + 1], out[i + 3, j + 2], out[i + 3, j + 3] = s30, s31, s32, s33


@compiled
def _fill_distances(block: Singles, n: int, pairs: Floats, rows: Floats) -> tuple[bool, int]:
    """Fill the lower half of ``pairs`` with squared distances; say if all are finite and how many are rough."""
    for i in range(0, n, TILE):
        for j in range(0, i + 1, TILE):
            _fill_tile(block, i, j, pairs)
    sizes, rough = 0.0, 0
    for i in range(n):
        norm = pairs[i, i]
        rows[NORM, i] = norm
        sizes += norm
        for j in range(i):
            both = norm + rows[NORM, j]
            pairs[i, j] = max(both - 2.0 * pairs[i, j], 0.0)
            rough += 1 if pairs[i, j] <= ROUGH * both else 0
    return math.isfinite(sizes), rough


@compiled_sum
def _distance(vectors: Singles, a: int, b: int) -> float:
    """Return the squared distance of two rows in float64; it is 0 only if they are the same."""
    square = 0.0
    for c in range(vectors.shape[1]):
        square += (np.float64(vectors[a, c]) - np.float64(vectors[b, c])) ** 2
    return square


@compiled
def _refine(vectors: Singles, members: Integers, at: int, n: int, s: Scratch) -> int:
    """Measure rough distances again and keep the first of each group of identical rows; return how many are left."""
    distinct = 0
    for i in range(n):
        for j in range(i):
            if s.pairs[i, j] <= ROUGH * (s.rows[NORM, i] + s.rows[NORM, j]):
                s.pairs[i, j] = _distance(vectors, members[at + i], members[at + j])
        s.marks[SAME, i] = distinct
        for j in range(distinct):
            if s.pairs[i, s.marks[FIRST, j]] == 0.0:
                s.marks[SAME, i] = j
                break
        if s.marks[SAME, i] == distinct:
            s.marks[FIRST, distinct] = i
            for j in range(distinct):
                s.pairs[distinct, j] = s.pairs[i, s.marks[FIRST, j]]
            distinct += 1
    return distinct


@compiled
def _exp(x: float) -> float:
    """Return e to the power of ``x <= 0`` within two units in the last place, in a form that loops can vectorise."""
    x = max(x, -745.2)
    whole = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10
    p = 1.0 / 3628800.0 + r / 39916800.0
    p = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * p)
    p = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * p)
    p = 1.0 / 24.0 + r * (1.0 / 120.0 + r * p)
    p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * p)))
    power = np.int64(whole)
    half = power >> 1  # in two steps, since 2 ** -1074 has no exponent of its own
    return p * np.int64((half + 1023) << 52).view(np.float64) * np.int64((power - half + 1023) << 52).view(np.float64)


@compiled
def _fill_affinity(pairs: Floats, n: int, gamma: float, matrix: Floats, rows: Floats) -> bool:
    """Fill ``matrix`` with the affinity, but for its diagonal, over both roots of the degrees.

    Leaves them in ``rows[MIRROR]``, and in ``rows[ROOT]`` with 1 for 0; returns whether any is 0, which is when no
    affinity to a row is above the smallest number.
    """
    for i in range(n):
        for j in range(i):
            matrix[i, j] = _exp(-gamma * pairs[i, j])
        matrix[i, i] = 0.0
        rows[ROOT, i] = 0.0
    for i in range(n):
        for j in range(i):
            matrix[j, i] = matrix[i, j]
    for i in range(n):
        for j in range(n):
            rows[ROOT, j] += matrix[i, j]
    alone = False
    for i in range(n):
        alone = alone or rows[ROOT, i] == 0.0
        rows[MIRROR, i] = math.sqrt(rows[ROOT, i])
        rows[ROOT, i] = rows[MIRROR, i] if rows[MIRROR, i] > 0.0 else 1.0  # as SciPy does
        rows[UPDATE, i] = 1.0 / rows[ROOT, i]
    for i in range(n):
        inverse = rows[UPDATE, i]
        for j in range(n):
            matrix[i, j] = matrix[i, j] * inverse * rows[UPDATE, j]
    return alone


@compiled
def _polish(pairs: Floats, n: int, gamma: float, rows: Floats, count: int) -> None:
    """Put each point at the weighted mean of the others over the eigenvalue, where it is but for rounding.

    The solver's error is the same for all points, and division by the roots of the degrees magnifies it: where these
    span many orders, the point of a row far from all others would be noise.
    """
    least, most = rows[ROOT, 0], rows[ROOT, 0]
    for i in range(n):
        least, most = min(least, rows[ROOT, i]), max(most, rows[ROOT, i])
    for j in range(count):
        value, x = 0.5 * (rows[LOW, j] + rows[HIGH, j]), EIGEN_ROWS + j
        if least > UNEVEN * most or value < LEAST_VALUE:
            continue
        for i in range(n):
            rows[UPDATE, i] = 0.0
            for other in range(i):
                affinity = _exp(-gamma * pairs[i, other])
                rows[UPDATE, i] += affinity * rows[x, other]
                rows[UPDATE, other] += affinity * rows[x, i]
        for i in range(n):
            rows[x, i] = rows[UPDATE, i] / rows[ROOT, i] / rows[ROOT, i] / value


@compiled_entry("cluster_eigen.py", "cluster_kmeans.py")
def cluster_sets(
    vectors: Singles,
    members: Integers,
    offsets: Integers,
    settings: tuple[float, Floats],
    s: Scratch,
    labels: NDArray[np.int32],
) -> int:
    """Label each set; return the number of the first with a value that is not finite, or too large, else -1.

    ``members[offsets[i]:offsets[i + 1]]`` are the rows of set ``i``; ``settings`` are gamma and the uniform numbers
    that scikit-learn's generator gives out, of which a set of ``n`` distinct rows skips ``n``, its solver's start.
    """
    gamma, draws = settings
    block, pairs, matrix, rows, marks = s.block, s.pairs, s.matrix, s.rows, s.marks
    k = s.centres.shape[0]
    for index in range(offsets.shape[0] - 1):
        at = offsets[index]
        n = offsets[index + 1] - at
        if n == 0:
            continue
        _gather(vectors, members, at, n, block)
        finite, rough = _fill_distances(block, n, pairs, rows)
        if not finite:
            return index
        distinct = n
        for i in range(n):
            marks[SAME, i] = i
        if rough:
            distinct = _refine(vectors, members, at, n, s)
        if distinct > k > 1:
            alone = _fill_affinity(pairs, distinct, gamma, matrix, rows)
            places = s.all_centres if alone else s.centres
            fill_embedding(matrix, distinct, rows, k - 1, places.shape[1])
            _polish(pairs, distinct, gamma, rows, k - 1)
            fill_labels(rows, distinct, pairs, draws, places, marks)
        else:
            for i in range(distinct):
                marks[BEST, i] = min(i, k - 1)
        for i in range(n):
            labels[at + i] = marks[BEST, marks[SAME, i]]
    return -1
