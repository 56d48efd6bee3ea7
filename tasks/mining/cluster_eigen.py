"""Find the leading eigenvectors of a small normalised affinity matrix, after the first one, which is known.

Householder reduction to a tridiagonal matrix, Sturm counts, inverse iteration: for a few vectors of some dozen rows
this beats LAPACK's drivers, and unlike a pointer into LAPACK it can be cached on disk. Needs numba.

``rows`` is a stack of work vectors, named below, each as wide as the largest set plus one and as ``LANES`` per
eigenvector; row ``EIGEN_ROWS + j`` receives the eigenvector ``j``.
"""

import math

from pairwright.tasks.mining.cluster_jit import (
    EPSILON,
    LANES,
    TINY,
    Floats,
    compiled,
    compiled_sum,
    inner,
    padded,
    row_numbers,
)

ROOT, MIRROR, REFLECTOR, UPDATE, DIAGONAL, BESIDE, FACTOR, START = row_numbers(0, 8)
LOW, HIGH, SHIFT, PIVOT, COUNT = row_numbers(8, 13)
INVERSE, ABOVE, ABOVE_TWO, BELOW, SWAPPED = row_numbers(13, 18)
EIGEN_ROWS = 18

LEAST = 1e-280  # scale of a matrix of zeros: its rounding errors still have an inverse


@compiled
def _reflect(matrix: Floats, n: int, rows: Floats, v: int, factor: float) -> None:
    """Apply ``1 - factor v v'`` on both sides, given ``matrix v`` in ``rows[UPDATE]``; row ``v`` ends in zeros."""
    for i in range(n):
        rows[UPDATE, i] *= factor
    along = 0.5 * factor * inner(rows, v, UPDATE, n)
    for i in range(n):
        rows[UPDATE, i] -= along * rows[v, i]
    for i in range(n, padded(n)):
        rows[UPDATE, i] = 0.0
    for i in range(0, n, 4):
        va, vb, vc, vd = rows[v, i], rows[v, i + 1], rows[v, i + 2], rows[v, i + 3]
        wa, wb, wc, wd = rows[UPDATE, i], rows[UPDATE, i + 1], rows[UPDATE, i + 2], rows[UPDATE, i + 3]
        for j in range(padded(n)):
            x, y = rows[v, j], rows[UPDATE, j]
            matrix[i, j] -= va * y + wa * x
            matrix[i + 1, j] -= vb * y + wb * x
            matrix[i + 2, j] -= vc * y + wc * x
            matrix[i + 3, j] -= vd * y + wd * x


@compiled
def _multiply(matrix: Floats, n: int, rows: Floats) -> None:
    """Fill ``rows[UPDATE]`` with ``matrix rows[REFLECTOR]``, reading the symmetric matrix four rows at a time."""
    for j in range(padded(n)):
        rows[UPDATE, j] = 0.0
    for i in range(0, n, 4):
        a, b, c, d = rows[REFLECTOR, i], rows[REFLECTOR, i + 1], rows[REFLECTOR, i + 2], rows[REFLECTOR, i + 3]
        for j in range(padded(n)):
            left = a * matrix[i, j] + b * matrix[i + 1, j]
            rows[UPDATE, j] += left + (c * matrix[i + 2, j] + d * matrix[i + 3, j])


@compiled
def _deflate(matrix: Floats, n: int, rows: Floats) -> None:
    """Reflect the first eigenvector, in ``rows[MIRROR]`` at any length and with eigenvalue 1, onto the last axis."""
    scale = 1.0 / math.sqrt(inner(rows, MIRROR, MIRROR, n) + TINY)
    for i in range(n):
        rows[MIRROR, i] *= scale
        rows[UPDATE, i] = rows[MIRROR, i] + matrix[n - 1, i]
    for i in range(n, padded(n)):
        rows[MIRROR, i] = 0.0
    rows[MIRROR, n - 1] += 1.0
    _reflect(matrix, n, rows, MIRROR, 1.0 / rows[MIRROR, n - 1])


