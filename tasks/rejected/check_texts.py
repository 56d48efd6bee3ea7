"""Helpers of the makers of rejected texts: the truth of a text, its likeness to the chosen one, the row.

A text is checked against scene graphs by its claims, or by the claims that can be read from its
words. Without graphs or readable words, it is only known to be true if it repeats the chosen text
or people's texts; otherwise it is unchecked, which the note of the row says.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pairwright.schemas.claims import Claim, Graphs, dump_claims, may_hold
from pairwright.schemas.rows import (
    UNCHECKED,
    DifferenceRow,
    ImageRow,
    Images,
    PairRow,
    Pairs,
    RejectedTextRow,
    Served,
    make_key,
)
from pairwright.tasks.rejected.compare_words import (
    Halves,
    denies_change,
    repeats,
    says_nothing_else,
)
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.store.stage import Uses
from pairwright.tasks.texts.say_claims import surely_said

TRUTH_USES = (
    Uses(table="pairs", row=PairRow),
    Uses(table="images", row=ImageRow, on="images", of="pairs", without=("image",)),
)
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class KnownContent:
    """Known content of a pair's photographs."""

    graphs: Graphs | None
    said: tuple[str, ...] = ()  # people's texts about the difference

    def of(self, claims: tuple[Claim, ...]) -> bool | None:
        """Return whether the claims hold, or may pass for true; ``None``: unknown."""
        return may_hold(surely_said(claims), self.graphs) if claims and self.graphs else None

    def of_words(self, halves: Halves) -> bool | None:
        """Return whether a text without claims is true, by its words; ``None``: unknown."""
        if any(repeats(halves, said) for said in self.said):
            return True
        read = read_phrases(*halves)
        held = self.of(read.claims)
        return None if held and not read.understood else held


def is_as_true(halves: Halves, own: Sequence[DifferenceRow], truth: KnownContent) -> bool | None:
    """Return whether a text is as true of the pair as its own descriptions: it says no more, or is known to hold.

    ``None``: it says something else, of unknown truth.
    """
    for row in own:
        if says_nothing_else(halves, row.halves) or (
            row.no_change and denies_change(" ".join(halves))
        ):
            return True
    return truth.of_words(halves)


def truth_of(row: DifferenceRow, pairs: Pairs, images: Images) -> KnownContent:
    """Return the scene graphs of a description's pair, and people's texts about it."""
    pair = pairs.get(row.subject)
    rows = [images.get(key) for key in (pair.first, pair.second)] if pair else []
    graphs = [image.graph for image in rows if image is not None and image.graph is not None]
    return KnownContent(
        (graphs[0], graphs[1]) if len(graphs) == 2 else None, pair.human_differences if pair else ()
    )


def text_cosine(first: str, second: str) -> float:
    """Return the cosine of two texts' counts of words and of neighbouring pairs of words.

    Unlike TF-IDF it needs no collection; the pairs distinguish the same words in another order.
    """
    a, b = _counts(first), _counts(second)
    length = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return round(sum(n * b[term] for term, n in a.items()) / length, 9) if length else 0.0


def _counts(text: str) -> Counter[str]:
    words = WORD.findall(text.lower())
    return Counter(words) + Counter(f"{a} {b}" for a, b in pairwise(words))


def rejected_row(
    row: DifferenceRow,
    text: str,
    *,
    maker: str,
    note: str,
    true: bool | None = False,
    score: float | None = None,
    skipped_true: int = 0,
    claims: tuple[Claim, ...] = (),
    served: tuple[Served, ...] = (),
) -> RejectedTextRow:
    """Return the row of a text that is wrong of the description's pair or, with ``true`` None, unchecked.

    Its score is by default its likeness to the chosen text.
    """
    return RejectedTextRow(
        key=make_key(row.key, maker, text),
        source_key=row.key,
        subject=row.subject,
        description=row.key,
        text=text,
        maker=maker,
        note=note + (f", {UNCHECKED}" if true is None else ""),
        score=text_cosine(row.text, text) if score is None else score,
        skipped_true=skipped_true,
        claims=dump_claims(claims),
        served=served,
    )
