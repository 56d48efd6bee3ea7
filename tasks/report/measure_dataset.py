"""Measure a whole dataset for its report: similarities, lengths, what became of rejected texts, mining against truth.

Reads the tables that the build has, their image columns left out, a row group at a time. Similarities and lengths are
counted as they pass, so that they take the same memory however many rows there are; of each image the key and group
are held, and of each pair the keys of its images (some 100 bytes each), for the comparison with the truth.

Truth of mining: images that their source put into one group (photographs of one rendered world) belong together. Over
images that have a group,

* precision is the share of the kept pairs whose two images are of one group;
* recall of images is the share of images that have a partner in the collection and are in at least one such pair;
* recall of pairs is the share of all possible pairs within groups that were kept. Mining keeps few pairs per image on
  purpose, so this one is low where groups are large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from pairwright.tasks.report.chart import Chart, Series, draw_histogram
from pairwright.tasks.report.measure_yield import tally_pairs
from pairwright.tasks.report.tables import MAKERS, Tables
from pairwright.tasks.report.tally_values import Tally, tally
from pairwright.tasks.store.ledger import Counts

pc: Any = pyarrow.compute
"""Its functions are made at import, so that type checkers do not know them."""
ALL_TRUE = ("swapped text is true", "no edit makes it false", "all similar descriptions are true")
"""Why a maker drops a pair when its check refuses every candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Hold what mining found of what there was to find."""

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
        """Return right / judged."""
        return self.right / max(self.judged, 1)

    @property
    def recall_of_images(self) -> float:
        """Return found / partnered."""
        return self.found / max(self.partnered, 1)

    @property
    def recall_of_pairs(self) -> float:
        """Return right / possible."""
        return self.right / max(self.possible, 1)

    @property
    def chance(self) -> float:
        """Return the precision of pairs drawn at random."""
        return self.possible / max(self.images * (self.images - 1) // 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Say how one maker of rejected texts did."""

    name: str
    texts: int
    """Pairs for which it made one."""
    none: int
    """Pairs for which every candidate was true."""
    true: int
    """Pairs, of both kinds, whose first candidate was true by accident: the text, had nobody checked."""
    skipped: int
    """Candidates passed over because they were true, of the texts made."""

    @property
    def share(self) -> float:
        """Return the share of texts that would be true without the check."""
        return self.true / max(self.texts + self.none, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Hold everything that is measured over all rows."""

    similarities: tuple[Chart, ...]
    lengths: tuple[Chart, ...]
    splits: dict[str, int]
    makers: tuple[Maker, ...]
    truth: Truth | None


def measure_dataset(tables: Tables, counts: Sequence[Counts]) -> Measures:
    """Read what is measured, table by table; ``counts`` say what the stages dropped."""
    return Measures(
        similarities=tuple(_similarities(tables)),
        lengths=tuple(_lengths(tables)),
        splits=_splits(tables),
        makers=tuple(_makers(tables, counts)),
        truth=measure_truth(tables.read("images", ["key", "group"]), tables.read("pairs", ["first", "second"])),
    )


def _similarities(tables: Tables) -> list[Chart]:
    """Draw the kept pairs' cosines, one chart per embedder and one for the features that pairs were chosen by."""
    found = tally_pairs(tables)
    whole = tally(table.column("similarity").to_numpy() for table in tables.stream("pairs", ["similarity"]))
    charts = [
        draw_histogram(f"Similarity by {name}", [Series(name=name, tally=own)], unit="cosine")
        for name, own in found.items()
    ]
    together = [Series(name="together", tally=whole)] if whole.values.any() else []
    charts.append(draw_histogram("Similarity, weighted together", together, unit="cosine"))
    return [chart for chart in charts if chart]


def _lengths(tables: Tables) -> list[Chart]:
    chosen, rejected = count_words(tables, "preferences", "chosen"), count_words(tables, "preferences", "rejected")
    charts = [
        draw_histogram(title, [Series(name=name, tally=count_words(tables, name, column))], unit="words", whole=True)
        for title, name, column in (
            ("Length of captions", "captions", "text"),
            ("Length of differences", "differences", "text"),
            ("Length of comparisons", "comparisons", "text"),
            ("Length of answers", "questions", "answer"),
        )
    ]
    some = rejected.values > 0
    both = [
        Series(name="chosen", tally=chosen, tone="chosen"),
        Series(name="rejected", tally=Tally(rejected.values[some], rejected.counts[some]), tone="rejected"),
    ]
    charts.append(draw_histogram("Length of chosen and rejected texts", both, unit="words", whole=True))
    return [chart for chart in charts if chart]


def count_words(tables: Tables, name: str, column: str) -> Tally:
    """Count the texts by their number of words."""
    return tally((_words(table.column(column)) for table in tables.stream(name, [column])), step=1)


def _words(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    trimmed = pc.utf8_trim_whitespace(texts)
    words = pc.list_value_length(pc.utf8_split_whitespace(trimmed))
    return pc.if_else(pc.equal(trimmed, ""), 0, words).to_numpy().astype(np.int64)


def _splits(tables: Tables) -> dict[str, int]:
    name = "preferences" if tables.has("preferences") else "splits"
    counts = tables.read(name, ["split"]).column("split").value_counts().to_pylist()
    numbers = {item["values"]: item["counts"] for item in counts}
    return {split: numbers[split] for split in ("train", "validation", "test") if split in numbers}


def _makers(tables: Tables, counts: Sequence[Counts]) -> list[Maker]:
    reasons = {one.stage: one.reasons for one in counts}
    makers: list[Maker] = []
    for name in MAKERS:
        skipped = tables.read(name, ["skipped_true"]).column("skipped_true").to_numpy().astype(np.int64)
        none = sum(reasons.get(name, {}).get(reason, 0) for reason in ALL_TRUE)
        if len(skipped) + none:
            true = int((skipped > 0).sum()) + none
            makers.append(Maker(name=name, texts=len(skipped), none=none, true=true, skipped=int(skipped.sum())))
    return makers


def measure_truth(images: pa.Table, pairs: pa.Table) -> Truth | None:
    """Compare the pairs with the groups of their images; ``None`` where the source gave no groups.

    Args:
        images: columns ``key`` and ``group``; an empty group is none.
        pairs: columns ``first`` and ``second``.
    """
    images = images.filter(pc.not_equal(images.column("group"), ""))
    if not len(images):
        return None
    codes = images.column("group").combine_chunks().dictionary_encode().indices.to_numpy()
    sizes = np.bincount(codes).astype(np.int64)
    first, second = (_places(pairs.column(name), images.column("key")) for name in ("first", "second"))
    known = (first >= 0) & (second >= 0)
    first, second = first[known], second[known]
    right = codes[first] == codes[second]
    return Truth(
        images=len(images),
        groups=len(sizes),
        judged=len(first),
        right=int(right.sum()),
        possible=int((sizes * (sizes - 1) // 2).sum()),
        partnered=int(sizes[sizes > 1].sum()),
        found=len(np.unique(np.concatenate([first[right], second[right]]))),
    )


def _places(wanted: pa.ChunkedArray, keys: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return where each wanted key stands, -1 where it does not."""
    return pc.fill_null(pc.index_in(wanted, value_set=keys.combine_chunks()), -1).to_numpy().astype(np.int64)
