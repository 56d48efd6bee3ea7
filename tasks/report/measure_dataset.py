"""Measure a whole dataset for its report: similarities, thresholds, lengths, rejected texts and images, mining.

Reads narrow columns and texts; DuckDB counts, in constant memory. The truth of mining: images of one group of their
source (photographs of one rendered world) belong together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import duckdb
import numpy as np

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import MAKERS
from pairwright.tasks.pages.charts import Chart, Line, Tally, draw_histogram, draw_lines, round_step
from pairwright.tasks.report.tables import FINE, WORDS, Tables
from pairwright.tasks.store.ledger import DUPLICATE, Counts

ALL_TRUE = ("swapped text is true", "no edit makes it false", "all similar descriptions are true")
"""Reasons of makers with true candidates only."""
LENGTHS = {"captions": "text", "differences": "text", "comparisons": "text", "questions": "answer"}
MOST_PLACES = 40
"""Thresholds of a chart of yields."""
RARE, BELOW = 0.01, 0.2
"""Share of the least similar that such a chart omits, and its range below the present threshold."""
TONES = 6
"""Styles of lines in the style sheet, by colour and dashes."""
MOST_DROPPED = 50
NONE = Tally(np.empty(0), np.empty(0, np.int64))
REMOVED, CHECKED = "can be removed", "passed all checks"
CHOSEN = {"removal": "an element removed", "crop": "a random crop", "": "none"}


class Truth(NamedTuple):
    """Precision and recall of mining."""

    images: int
    groups: int
    possible: int
    partnered: int
    judged: int
    """Kept pairs with two groups."""
    right: int
    """Kept pairs of one group."""
    found: int

    @property
    def precision(self) -> float:
        """Return the share of the kept pairs with two images of one group."""
        return self.right / max(self.judged, 1)

    @property
    def recall_of_images(self) -> float:
        """Return the share of the images with a partner that are in at least one such pair."""
        return self.found / max(self.partnered, 1)

    @property
    def recall_of_pairs(self) -> float:
        """Return the share of all pairs within groups that were kept, which is low for large groups by design."""
        return self.right / max(self.possible, 1)

    @property
    def chance(self) -> float:
        """Return the precision of pairs drawn at random."""
        return self.possible / max(self.images * (self.images - 1) // 2, 1)


class Maker(NamedTuple):
    """Outcome of one maker of rejected texts."""

    name: str
    texts: int
    """Pairs with a text."""
    none: int
    """Pairs with only true candidates."""
    true: int
    """Pairs, of both kinds, with a true first candidate, which would be the text without a check."""
    skipped: int
    """True candidates skipped before the texts made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Measurements over all rows."""

    similarities: Sequence[Chart]
    yields: Sequence[Chart]
    lengths: Sequence[Chart]
    splits: Mapping[str, int]
    makers: Sequence[Maker]
    truth: Truth | None


def measure_dataset(tables: Tables, counts: Sequence[Counts], mining: MiningConfig) -> Measures:
    """Measure a dataset table by table; ``counts`` have the stages' reasons."""
    pairs, truth = tally_pairs(tables), None
    if tables.has("images") and tables.has("pairs"):
        with tables.database(images=["key", "group"], pairs=["first", "second"]) as database:
            truth = measure_truth(database)
    name = "preferences" if tables.has("preferences") else "splits"
    splits = tables.count(f"SELECT split AS value FROM {name}", {name: ["split"]})
    return Measures(
        similarities=draw_similarities(tables, pairs),
        yields=draw_yields(tables, pairs, mining),
        lengths=_draw_lengths(tables),
        splits={split: splits[split] for split in ("train", "validation", "test") if split in splits},
        makers=_makers(tables, counts),
        truth=truth,
    )


def tally_pairs(tables: Tables) -> dict[str, Tally]:
    """Count the kept pairs by their similarity to each encoder."""
    spread = "unnest(range(len(embedders))) AS place, unnest(embedders) AS name, unnest(similarities) AS value"
    return tables.tally(f"SELECT {spread} FROM pairs", {"pairs": ["embedders", "similarities"]})


