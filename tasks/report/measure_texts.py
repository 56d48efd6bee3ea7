"""Measure the descriptions of differences: how often they repeat one another, which verbs they use, what was refused.

Reads the texts, verbs and attempts of ``DifferenceRow``; 8 bytes per description are held in memory.

What counts as repeated, after paper 001, Table 14: a description is one sentence; of all that are equal word for word
(white space aside) the first is unique, the others are repetitions; the share is repetitions / all. The paper does not
say whether case or final full stops counted; here they do, and the verb of each half counts as one of its words.
Descriptions that say that nothing changed are meant to be alike, so that the share is given without them, too (ours).

What counts as refused: the paper generates once and filters; here a refused answer is asked for again. So the share
that is comparable with the paper's is that of first answers which were refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute
import xxhash
from numpy.typing import NDArray

from pairwright.prompts import difference_verbs
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.texts.differences import Reason, inflections

pc: Any = pyarrow.compute
REFUSALS = get_args(Reason)
"""Why a validator refuses an answer; pairs dropped for other reasons gave none."""
MOST_SHOWN = 5
PAPER_ROWS = (
    ("InstructPix2Pix", 311_499, 297_485),
    ("CC3M", 449_194, 440_204),
    ("Spot-the-Diff", 7_004, 6_439),
    ("all three", 767_697, 744_128),
)
"""Paper 001, Table 14: images of, descriptions, unique ones."""
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Count sentences, as paper 001's Table 14 does."""

    total: int
    unique: int

    @property
    def repeated(self) -> int:
        """Return how many repeat another one."""
        return self.total - self.unique

    @property
    def share(self) -> float:
        """Return the repetition ratio."""
        return self.repeated / max(self.total, 1)


PAPER = {name: Repetition(total=total, unique=unique) for name, total, unique in PAPER_ROWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Hold what is measured of the descriptions of differences."""

    sentences: Repetition
    changed: Repetition
    """Of those that name a change."""
    most: tuple[tuple[str, int], ...]
    """The sentences that occur most often, and how often, where more than once."""
    verbs: dict[str, int]
    """Halves by the verb of the paper's list that opens them, most frequent first."""
    listed: int
    """Verbs that the list has."""
    again: int
    """Descriptions whose first answer was refused, and a later one taken."""
    refused: dict[str, int]
    """Pairs of which every answer was refused, by the reason of the last."""

    @property
    def beside(self) -> tuple[tuple[str, Repetition], ...]:
        """Return the repetition of these descriptions and of the paper's."""
        return (("this dataset", self.sentences), *((f"paper, {name}", found) for name, found in PAPER.items()))

    @property
    def lost(self) -> int:
        """Return how many pairs have no description because every answer was refused."""
        return sum(self.refused.values())

    @property
    def asked(self) -> int:
        """Return how many first answers there were."""
        return self.sentences.total + self.lost

    @property
    def share_refused(self) -> float:
        """Return the share of first answers that were refused."""
        return (self.again + self.lost) / max(self.asked, 1)


def measure_differences(tables: Tables, counts: Sequence[Counts]) -> Differences | None:
    """Measure all descriptions that were written, also those that a check sorted out; ``None`` if there are none."""
    name = "described"
    hashes: list[Hashes] = []
    same: list[NDArray[np.bool_]] = []
    verbs: Counter[str] = Counter()
    again = 0
    for table in tables.chunks(name, ["text", "verbs", "attempts", "no_change"]):
        hashes.append(hash_texts(table.column("text")))
        same.append(pc.fill_null(table.column("no_change"), fill_value=False).to_numpy().astype(bool))
        again += pc.sum(pc.greater(table.column("attempts"), 1)).as_py() or 0
        for item in pc.list_flatten(table.column("verbs")).value_counts().to_pylist():
            verbs[item["values"]] += item["counts"]
    reasons = next((one.reasons for one in counts if one.stage == name), {})
    refused = {reason: number for reason, number in reasons.items() if reason in REFUSALS}
    if not hashes and not refused:
        return None
    every = np.concatenate([np.empty(0, np.uint64), *hashes])
    changed = every[~np.concatenate([np.empty(0, bool), *same])]
    return Differences(
        sentences=count_repetition(every),
        changed=count_repetition(changed),
        most=tuple(_most_frequent(tables, name, every)),
        verbs=group_verbs(verbs, difference_verbs()),
        listed=len(difference_verbs()),
        again=again,
        refused=refused,
    )


def hash_texts(texts: pa.ChunkedArray) -> Hashes:
    """Return 64 bits per text, equal where texts are equal but for white space; of a million, none meet by chance."""
    return np.array([_hash(text) for text in texts.to_pylist()], np.uint64)


def _hash(text: str | None) -> int:
    return xxhash.xxh3_64_intdigest(" ".join((text or "").split()).encode())


def count_repetition(hashes: Hashes) -> Repetition:
    """Count equal texts."""
    return Repetition(total=len(hashes), unique=len(np.unique(hashes)))


def group_verbs(found: Mapping[str, int], known: tuple[str, ...]) -> dict[str, int]:
    """Count verbs under the form that the list has, most frequent first; one that is not listed under its own."""
    listed = {form: verb for verb in known for form in inflections(verb)}
    counts: Counter[str] = Counter()
    for verb, number in found.items():
        counts[listed.get(verb, verb)] += number
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _most_frequent(tables: Tables, name: str, hashes: Hashes) -> Iterator[tuple[str, int]]:
    """Yield the texts that occur most often, with their numbers."""
    marks, times = np.unique(hashes, return_counts=True)
    order = np.lexsort((marks, -times))[:MOST_SHOWN]
    wanted = {int(marks[place]): int(times[place]) for place in order if times[place] > 1}
    texts = _find_texts(tables, name, np.array([*wanted], np.uint64)) if wanted else {}
    yield from ((texts[mark], number) for mark, number in wanted.items())


def _find_texts(tables: Tables, name: str, wanted: Hashes) -> dict[int, str]:
    """Return the texts of some hashes; the table is read as far as the last of them."""
    found: dict[int, str] = {}
    for table in tables.chunks(name, ["text"]):
        texts = table.column("text")
        for place in np.flatnonzero(np.isin(hash_texts(texts), wanted)).tolist():
            text = " ".join(texts[place].as_py().split())
            found.setdefault(_hash(text), text)
        if len(found) == len(wanted):
            break
    return found
