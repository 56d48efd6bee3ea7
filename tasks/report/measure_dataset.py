"""Measure a whole dataset for its report: similarities, lengths, rejected texts, images, mining.

Reads narrow columns and texts; DuckDB counts, in constant memory. The truth of mining: images of
one group of their source (photographs of one rendered world) belong together.
"""

from typing import Any, NamedTuple

import duckdb
import numpy as np

from pairwright.tasks.pages.charts import Chart, Series, ValueCounts, draw_histogram
from pairwright.tasks.report.query_tables import WORDS, Tables

LENGTHS = {"captions": "text", "differences": "text", "comparisons": "text", "questions": "answer"}
NONE = ValueCounts(np.empty(0), np.empty(0, np.int64))
REMOVED = "can be removed"
CHECKED = "passed all checks"
CHOSEN = {
    "removal": "an element removed",
    "crop": "a random crop",
    "expected": "as the prior expects",
    "": "none",
}


class MiningCounts(NamedTuple):
    """Counts of mining against the groups of images."""

    images: int
    groups: int
    possible: int  # pairs within groups
    partnered: int  # images with another one in their group
    judged: int  # kept pairs with two groups
    right: int  # kept pairs of one group
    found: int  # images in right pairs


def measure_dataset(tables: Tables) -> dict[str, Any]:
    """Return the measures of a dataset by their names in the templates."""
    truth = None
    if tables.has_table("images") and tables.has_table("pairs"):
        with tables.database(images=["key", "group"], pairs=["first", "second"]) as database:
            truth = measure_truth(database)
    table = "preferences" if tables.has_table("preferences") else "splits"
    counts = tables.count_values(f"SELECT split AS value FROM {table}", {table: ["split"]})
    splits = [split for split in ("train", "validation", "test") if split in counts]
    return {
        "similarities": draw_similarities(tables),
        "lengths": _draw_lengths(tables),
        "splits": {split: counts[split] for split in splits},
        "truth": truth,
    }


def draw_similarities(tables: Tables) -> list[Chart]:
    """Draw the kept pairs' cosines, one chart per embedder and one for the weighted features."""
    query = """SELECT unnest(range(len(embedders))) AS place, unnest(embedders) AS name,
        unnest(similarities) AS value FROM pairs"""
    by_embedder = tables.tally(query, {"pairs": ["embedders", "similarities"]})
    query = "SELECT 0 AS place, 'together' AS name, similarity AS value FROM pairs"
    weighted = tables.tally(query, {"pairs": ["similarity"]})
    titles = {name: f"Similarity by {name}" for name in by_embedder}
    titles["together"] = "Similarity, weighted together"
    weighted = {name: tally for name, tally in weighted.items() if tally.values.any()}
    tallies = by_embedder | weighted
    charts = [
        draw_histogram(titles[name], [(name, "plain", tally)], unit="cosine")
        for name, tally in tallies.items()
    ]
    return [chart for chart in charts if chart]


def _draw_lengths(tables: Tables) -> list[Chart]:
    series: dict[str, list[Series]] = {}
    for table, column in LENGTHS.items():
        noun = "answers" if table == "questions" else table
        series[f"Length of {noun}"] = [(table, "plain", count_words(tables, table, column))]
    chosen = count_words(tables, "preferences", "chosen")
    rejected = count_words(tables, "preferences", "rejected")
    filled = rejected.values > 0
    written = ValueCounts(rejected.values[filled], rejected.counts[filled])
    series["Length of chosen and rejected texts"] = [
        ("chosen", "chosen", chosen),
        ("rejected", "rejected", written),
    ]
    charts = [
        draw_histogram(title, entries, unit="words", whole=True)
        for title, entries in series.items()
    ]
    return [chart for chart in charts if chart]


def count_words(tables: Tables, table: str, column: str) -> ValueCounts:
    """Count texts by their number of words."""
    query = f"SELECT 0 AS place, 'words' AS name, {WORDS.format(column)} AS value FROM {table}"
    return tables.tally(query, {table: [column]}, step=1).get("words", NONE)


def measure_truth(database: duckdb.DuckDBPyConnection) -> MiningCounts | None:
    """Compare pairs (first, second) with the groups of images (key, group); ``None``: no groups."""
    query = """WITH grouped AS (SELECT key, "group" AS g FROM images WHERE "group" != ''),
            sizes AS (SELECT count(*) AS n FROM grouped GROUP BY g),
            judged AS (SELECT first, second, a.g = b.g AS same FROM pairs
                JOIN grouped a ON a.key = first JOIN grouped b ON b.key = second),
            right_pairs AS (SELECT first, second FROM judged WHERE same)
        SELECT sum(n)::BIGINT, count(*), sum(n * (n - 1) // 2)::BIGINT,
            coalesce(sum(n) FILTER (n > 1), 0)::BIGINT,
            (SELECT count(*) FROM judged), (SELECT count(*) FROM right_pairs),
            (SELECT count(*) FROM
                (SELECT first FROM right_pairs UNION SELECT second FROM right_pairs))
        FROM sizes"""
    ((images, *counts),) = database.execute(query).fetchall()
    return MiningCounts(images, *counts) if images else None


class Removals(NamedTuple):
    """Counts of the steps that make rejected images, with the reasons of refusals."""

    refused_tags: dict[str, int]
    elements: dict[str, int]
    """Tags with a mask, by the reason against removal; removable ones under ``REMOVED``."""
    inspected: dict[str, int]  # removals by failed check; those that passed under ``CHECKED``
    made: dict[str, int]
    """Preferences, or rejections if there are none, by method of the rejected image, or "none"."""
    candidates: float  # mean number per rejection
    able: float  # mean number that passed their checks


def measure_removals(tables: Tables) -> Removals | None:
    """Count removals table by table; ``None`` if the build removes nothing."""
    if not tables.has_table("tags") and not tables.has_table("rejections"):
        return None
    passed = "len(list_filter(removal_scores, lambda score: coalesce(score.why, '') = ''))"
    query = f"""SELECT avg(coalesce(len(removal_scores), 0)), avg(coalesce({passed}, 0))
        FROM rejections"""
    means = tables.query(query, {"rejections": ["removal_scores"]})
    candidates, able = means[0] if means else (0, 0)
    if tables.has_table("preferences"):
        makers = _count(tables, "preferences", "rejected_image_maker")
    else:
        makers = _count(tables, "rejections", "maker")
    methods = {CHOSEN.get(maker, maker): count for maker, count in makers.items()}
    query = "SELECT unnest(refused_tags).reason AS value FROM tags"
    return Removals(
        refused_tags=tables.count_values(query, {"tags": ["refused_tags"]}),
        elements=_count(tables, "elements", "why", REMOVED),
        inspected=_count(tables, "inspected", "why", CHECKED),
        made={name: methods[name] for name in CHOSEN.values() if methods.get(name)},
        candidates=candidates or 0,
        able=able or 0,
    )


def _count(
    tables: Tables,
    table: str,
    column: str,
    blank: str = "",
) -> dict[str, int]:
    """Count the values of a column, the most frequent first; empty ones first, as ``blank``."""
    counts = tables.count_values(f"SELECT {column} AS value FROM {table}", {table: [column]})
    if blank and counts:
        return {blank: counts.pop("", 0), **counts}
    return counts
