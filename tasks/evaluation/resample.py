"""Bootstrap intervals of scores: percentiles over resamples of the items, drawn with replacement.

Every score is made of sums over items, so that a resample is a row of weights (how often each item was drawn) times
the table of statistics: nothing is scored again. CIDEr-D keeps the document frequencies of the whole corpus.
"""

from collections.abc import Sequence

import numpy as np

from pairwright.tasks.evaluation.corpus import Floats, Measured

CONFIDENCE = 0.95
AT_ONCE = 1 << 22
"""Draws made at once: 32 MB."""


def resample(measured: Sequence[Measured], *, resamples: int, seed: int, confidence: float = CONFIDENCE) -> Floats:
    """Return the lower and the upper end of each score's interval, in the order of the metrics and their names.

    Args:
        measured: metrics of the same items.
        resamples: how many; their items are the same for all metrics.
        seed: of the draws.
        confidence: the share of resamples that an interval holds, as many beside it on each side.
    """
    table = np.concatenate([one.statistics for one in measured], axis=1)
    sums = _draw_sums(table, resamples, np.random.default_rng(seed))
    columns = np.cumsum([one.statistics.shape[1] for one in measured])[:-1]
    parts = zip(measured, np.split(sums, columns, axis=1), strict=True)
    scores = np.concatenate([one.conclude(part) for one, part in parts], axis=1)
    tail = (1 - confidence) / 2
    return np.quantile(scores, [tail, 1 - tail], axis=0).T


def _draw_sums(table: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Return the sum of each resample's rows."""
    items, rows = len(table), max(AT_ONCE // len(table), 1)
    sums = np.empty((resamples, table.shape[1]))
    for start in range(0, resamples, rows):
        some = min(rows, resamples - start)
        drawn = rng.integers(0, items, (some, items)) + items * np.arange(some)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=some * items).reshape(some, items)
        sums[start : start + some] = weights.astype(np.float64) @ table
    return sums
