"""Bounds by few directions against products in float64."""

import numpy as np
import pytest

from pairwright.tasks.models.search_directions import SHARE, Directions
from pairwright.tasks.models.search_scan import rounding


def unit(values):
    """Return unit vectors, rounded as they are stored."""
    values = np.asarray(values, dtype=np.float64)
    lengths = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    return (values / lengths).astype(np.float16).astype(np.float32)


def excess(rows, queries):
    """Return how far products are above their bounds, and how far they may be."""
    bound = Directions(queries, rounding(queries.shape[1]))
    products = rows.astype(np.float64) @ queries.astype(np.float64).T
    return products - bound.bounds(rows), bound.error


@pytest.mark.parametrize("width", [1, 5, 64, 1024])
def test_no_product_is_above_its_bound(width):
    rng = np.random.default_rng(width)
    falling = np.arange(1, width + 1) ** -0.5
    rows = [rng.normal(size=(200, width)), falling * rng.normal(size=(100, width)), rng.normal(size=(50, width)) ** 9]
    rows += [np.eye(3, width), np.zeros((2, width)), np.ones((2, width))]
    made = unit(np.concatenate(rows))
    above, error = excess(made, made)
    assert above.max() <= error < 0.01
    assert excess(made, made[-1:])[0].max() <= error, "one query"
    assert excess(made, made[-4:-2])[0].max() <= error, "queries of nothing"


def test_products_within_the_directions_are_their_bounds():
    """Queries in as many dimensions as there are directions leave nothing outside, whatever the rows are."""
    width, rng = 12 * SHARE, np.random.default_rng(1)
    queries = unit(rng.normal(size=(50, 12)) @ np.linalg.qr(rng.normal(size=(width, 12)))[0].T)
    above, error = excess(unit(rng.normal(size=(80, width))), queries)
    assert np.abs(above).max() < 0.05
    assert error < 1e-3


def test_what_is_left_outside_counts_whole():
    """The one direction is that of nearly all queries; rows across it may be the same or not: their bound is 1."""
    axes = np.eye(SHARE)
    bounds = Directions(unit(axes[[0] * 9 + [1]]), rounding(SHARE)).bounds(unit(axes[:3]))
    assert bounds[:, 0] == pytest.approx([1, 0, 0], abs=1e-2)
    assert bounds[:, 9] == pytest.approx([0, 1, 1], abs=1e-2)