@compiled
def _tridiagonalise(matrix: Floats, n: int, rows: Floats) -> None:
    """Reduce the leading ``n`` rows, the last one first; the reflectors stay in the rows of ``matrix``."""
    for k in range(n - 1, 0, -1):
        for j in range(padded(k)):
            rows[REFLECTOR, j] = matrix[k, j] if j < k else 0.0
        rest, ahead = inner(rows, REFLECTOR, REFLECTOR, k - 1), matrix[k, k - 1]
        rows[DIAGONAL, k], rows[BESIDE, k], rows[FACTOR, k] = matrix[k, k], ahead, 0.0
        if rest > 0.0:
            length = math.sqrt(ahead * ahead + rest)
            rows[BESIDE, k] = -length if ahead > 0.0 else length
            rows[FACTOR, k] = 1.0 / (length * (length + abs(ahead)))
            matrix[k, k - 1] = rows[REFLECTOR, k - 1] = ahead - rows[BESIDE, k]
            _multiply(matrix, k, rows)
            _reflect(matrix, k, rows, REFLECTOR, rows[FACTOR, k])
    rows[DIAGONAL, 0] = matrix[0, 0]
    rows[BESIDE, 0] = rows[BESIDE, n] = 0.0


@compiled
def _bracket(rows: Floats, n: int, count: int) -> float:
    """Put Gershgorin's bounds around each wanted eigenvalue; return the scale of the matrix."""
    low = high = rows[DIAGONAL, 0]
    for i in range(n):
        radius = abs(rows[BESIDE, i]) + abs(rows[BESIDE, i + 1])
        low = min(low, rows[DIAGONAL, i] - radius)
        high = max(high, rows[DIAGONAL, i] + radius)
    scale = max(abs(low), abs(high), LEAST)
    for j in range(count):
        rows[LOW, j] = low - 4.0 * EPSILON * scale
        rows[HIGH, j] = high + 4.0 * EPSILON * scale
    return scale


@compiled
def _count_above(rows: Floats, n: int, lanes: int) -> None:
    """Count, for each shift, the eigenvalues above it: the positive pivots of the shifted matrix."""
    for lane in range(lanes):
        rows[PIVOT, lane] = rows[DIAGONAL, 0] - rows[SHIFT, lane]
        rows[COUNT, lane] = 1.0 if rows[PIVOT, lane] > 0.0 else 0.0
    for i in range(1, n):
        centre, square = rows[DIAGONAL, i], rows[BESIDE, i] ** 2 + TINY  # a zero pivot gives infinity, never 0 / 0
        for lane in range(lanes):
            pivot = centre - rows[SHIFT, lane] - square / rows[PIVOT, lane]
            rows[PIVOT, lane] = pivot
            rows[COUNT, lane] += 1.0 if pivot > 0.0 else 0.0


@compiled
def _find_values(rows: Floats, n: int, count: int) -> float:
    """Narrow the brackets of the ``count`` largest eigenvalues to rounding, each ninefold at a time."""
    scale = _bracket(rows, n, count)
    width = rows[HIGH, 0] - rows[LOW, 0]
    while width > 8.0 * EPSILON * scale:
        for j in range(count):
            step = (rows[HIGH, j] - rows[LOW, j]) / (LANES + 1)
            for lane in range(LANES):
                rows[SHIFT, j * LANES + lane] = rows[LOW, j] + step * (lane + 1)
        _count_above(rows, n, count * LANES)
        width = 0.0
        for j in range(count):
            for lane in range(j * LANES, (j + 1) * LANES):
                if rows[COUNT, lane] <= j:
                    rows[HIGH, j] = rows[SHIFT, lane]
                    break
                rows[LOW, j] = rows[SHIFT, lane]
            width = max(width, rows[HIGH, j] - rows[LOW, j])
    return scale


