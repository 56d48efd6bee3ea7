"""Cluster the embedded points of one set by k-means as scikit-learn does, with its random draws. Needs numba.

Coordinate ``c`` of all points is ``rows[POINTS + c]``; the other ``rows`` and the integer ``marks`` are work vectors,
named below. ``centres`` has a row per cluster and a column per coordinate.
"""

import math

import numpy as np

from pairwright.tasks.mining.cluster_eigen import EIGEN_ROWS as POINTS
from pairwright.tasks.mining.cluster_jit import Floats, Integers, compiled, compiled_sum, inner, row_numbers

N_INIT = 10  # SpectralClustering's; the next two are KMeans'
MAX_ITERATIONS = 300
TOLERANCE = 1e-4
TIE = 1e-12  # two far points that are each other's nearest leave the same sum: rounding must not choose between them

NEAREST, TRIAL, SCORE, SIZE = row_numbers(0, 4)
LABELS, BEST, KEYS, SEEN = row_numbers(0, 4)
MARKS = 4
MARKS_WIDTH = N_INIT * (MAX_ITERATIONS + 4)  # each run adds up to 301 to what was seen; 304 are whole vectors


@compiled_sum
def _total(rows: Floats, a: int, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += rows[a, i]
    return total


@compiled
def _centre(rows: Floats, n: int, dims: int) -> None:
    for c in range(POINTS, POINTS + dims):
        mean = _total(rows, c, n) / n
        for i in range(n):
            rows[c, i] -= mean


@compiled
def _fill_distances(rows: Floats, n: int, dims: int, pairs: Floats) -> None:
    for i in range(n):
        for j in range(n):
            pairs[i, j] = 0.0
        for c in range(POINTS, POINTS + dims):
            x = rows[c, i]
            for j in range(n):
                pairs[i, j] += (rows[c, j] - x) ** 2


@compiled
def _draw(rows: Floats, n: int, threshold: float) -> int:
    """Return the first point at which the sum of ``rows[NEAREST]`` reaches ``threshold``."""
    reached = 0.0
    for i in range(n - 1):
        reached += rows[NEAREST, i]
        if reached >= threshold:
            return i
    return n - 1


@compiled
def _seed(rows: Floats, n: int, pairs: Floats, draws: Floats, at: int, centres: Floats) -> int:
    """Choose first centres by greedy k-means++ from the uniform ``draws[at:]``; return where the next ones start."""
    k, dims = centres.shape
    best, at = min(int(draws[at] * n), n - 1), at + 1
    for i in range(n):
        rows[NEAREST, i] = np.inf
    for centre in range(k):
        for c in range(dims):
            centres[centre, c] = rows[POINTS + c, best]
        if centre == k - 1:
            break
        for i in range(n):
            rows[NEAREST, i] = min(rows[NEAREST, i], pairs[best, i])
        potential, lowest = _total(rows, NEAREST, n), np.inf
        for _ in range(2 + int(math.log(k))):
            point, at = _draw(rows, n, draws[at] * potential), at + 1
            for i in range(n):
                rows[TRIAL, i] = min(rows[NEAREST, i], pairs[point, i])
            left = _total(rows, TRIAL, n)
            if left < lowest * (1.0 - TIE):
                lowest, best = left, point
    return at


@compiled
def _assign(rows: Floats, n: int, centres: Floats, marks: Integers) -> None:
    """Label each point with its nearest centre, the first of equals; leave the distance less the point's norm."""
    k, dims = centres.shape
    for j in range(k):
        square = 0.0
        for c in range(dims):
            square += centres[j, c] ** 2
        for i in range(n):
            rows[TRIAL, i] = square
        for c in range(dims):
            twice = -2.0 * centres[j, c]
            for i in range(n):
                rows[TRIAL, i] += twice * rows[POINTS + c, i]
        for i in range(n):
            if j == 0 or rows[TRIAL, i] < rows[SCORE, i]:
                rows[SCORE, i] = rows[TRIAL, i]
                marks[LABELS, i] = j


@compiled
def _mix(x: int) -> int:
    """Spread the bits of a 64-bit number, as splitmix64 does."""
    x = (x ^ (x >> 30)) * -4658895280553007687
    x = (x ^ (x >> 27)) * -7723592293110705685
    return x ^ (x >> 31)


@compiled
def _sign(rows: Floats, n: int, k: int, marks: Integers) -> int:
    """Count the points of each cluster; return a number that two partitions share only if they are the same.

    It is a sum over the clusters of a hash of the sum of their members' random keys: wrong once in 2 ** 60.
    """
    signature = 0
    for j in range(k):
        size = keys = 0
        for i in range(n):
            if marks[LABELS, i] == j:
                size += 1
                keys += marks[KEYS, i]
        rows[SIZE, j] = size
        signature += _mix(keys)
    return signature


@compiled
def _fill_empty(rows: Floats, n: int, centres: Floats, marks: Integers) -> None:
    """Move into each empty cluster the point that is furthest from its own centre."""
    k, dims = centres.shape
    for i in range(n):
        for c in range(POINTS, POINTS + dims):
            rows[SCORE, i] += rows[c, i] ** 2
    for j in range(k):
        if rows[SIZE, j] == 0.0:
            far = 0
            for i in range(n):
                if rows[SCORE, i] > rows[SCORE, far]:
                    far = i
            if rows[SCORE, far] > 0.0:
                rows[SIZE, marks[LABELS, far]] -= 1.0
                rows[SIZE, j], rows[SCORE, far], marks[LABELS, far] = 1.0, -1.0, j


@compiled_sum
def _move(rows: Floats, n: int, centres: Floats, marks: Integers) -> float:
    """Move each centre to the mean of its points; return the sum of squared shifts."""
    k, dims = centres.shape
    shift, largest = 0.0, 0
    for j in range(k):
        if rows[SIZE, j] > rows[SIZE, largest]:
            largest = j
    for j in range(k):
        source = j if rows[SIZE, j] > 0.0 else largest
        for c in range(dims):
            place = 0.0
            for i in range(n):
                place += rows[POINTS + c, i] if marks[LABELS, i] == source else 0.0
            place /= rows[SIZE, source]
            shift += (place - centres[j, c]) ** 2
            centres[j, c] = place
    return shift


@compiled
def _settle(rows: Floats, n: int, centres: Floats, marks: Integers, tolerance: float, seen: int) -> int:
    """Run Lloyd's algorithm; return the new count of seen partitions, or minus it if the run joined an earlier one."""
    k = centres.shape[0]
    start = seen
    for _ in range(MAX_ITERATIONS):
        _assign(rows, n, centres, marks)
        signature = _sign(rows, n, k, marks)
        full = True
        for j in range(k):
            full = full and rows[SIZE, j] > 0.0
        if not full:
            _fill_empty(rows, n, centres, marks)
        shift = _move(rows, n, centres, marks)
        if seen > start and marks[SEEN, seen - 1] == signature:
            return seen
        if shift <= tolerance:
            break
        for i in range(start):
            if full and marks[SEEN, i] == signature:
                return -seen
        marks[SEEN, seen] = signature
        seen += 1
    _assign(rows, n, centres, marks)
    marks[SEEN, seen] = _sign(rows, n, k, marks)
    return seen + 1


@compiled
def fill_labels(rows: Floats, n: int, pairs: Floats, draws: Floats, centres: Floats, marks: Integers) -> None:
    """Leave in ``marks[BEST]`` the labels of the best of ten runs; the set's draws follow the ``n`` of its solver."""
    k, dims = centres.shape
    _centre(rows, n, dims)
    tolerance = 0.0
    for c in range(POINTS, POINTS + dims):
        tolerance += inner(rows, c, c, n) * TOLERANCE / (n * k)
    _fill_distances(rows, n, dims, pairs)
    lowest, kept, at = np.inf, 0, n
    seen = 0 * n  # as wide as n: the literal 0 would be a type of its own, and compiled for as well
    for _ in range(N_INIT):
        at = _seed(rows, n, pairs, draws, at, centres)
        reached = _settle(rows, n, centres, marks, tolerance, seen)
        seen = abs(reached)
        if reached > 0 and marks[SEEN, seen - 1] != kept:
            inertia = _total(rows, SCORE, n)
            if inertia < lowest:
                lowest, kept = inertia, marks[SEEN, seen - 1]
                for i in range(n):
                    marks[BEST, i] = marks[LABELS, i]