def draw_similarities(tables: Tables, pairs: Mapping[str, Tally]) -> list[Chart]:
    """Draw the kept pairs' cosines, one chart per embedder and one for the features that they were mined by."""
    query = "SELECT 0 AS place, 'together' AS name, similarity AS value FROM pairs"
    whole = {name: own for name, own in tables.tally(query, {"pairs": ["similarity"]}).items() if own.values.any()}
    titles = {**{name: f"Similarity by {name}" for name in pairs}, "together": "Similarity, weighted together"}
    found = {**pairs, **whole}.items()
    charts = [draw_histogram(titles[name], [(name, "plain", own)], unit="cosine") for name, own in found]
    return [chart for chart in charts if chart]


def draw_yields(tables: Tables, pairs: Mapping[str, Tally], mining: MiningConfig) -> list[Chart]:
    """Draw the neighbours and pairs that lower and higher thresholds would leave."""
    lists = "unnest(range(len(embedders))) AS place, unnest(embedders) AS name, unnest(similarities) AS listed"
    spread = f"SELECT place, name, unnest(listed) AS value FROM (SELECT {lists} FROM neighbours)"
    within = f"SELECT * FROM ({spread}) WHERE value <= {mining.max_similarity + FINE / 2}"
    neighbours = tables.tally(within, {"neighbours": ["embedders", "similarities"]})
    charts = (
        _draw_yield("Neighbours left by min_similarity", neighbours, unit="neighbours", now=mining.min_similarity),
        _draw_yield("Pairs left by a higher threshold", pairs, unit="pairs", now=None),
    )
    return [chart for chart in charts if chart]


def _draw_yield(title: str, found: Mapping[str, Tally], *, unit: str, now: float | None) -> Chart | None:
    """Draw a line per encoder: the number at or above each threshold."""
    if not found:
        return None
    low = min(own.quantile(RARE) for own in found.values())
    low = low if now is None else max(low, now - BELOW)
    high = max(float(own.values[-1]) for own in found.values())
    step = round_step(max(high - low, FINE) / MOST_PLACES, least=0.001)
    first, last = np.floor(round(low / step, 4)), np.ceil(round(high / step, 4))
    places = np.round(np.arange(first, last + 1) * step, 4)
    if len(places) < 2:
        return None
    left = {
        name: own.counts.sum() - np.append(0, np.cumsum(own.counts))[np.searchsorted(own.values, places - FINE / 2)]
        for name, own in found.items()
    }
    said = (f"{name}: {own[0]:,} at {places[0]:.2f}, {own[-1]:,} at {places[-1]:.2f}." for name, own in left.items())
    tones = [f"line{number % TONES}" for number in range(len(left))]
    return draw_lines(
        [Line(name=name, x=places, y=own, tone=tone) for tone, (name, own) in zip(tones, left.items(), strict=True)],
        title=title,
        unit=unit,
        ends=(float(places[0]), float(places[-1])),
        reach=(0.0, float(max(own.max() for own in left.values()))),
        now=None if now is None else (now, f"now {now:g}"),
        legend=[(tone, name, "") for tone, name in zip(tones, left, strict=True)],
        summary=f"{title}. {' '.join(said)}",
        heads=("threshold", *left),
        rows=[(f"{at:.3g}", *(f"{own[number]:,}" for own in left.values())) for number, at in enumerate(places)],
    )


def _draw_lengths(tables: Tables) -> list[Chart]:
    series = {
        f"Length of {'answers' if name == 'questions' else name}": [(name, "plain", count_words(tables, name, column))]
        for name, column in LENGTHS.items()
    }
    chosen, rejected = (count_words(tables, "preferences", side) for side in ("chosen", "rejected"))
    some = rejected.values > 0
    written = Tally(rejected.values[some], rejected.counts[some])
    both = [("chosen", "chosen", chosen), ("rejected", "rejected", written)]
    series["Length of chosen and rejected texts"] = both
    charts = [draw_histogram(title, some, unit="words", whole=True) for title, some in series.items()]
    return [chart for chart in charts if chart]


def count_words(tables: Tables, name: str, column: str) -> Tally:
    """Count texts by their number of words."""
    query = f"SELECT 0 AS place, 'words' AS name, {WORDS.format(column)} AS value FROM {name}"
    return tables.tally(query, {name: [column]}, step=1).get("words", NONE)