@compiled
def _factorise(rows: Floats, n: int, value: float, tiny: float) -> None:
    """Factorise the tridiagonal matrix less ``value``, with exchanges of rows."""
    pivot, beside = rows[DIAGONAL, 0] - value, rows[BESIDE, 1]
    for i in range(n - 1):
        left, centre, right = rows[BESIDE, i + 1], rows[DIAGONAL, i + 1] - value, rows[BESIDE, i + 2]
        if abs(left) > abs(pivot):
            rows[SWAPPED, i], rows[BELOW, i], rows[INVERSE, i] = 1.0, pivot / left, 1.0 / left
            rows[ABOVE, i], rows[ABOVE_TWO, i] = centre, right
            pivot, beside = beside - rows[BELOW, i] * centre, -rows[BELOW, i] * right
        else:
            inverse = 1.0 / (pivot if abs(pivot) > tiny else tiny)
            rows[SWAPPED, i], rows[BELOW, i], rows[INVERSE, i] = 0.0, left * inverse, inverse
            rows[ABOVE, i], rows[ABOVE_TWO, i] = beside, 0.0
            pivot, beside = centre - rows[BELOW, i] * beside, right
    rows[INVERSE, n - 1] = 1.0 / (pivot if abs(pivot) > tiny else tiny)


@compiled
def _solve(rows: Floats, n: int, x: int) -> None:
    """Solve for row ``x`` in place, up to a factor that keeps it finite."""
    for i in range(n - 1):
        here, below = rows[x, i], rows[x, i + 1]
        if rows[SWAPPED, i] > 0.0:
            here, below = below, here
        rows[x, i], rows[x, i + 1] = here, below - rows[BELOW, i] * here
    one = two = largest = 0.0
    for i in range(n - 1, -1, -1):
        here = rows[INVERSE, i] * (rows[x, i] - rows[ABOVE_TWO, i] * two - rows[ABOVE, i] * one)
        one, two, rows[x, i] = here, one, here
        largest = max(largest, abs(here))
    for i in range(n):
        rows[x, i] /= largest


@compiled
def _find_vectors(rows: Floats, n: int, count: int) -> None:
    """Find the eigenvectors of the tridiagonal matrix by inverse iteration, each at right angles to those before."""
    scale = _find_values(rows, n, count)
    for x in range(EIGEN_ROWS, EIGEN_ROWS + count):
        j = x - EIGEN_ROWS
        _factorise(rows, n, 0.5 * (rows[LOW, j] + rows[HIGH, j]), EPSILON * scale)
        for i in range(n):
            rows[x, i] = rows[START, (i + j) % n]
        for _ in range(2):
            _solve(rows, n, x)
            for before in range(EIGEN_ROWS, x):
                along = inner(rows, x, before, n)
                for i in range(n):
                    rows[x, i] -= along * rows[before, i]
            length = math.sqrt(inner(rows, x, x, n))
            for i in range(n):
                rows[x, i] /= length


@compiled_sum
def _undo_reduction(matrix: Floats, n: int, rows: Floats, x: int) -> None:
    """Apply the reflectors of the reduction to row ``x``, the shortest first."""
    for k in range(2, n):
        along = 0.0
        for i in range(k):
            along += matrix[k, i] * rows[x, i]
        along *= rows[FACTOR, k]
        for i in range(k):
            rows[x, i] -= along * matrix[k, i]


@compiled
def fill_embedding(matrix: Floats, n: int, rows: Floats, count: int, dims: int) -> None:
    """Leave ``count`` eigenvectors over ``rows[ROOT]``, and the first one, if there are more ``dims``, after them.

    Destroys ``matrix``. The first one is constant unless ``rows[MIRROR]``, the roots of the degrees, has zeros, which
    ``rows[ROOT]`` has not.
    """
    if dims > count:
        length = math.sqrt(inner(rows, MIRROR, MIRROR, n) + TINY)
        for i in range(n):
            rows[EIGEN_ROWS + count, i] = rows[MIRROR, i] / length / rows[ROOT, i]
    _deflate(matrix, n, rows)
    _tridiagonalise(matrix, n - 1, rows)
    _find_vectors(rows, n - 1, count)
    for x in range(EIGEN_ROWS, EIGEN_ROWS + count):
        _undo_reduction(matrix, n - 1, rows, x)
        along = inner(rows, x, MIRROR, n - 1) / rows[MIRROR, n - 1]
        rows[x, n - 1] = 0.0
        for i in range(n):
            rows[x, i] = (rows[x, i] - along * rows[MIRROR, i]) / rows[ROOT, i]
