"""Measure the comparisons (CaD): words of commonalities and of differences, and which axes the summaries have.

Reads the columns of ``ComparisonRow``, a chunk at a time; nothing per row is held. Paper 003 counts axes in its Figure
3 (c) and states mean words in its text. Here the words of statements count, not headings, numbers and labels ("Object
types:").
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from pairwright.tasks.report.tables import Tables
from pairwright.tasks.texts.comparisons import AXES

pc: Any = pyarrow.compute
UNLABELLED = "no axis named"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """Hold what is measured of the comparisons."""

    rows: int
    common_words: float
    """Mean words of the commonalities of one summary."""
    difference_words: float
    axes: dict[str, int]
    """Summaries that speak of each axis, and those with a statement that names none, where there are any."""
    per_summary: float
    """Mean number of different axes of a summary."""
    asked: int
    """Conversations with the retrieval question."""
    answers: dict[str, int]
    """Their right answers ("A" is the first image)."""


def measure_summaries(tables: Tables) -> Summaries | None:
    """Measure all comparisons; ``None`` if there are none."""
    rows, words, covered = 0, Counter[str](), np.zeros(len(AXES) + 1, np.int64)
    answers: Counter[str] = Counter()
    for table in tables.chunks("comparisons", ["commonalities", "differences", "axes", "conversation"]):
        rows += len(table)
        words["common"] += count_list_words(table.column("commonalities"))
        words["different"] += count_list_words(table.column("differences"))
        covered += mark_axes(table.column("axes")).sum(axis=0)
        answers.update(_answers(table.column("conversation")))
    if not rows:
        return None
    named = {axis: int(number) for axis, number in zip(AXES, covered, strict=False)}
    return Summaries(
        rows=rows,
        common_words=words["common"] / rows,
        difference_words=words["different"] / rows,
        axes=named | ({UNLABELLED: int(covered[-1])} if covered[-1] else {}),
        per_summary=sum(named.values()) / rows,
        asked=sum(answers.values()),
        answers=dict(sorted(answers.items())),
    )


def count_list_words(lists: pa.ChunkedArray) -> int:
    """Return the number of words of all texts in a column of lists."""
    texts = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    words = pc.list_value_length(pc.utf8_split_whitespace(texts.filter(pc.not_equal(texts, ""))))
    return pc.sum(words).as_py() or 0


def mark_axes(lists: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return per row which axes its statements name ("counts, locations"), and last whether one names none."""
    marks = np.zeros((len(lists), len(AXES) + 1), bool)
    rows = pc.list_parent_indices(lists).to_numpy()
    labels = pc.list_flatten(lists).combine_chunks().dictionary_encode()
    codes = labels.indices.to_numpy()
    for code, label in enumerate(labels.dictionary.to_pylist()):
        places = [AXES.index(name) for name in label.split(", ") if name in AXES] or [len(AXES)]
        for place in places:
            marks[rows[codes == code], place] = True
    return marks


def _answers(conversations: pa.ChunkedArray) -> Counter[str]:
    """Count the answers to the retrieval question, of conversations that have a second turn."""
    long = conversations.filter(pc.greater(pc.list_value_length(conversations), 3))
    if not len(long):
        return Counter()
    texts = pc.struct_field(pc.list_element(long, 3), "text")
    return Counter({item["values"]: item["counts"] for item in texts.value_counts().to_pylist()})