def _makers(tables: Tables, counts: Sequence[Counts]) -> list[Maker]:
    reasons = {one.stage: one.reasons for one in counts}
    sums = "count(*), count(*) FILTER (skipped_true > 0), coalesce(sum(skipped_true), 0)::BIGINT"
    makers: list[Maker] = []
    for name in MAKERS:
        none = sum(count for reason, count in reasons.get(name, {}).items() if reason.startswith(ALL_TRUE))
        for texts, passed, skipped in tables.ask(f"SELECT {sums} FROM {name}", {name: ["skipped_true"]}):
            if texts + none:
                makers.append(Maker(name, texts, none=none, true=passed + none, skipped=skipped))
    return makers


def measure_truth(database: duckdb.DuckDBPyConnection) -> Truth | None:
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
    return Truth(images, *rest) if images else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Counts of the steps that make rejected images, with the reasons of the rest."""

    images: int
    empty: dict[str, int]
    """Images without findings of a step, by reason."""
    tags: int
    """Accepted and refused tags."""
    refused_tags: dict[str, int]
    elements: dict[str, int]
    """Tags with a mask, by the reason against removal; removable ones under ``REMOVED``."""
    inspected: dict[str, int]
    """Removals by failed check; those that passed under ``CHECKED``."""
    made: dict[str, int]
    """Preferences, or candidates for them, by the maker of their rejected image; "none" without one."""
    why: dict[str, int]
    candidates: float
    able: float
    """Mean candidates that passed their checks."""

    @property
    def total(self) -> int:
        """Return the number of preferences, or candidates for them."""
        return sum(self.made.values())

    @property
    def rejected(self) -> int:
        """Return the number with a rejected image."""
        return self.total - self.made.get(CHOSEN[""], 0)


def measure_removals(tables: Tables, counts: Sequence[Counts]) -> Removals | None:
    """Count removals table by table; ``None`` if the build removes nothing."""
    of = {one.stage: one for one in counts}
    if "tags" not in of and "rejections" not in of:
        return None
    query = "SELECT coalesce(sum(len(tags)), 0)::BIGINT FROM tags"
    found = sum(number for (number,) in tables.ask(query, {"tags": ["tags"]}))
    refused = tables.count("SELECT unnest(refused_tags).reason AS value FROM tags", {"tags": ["refused_tags"]})
    able = "len(list_filter(removal_scores, lambda one: coalesce(one.why, '') = ''))"
    means = f"SELECT avg(coalesce(len(removal_scores), 0)), avg(coalesce({able}, 0)) FROM rejections"
    ((candidates, passed),) = tables.ask(means, {"rejections": ["removal_scores"]}) or [(0, 0)]
    name, column = ("preferences", "rejected_image_maker") if tables.has("preferences") else ("rejections", "maker")
    made = {CHOSEN.get(maker, maker): number for maker, number in _count(tables, name, column).items()}
    return Removals(
        images=of["tags"].of if "tags" in of else 0,
        empty={why: n for name in ("tags", "boxes", "masks") if name in of for why, n in of[name].reasons.items()},
        tags=found + sum(refused.values()),
        refused_tags=refused,
        elements=_count(tables, "elements", "why", REMOVED),
        inspected=_count(tables, "inspected", "why", CHECKED),
        made={name: made[name] for name in CHOSEN.values() if made.get(name)},
        why=of["rejections"].reasons if "rejections" in of else {},
        candidates=candidates or 0,
        able=passed or 0,
    )


def _count(tables: Tables, name: str, column: str, blank: str = "") -> dict[str, int]:
    """Count the values of a column, the most frequent first; empty ones come first under ``blank``."""
    found = tables.count(f"SELECT {column} AS value FROM {name}", {name: [column]})
    return {blank: found.pop("", 0), **found} if blank and found else found


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedImages:
    """Images of the source that a rule refused."""

    total: int
    """Dropped images without copies."""
    copies: int
    """Images with the bytes of another one; no row names them."""
    rows: tuple[tuple[str, str], ...]
    """Name and details, and reason; the first ones."""


def list_dropped(tables: Tables, counts: Sequence[Counts]) -> DroppedImages | None:
    """Return the dropped images; ``None``: none."""
    count = next((one for one in counts if one.stage == "images" and one.dropped), None)
    if count is None:
        return None
    dropped = ((detail, reason) for status, reason, detail in tables.refused("images") if status == "dropped")
    copies = count.reasons.get(DUPLICATE, 0)
    return DroppedImages(total=count.dropped - copies, copies=copies, rows=tuple(islice(dropped, MOST_DROPPED)))
