"""Bound inner products by the rows' parts in few directions, so that most products need not be computed.

For orthonormal directions ``B`` and the lengths ``r`` of what two rows have outside them, Cauchy and Schwarz say
``<x, y> <= <B'x, B'y> + r(x) r(y)``, which is an inner product of one number more than there are directions. Encoders
put most of a vector into few directions. Those of the queries are found by subspace iteration (Halko, Martinsson and
Tropp, 2011); which ones they are changes how much is computed, never what is found.
"""

import numpy as np
from numpy.typing import NDArray

SHARE = 5
"""Of so many numbers one direction is kept: fewer bound too badly, and more take too long to multiply."""
ROUNDS = 2

Singles = NDArray[np.float32]


class Directions:
    """Bound products with some queries; all rows are of length 1, or a little longer by rounding."""

    error: float
    """How far a product can be above its bound."""

    def __init__(self, queries: Singles, rounding: float) -> None:
        """Find the directions.

        Args:
            queries: ``(Q, D)``.
            rounding: How far a float32 inner product of two rows can be off.
        """
        moments = queries.T @ queries
        found = moments[:, ::SHARE]
        for _ in range(ROUNDS):
            found = moments @ np.linalg.qr(found)[0]
        self._basis = np.linalg.qr(found.astype(np.float64))[0].astype(np.float32)
        # Each part is off by the rounding, and so all of them by ``t``, its product with the root of their number. The
        # parts' product is off by 2 t, and so is the square of what is left; every smaller error is within as much.
        self.error = 4 * self._basis.shape[1] ** 0.5 * rounding
        self._queries = self._parts(queries)

    def _parts(self, rows: Singles) -> Singles:
        """Return ``(N, directions + 1)``: the parts, and the length of what is left, or a little more."""
        parts = np.empty((len(rows), self._basis.shape[1] + 1), dtype=np.float32)
        parts[:, :-1] = rows @ self._basis
        squares = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", parts[:, :-1], parts[:, :-1])
        parts[:, -1] = np.sqrt(np.maximum(squares, 0) + np.float32(self.error))
        return parts

    def bounds(self, rows: Singles) -> Singles:
        """Return the bounds of the products of ``(N, D)`` rows with the queries, ``(N, Q)``."""
        return self._parts(rows) @ self._queries.T
