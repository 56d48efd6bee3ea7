"""Measure a whole dataset for its report: similarities, lengths, rejected texts and images, mining.

Reads narrow columns and texts; DuckDB counts, in constant memory. The truth of mining: images of
one group of their source (photographs of one rendered world) belong together.
"""

from typing import Any, NamedTuple

import duckdb
import numpy as np

from pairwright.tasks.pages.charts import Chart, ValueCounts, draw_histogram
from pairwright.tasks.report.query_tables import WORDS, Tables

LENGTHS = {"captions": "text", "differences": "text", "comparisons": "text", "questions": "answer"}
NONE = ValueCounts(np.empty(0), np.empty(0, np.int64))
REMOVED, CHECKED = "can be removed", "passed all checks"
CHOSEN = {"removal": "an element removed", "crop": "a random crop", "": "none"}


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
    if tables.has("images") and tables.has("pairs"):
        with tables.database(images=["key", "group"], pairs=["first", "second"]) as database:
            truth = measure_truth(database)
    name = "preferences" if tables.has("preferences") else "splits"
    splits = tables.count(f"SELECT split AS value FROM {name}", {name: ["split"]})
    return {
        "similarities": draw_similarities(tables),
        "lengths": _draw_lengths(tables),
        "splits": {
            split: splits[split] for split in ("train", "validation", "test") if split in splits
        },
        "truth": truth,
    }


def draw_similarities(tables: Tables) -> list[Chart]:
    """Draw the kept pairs' cosines, one chart per embedder and one for the weighted features."""
    spread = "unnest(range(len(embedders))) AS place, unnest(embedders) AS name, unnest(similarities) AS value"
    pairs = tables.tally(f"SELECT {spread} FROM pairs", {"pairs": ["embedders", "similarities"]})
    query = "SELECT 0 AS place, 'together' AS name, similarity AS value FROM pairs"
    whole = {
        name: own
        for name, own in tables.tally(query, {"pairs": ["similarity"]}).items()
        if own.values.any()
    }
    titles = {
        **{name: f"Similarity by {name}" for name in pairs},
        "together": "Similarity, weighted together",
    }
    found = {**pairs, **whole}.items()
    charts = [
        draw_histogram(titles[name], [(name, "plain", own)], unit="cosine") for name, own in found
    ]
    return [chart for chart in charts if chart]


def _draw_lengths(tables: Tables) -> list[Chart]:
    series = {
        f"Length of {'answers' if name == 'questions' else name}": [
            (name, "plain", count_words(tables, name, column))
        ]
        for name, column in LENGTHS.items()
    }
    chosen, rejected = (count_words(tables, "preferences", side) for side in ("chosen", "rejected"))
    some = rejected.values > 0
    written = ValueCounts(rejected.values[some], rejected.counts[some])
    series["Length of chosen and rejected texts"] = [
        ("chosen", "chosen", chosen),
        ("rejected", "rejected", written),
    ]
    charts = [
        draw_histogram(title, some, unit="words", whole=True) for title, some in series.items()
    ]
    return [chart for chart in charts if chart]


def count_words(tables: Tables, name: str, column: str) -> ValueCounts:
    """Count texts by their number of words."""
    query = f"SELECT 0 AS place, 'words' AS name, {WORDS.format(column)} AS value FROM {name}"
    return tables.tally(query, {name: [column]}, step=1).get("words", NONE)


def measure_truth(database: duckdb.DuckDBPyConnection) -> MiningCounts | None:
    """Compare pairs (first, second) with the groups of images (key, group); ``None``: no groups."""
    ((images, *rest),) = database.execute(
        """WITH grouped AS (SELECT key, "group" AS g FROM images WHERE "group" != ''),
            sizes AS (SELECT count(*) AS n FROM grouped GROUP BY g),
            judged AS (SELECT first, second, a.g = b.g AS same FROM pairs
                JOIN grouped a ON a.key = first JOIN grouped b ON b.key = second)
        SELECT sum(n)::BIGINT, count(*), sum(n * (n - 1) // 2)::BIGINT, coalesce(sum(n) FILTER (n > 1), 0)::BIGINT,
            (SELECT count(*) FROM judged), (SELECT count(*) FROM judged WHERE same), (SELECT count(*) FROM
                (SELECT first FROM judged WHERE same UNION SELECT second FROM judged WHERE same)) FROM sizes"""
    ).fetchall()
    return MiningCounts(images, *rest) if images else None


class Removals(NamedTuple):
    """Counts of the steps that make rejected images, with the reasons of refusals."""

    refused_tags: dict[str, int]
    elements: dict[
        str, int
    ]  # tags with a mask, by the reason against removal; removable ones under ``REMOVED``
    inspected: dict[str, int]  # removals by failed check; those that passed under ``CHECKED``
    made: dict[
        str, int
    ]  # preferences, or rejections if there are none, by maker of the rejected image, or "none"
    candidates: float  # mean number per rejection
    able: float  # mean number that passed their checks


def measure_removals(tables: Tables) -> Removals | None:
    """Count removals table by table; ``None`` if the build removes nothing."""
    if not tables.has("tags") and not tables.has("rejections"):
        return None
    able = "len(list_filter(removal_scores, lambda one: coalesce(one.why, '') = ''))"
    means = (
        f"SELECT avg(coalesce(len(removal_scores), 0)), avg(coalesce({able}, 0)) FROM rejections"
    )
    ((candidates, passed),) = tables.ask(means, {"rejections": ["removal_scores"]}) or [(0, 0)]
    name, column = (
        ("preferences", "rejected_image_maker")
        if tables.has("preferences")
        else ("rejections", "maker")
    )
    made = {
        CHOSEN.get(maker, maker): number for maker, number in _count(tables, name, column).items()
    }
    return Removals(
        refused_tags=tables.count(
            "SELECT unnest(refused_tags).reason AS value FROM tags", {"tags": ["refused_tags"]}
        ),
        elements=_count(tables, "elements", "why", REMOVED),
        inspected=_count(tables, "inspected", "why", CHECKED),
        made={name: made[name] for name in CHOSEN.values() if made.get(name)},
        candidates=candidates or 0,
        able=passed or 0,
    )


def _count(tables: Tables, name: str, column: str, blank: str = "") -> dict[str, int]:
    """Count the values of a column, the most frequent first; empty ones come first under ``blank``."""
    found = tables.count(f"SELECT {column} AS value FROM {name}", {name: [column]})
    return {blank: found.pop("", 0), **found} if blank and found else found
