"""Measure a whole dataset for its report: similarities, thresholds, lengths, rejected texts, mining against truth.

Reads narrow columns and texts; DuckDB counts, so that memory does not grow with the rows. Truth of mining: images that
their source put into one group (photographs of one rendered world) belong together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import duckdb
import numpy as np

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.pages.charts import Chart, Line, Tally, draw_histogram, draw_lines, round_step
from pairwright.tasks.report.tables import FINE, MAKERS, WORDS, Tables, tally
from pairwright.tasks.store.ledger import DUPLICATE, Counts

ALL_TRUE = ("swapped text is true", "no edit makes it false", "all similar descriptions are true")
"""Why a maker drops a pair when its check refuses every candidate."""
LENGTHS = (
    ("Length of captions", "captions", "text"),
    ("Length of differences", "differences", "text"),
    ("Length of comparisons", "comparisons", "text"),
    ("Length of answers", "questions", "answer"),
)
MOST_PLACES = 40
"""Thresholds of a picture of yields."""
RARE, BELOW = 0.01, 0.2
"""Share of the least similar that such a picture leaves out; how far below the present threshold it goes."""
TONES = 6
"""Kinds of lines that the style sheet tells apart, by colour and by dashes."""
MOST_DROPPED = 50
NONE = Tally(np.empty(0), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What mining found of what there was to find."""

    images: int
    """Images that have a group."""
    groups: int
    judged: int
    """Kept pairs of which both images have a group."""
    right: int
    """Those of one group."""
    possible: int
    """Pairs within groups that there could be."""
    partnered: int
    """Images that have a partner."""
    found: int
    """Those that are in a right pair."""

    @property
    def precision(self) -> float:
        """Return the share of the kept pairs whose two images are of one group."""
        return self.right / max(self.judged, 1)

    @property
    def recall_of_images(self) -> float:
        """Return the share of the images with a partner in the collection that are in at least one such pair."""
        return self.found / max(self.partnered, 1)

    @property
    def recall_of_pairs(self) -> float:
        """Return the share of all pairs within groups that were kept: low where groups are large, on purpose."""
        return self.right / max(self.possible, 1)

    @property
    def chance(self) -> float:
        """Return the precision of pairs drawn at random."""
        return self.possible / max(self.images * (self.images - 1) // 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """How one maker of rejected texts did."""

    name: str
    texts: int
    """Pairs for which it made one."""
    none: int
    """Pairs for which every candidate was true."""
    true: int
    """Pairs, of both kinds, whose first candidate was true by accident: the text, had nobody checked."""
    skipped: int
    """Candidates passed over because they were true, of the texts made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Everything that is measured over all rows."""

    similarities: Sequence[Chart]
    yields: Sequence[Chart]
    lengths: Sequence[Chart]
    splits: Mapping[str, int]
    makers: Sequence[Maker]
    truth: Truth | None


def measure_dataset(tables: Tables, counts: Sequence[Counts], mining: MiningConfig) -> Measures:
    """Read what is measured, table by table; ``counts`` say what the stages dropped."""
    pairs = tally_pairs(tables)
    return Measures(
        similarities=draw_similarities(tables, pairs),
        yields=draw_yields(tables, pairs, mining),
        lengths=_draw_lengths(tables),
        splits=_splits(tables),
        makers=_makers(tables, counts),
        truth=_truth(tables),
    )


def tally_pairs(tables: Tables) -> dict[str, Tally]:
    """Count the kept pairs by their similarity to each encoder."""
    if not tables.has("pairs"):
        return {}
    with tables.database(pairs=["embedders", "similarities"]) as database:
        spread = "unnest(range(len(embedders))) AS place, unnest(embedders) AS name, unnest(similarities) AS value"
        return tally(database, f"SELECT {spread} FROM pairs")


def draw_similarities(tables: Tables, pairs: Mapping[str, Tally]) -> list[Chart]:
    """Draw the kept pairs' cosines, one chart per embedder and one for the features that pairs were chosen by."""
    found = {f"Similarity by {name}": (name, own) for name, own in pairs.items()}
    with tables.database(pairs=["similarity"]) as database:
        whole = tally(database, "SELECT 0 AS place, 'together' AS name, similarity AS value FROM pairs")
    if "together" in whole and whole["together"].values.any():
        found["Similarity, weighted together"] = ("together", whole["together"])
    charts = [draw_histogram(title, [(name, "plain", own)], unit="cosine") for title, (name, own) in found.items()]
    return [chart for chart in charts if chart]


def draw_yields(tables: Tables, pairs: Mapping[str, Tally], mining: MiningConfig) -> list[Chart]:
    """Draw what lower and higher thresholds would leave of neighbours and pairs, from stored scores."""
    neighbours = tally_neighbours(tables, f"value <= {mining.max_similarity + FINE / 2}")
    charts = (
        _draw_yield("Neighbours left by min_similarity", neighbours, unit="neighbours", now=mining.min_similarity),
        _draw_yield("Pairs left by a higher threshold", pairs, unit="pairs", now=None),
    )
    return [chart for chart in charts if chart]


def tally_neighbours(tables: Tables, which: str = "true") -> dict[str, Tally]:
    """Count every neighbour that was found, before any threshold, by its similarity to each encoder."""
    if not tables.has("neighbours"):
        return {}
    with tables.database(neighbours=["embedders", "similarities"]) as database:
        lists = "unnest(range(len(embedders))) AS place, unnest(embedders) AS name, unnest(similarities) AS listed"
        spread = f"SELECT place, name, unnest(listed) AS value FROM (SELECT {lists} FROM neighbours)"
        return tally(database, f"SELECT * FROM ({spread}) WHERE {which}")


def _draw_yield(title: str, found: Mapping[str, Tally], *, unit: str, now: float | None) -> Chart | None:
    """Draw a line per encoder: how many are at least as similar as each threshold."""
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
    left = {name: _at_least(own, places) for name, own in found.items()}
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


def _at_least(own: Tally, places: np.ndarray) -> np.ndarray:
    """Count the values that are not below each threshold."""
    below = np.concatenate([[0], np.cumsum(own.counts)])
    return below[-1] - below[np.searchsorted(own.values, places - FINE / 2)]


def _draw_lengths(tables: Tables) -> list[Chart]:
    charts: list[Chart | None] = []
    for title, name, column in LENGTHS:
        words = count_words(tables, name, column)
        charts.append(draw_histogram(title, [(name, "plain", words)], unit="words", whole=True))
    chosen, rejected = (count_words(tables, "preferences", side) for side in ("chosen", "rejected"))
    some = rejected.values > 0
    both = [
        ("chosen", "chosen", chosen),
        ("rejected", "rejected", Tally(rejected.values[some], rejected.counts[some])),
    ]
    charts.append(draw_histogram("Length of chosen and rejected texts", both, unit="words", whole=True))
    return [chart for chart in charts if chart]


def count_words(tables: Tables, name: str, column: str) -> Tally:
    """Count the texts by their number of words."""
    if not tables.has(name):
        return NONE
    with tables.database(**{name: [column]}) as database:
        query = f"SELECT 0 AS place, 'words' AS name, {WORDS.format(column)} AS value FROM {name}"
        return tally(database, query, step=1).get("words", NONE)


def _splits(tables: Tables) -> dict[str, int]:
    name = "preferences" if tables.has("preferences") else "splits"
    with tables.database(**{name: ["split"]}) as database:
        found = dict(database.execute(f"SELECT split, count(*) FROM {name} GROUP BY 1").fetchall())
    return {split: found[split] for split in ("train", "validation", "test") if split in found}


def _makers(tables: Tables, counts: Sequence[Counts]) -> list[Maker]:
    reasons = {one.stage: one.reasons for one in counts}
    makers: list[Maker] = []
    for name in MAKERS:
        with tables.database(**{name: ["skipped_true"]}) as database:
            sums = "count(*), count(*) FILTER (skipped_true > 0), coalesce(sum(skipped_true), 0)::BIGINT"
            ((texts, passed, skipped),) = database.execute(f"SELECT {sums} FROM {name}").fetchall()
        none = sum(reasons.get(name, {}).get(reason, 0) for reason in ALL_TRUE)
        if texts + none:
            makers.append(Maker(name=name, texts=texts, none=none, true=passed + none, skipped=skipped))
    return makers


def _truth(tables: Tables) -> Truth | None:
    columns = {"images": ["key", "group"], "pairs": ["first", "second"]}
    if not tables.has("images") or not tables.has("pairs"):
        return None
    with tables.database(**columns) as database:
        return measure_truth(database)


def measure_truth(database: duckdb.DuckDBPyConnection) -> Truth | None:
    """Compare pairs (first, second) with the groups of images (key, group); ``None``: there are none."""
    database.execute('CREATE TEMP VIEW grouped AS SELECT key, "group" AS g FROM images WHERE "group" != \'\'')
    images, groups, possible, partnered = database.execute(
        "SELECT sum(n), count(*), sum(n * (n - 1) // 2), coalesce(sum(n) FILTER (n > 1), 0)"
        " FROM (SELECT count(*) AS n FROM grouped GROUP BY g)"
    ).fetchall()[0]
    if not images:
        return None
    database.execute(
        "CREATE TEMP TABLE judged AS SELECT first, second, a.g = b.g AS same FROM pairs"
        " JOIN grouped a ON a.key = first JOIN grouped b ON b.key = second"
    )
    judged, right = database.execute("SELECT count(*), count(*) FILTER (same) FROM judged").fetchall()[0]
    both = "SELECT first FROM judged WHERE same UNION SELECT second FROM judged WHERE same"
    ((found,),) = database.execute(f"SELECT count(*) FROM ({both})").fetchall()
    return Truth(
        images=int(images),
        groups=groups,
        judged=judged,
        right=right,
        possible=int(possible),
        partnered=int(partnered),
        found=found,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedImages:
    """Images that a source named and a rule refused."""

    total: int
    """Dropped images that are no copies."""
    copies: int
    """Images with the bytes of another one; they have no row that says which."""
    rows: tuple[tuple[str, str], ...]
    """Name, with what else differs from image to image, and reason; the first ones."""


def list_dropped(tables: Tables, counts: Sequence[Counts]) -> DroppedImages | None:
    """Return the dropped images; ``None`` where none were dropped."""
    count = next((one for one in counts if one.stage == "images" and one.dropped), None)
    if count is None:
        return None
    dropped = ((detail, reason) for status, reason, detail in tables.refused("images") if status == "dropped")
    copies = count.reasons.get(DUPLICATE, 0)
    return DroppedImages(total=count.dropped - copies, copies=copies, rows=tuple(islice(dropped, MOST_DROPPED)))
