"""Check rejected texts: their truth, their likeness to the chosen text; and make their rows.

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
    only_repeats,
    says_nothing_else,
)
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.store.stage import Uses
from pairwright.tasks.texts.say_claims import surely_said

TRUTH_USES = (
    Uses(table="pairs", row=PairRow),
    Uses(
        table="images",
        row=ImageRow,
        on="about",
        of="pairs",
        without=("image",),
    ),
)
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class KnownContent:
    """Known content of a pair's photographs."""

    graphs: Graphs | None
    human_texts: tuple[str, ...] = ()  # people's texts about the difference

    def judge(self, claims: tuple[Claim, ...]) -> bool | None:
        """Return whether the claims hold, or may pass for true; ``None``: unknown."""
        if not claims or not self.graphs:
            return None
        return may_hold(surely_said(claims), self.graphs)

    def of_words(self, halves: Halves) -> bool | None:
        """Return whether a text without claims is true, by its words; ``None``: unknown."""
        if any(only_repeats(halves, text) for text in self.human_texts):
            return True
        reading = read_phrases(*halves)
        true = self.judge(reading.claims)
        if true and not reading.understood:
            return None
        return true


def is_as_true(
    halves: Halves, descriptions: Sequence[DifferenceRow], truth: KnownContent
) -> bool | None:
    """Return whether a text is as true of the pair as the pair's descriptions.

    It is if it says no more, or is known to hold. ``None``: it says something else, of unknown
    truth.
    """
    for row in descriptions:
        if says_nothing_else(halves, row.halves):
            return True
        if row.no_change and denies_change(" ".join(halves)):
            return True
    return truth.of_words(halves)


def truth_of(row: DifferenceRow, pairs: Pairs, images: Images) -> KnownContent:
    """Return the scene graphs of a description's pair, and people's texts about it."""
    pair = pairs.get(row.subject)
    if pair is None:
        return KnownContent(graphs=None)
    first = images.get(pair.first)
    second = images.get(pair.second)
    graphs = None
    if first and second and first.graph and second.graph:
        graphs = (first.graph, second.graph)
    return KnownContent(graphs, pair.human_differences)


def text_cosine(first: str, second: str) -> float:
    """Return the cosine of two texts' counts of words and of neighbouring pairs of words.

    Unlike TF-IDF it needs no collection; the pairs distinguish the same words in another order.
    """
    first_counts = _count_words(first)
    second_counts = _count_words(second)
    first_square = sum(count * count for count in first_counts.values())
    second_square = sum(count * count for count in second_counts.values())
    length = math.sqrt(first_square * second_square)
    if not length:
        return 0.0
    product = sum(count * second_counts[term] for term, count in first_counts.items())
    return round(product / length, 9)


def _count_words(text: str) -> Counter[str]:
    tokens = WORD.findall(text.lower())
    return Counter(tokens) + Counter(f"{a} {b}" for a, b in pairwise(tokens))


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
    """Return the row of a text that is wrong of the pair or, with ``true`` None, unchecked.

    Its score is by default its likeness to the chosen text.
    """
    if true is None:
        note = f"{note}, {UNCHECKED}"
    if score is None:
        score = text_cosine(row.text, text)
    return RejectedTextRow(
        key=make_key(row.key, maker, text),
        source_key=row.key,
        subject=row.subject,
        description=row.key,
        text=text,
        maker=maker,
        note=note,
        score=score,
        skipped_true=skipped_true,
        claims=dump_claims(claims),
        served=served,
    )
