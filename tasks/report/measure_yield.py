"""Measure what thresholds of similarity leave, encoder by encoder, from stored scores: nothing is searched again.

Reads the similarities of ``NeighbourRow`` (every neighbour that was found, before any threshold) and of ``PairRow``, a
row group at a time; only counts are held in memory, however many rows there are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.pages.ticks import round_step
from pairwright.tasks.report.calibrate_candidates import Floats, stream_similarities
from pairwright.tasks.report.chart_lines import Line, LineChart, draw_lines
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.tally_values import FINE, Tally

pc: Any = pyarrow.compute
MOST_PLACES = 40
RARE, BELOW = 0.01, 0.2
"""Share of the least similar that the picture leaves out; how far below the present threshold it goes."""


def measure_yield(tables: Tables, mining: MiningConfig) -> tuple[LineChart, ...]:
    """Draw what lower and higher thresholds would leave of neighbours and pairs; empty: no similarity is stored."""
    neighbours = stream_similarities(tables)
    found = _tallies((name, values[values <= mining.max_similarity + FINE / 2]) for name, values in neighbours)
    charts = (
        _draw("Neighbours left by min_similarity", found, unit="neighbours", now=mining.min_similarity),
        _draw("Pairs left by a higher threshold", tally_pairs(tables), unit="pairs", now=None),
    )
    return tuple(chart for chart in charts if chart)


def tally_pairs(tables: Tables) -> dict[str, Tally]:
    """Count the kept pairs by their similarity to each encoder."""
    return _tallies(
        one for table in tables.stream("pairs", ["embedders", "similarities"]) for one in _of_encoders(table)
    )


def _of_encoders(table: pa.Table) -> Iterator[tuple[str, Floats]]:
    names, values = (pc.list_flatten(table.column(name)) for name in ("embedders", "similarities"))
    for name in names.unique().to_pylist():
        yield name, values.filter(pc.equal(names, name)).to_numpy().astype(np.float64)


def _tallies(values: Iterable[tuple[str, Floats]]) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    for name, own in values:
        found[name] = found.get(name, Tally()).add(own)
    return {name: own for name, own in found.items() if own.total}


def _draw(title: str, found: Mapping[str, Tally], *, unit: str, now: float | None) -> LineChart | None:
    """Draw a line per encoder: how many are at least as similar as each threshold."""
    if not found:
        return None
    low = min(own.quantile(RARE) for own in found.values())
    low = low if now is None else max(low, now - BELOW)
    high = max(float(own.values[-1]) for own in found.values())
    step = round_step(max(high - low, FINE) / MOST_PLACES, least=0.001)
    first, last = np.floor(round(low / step, 4)), np.ceil(round(high / step, 4))
    places = [round(float(place) * step, 4) for place in np.arange(first, last + 1)]
    lines = [Line(name=name, values=tuple(float(own.at_least(at)) for at in places)) for name, own in found.items()]
    return draw_lines(title, lines, places, unit=unit, axis="threshold", mark=now)
