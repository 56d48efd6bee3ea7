"""What the three makers of rejected texts share: the truth of a text, its likeness to the chosen one, the row.

A text is checked against scene graphs by its claims. Where a pair has no graphs, or a text no claims, nothing can be
checked; the note of the row says so.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from schemas.claims import CLAIMS, Claim, Graphs, all_hold
from schemas.rows import DifferenceRow, ImageRow, PairRow, RejectedTextRow, make_key

WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Truth:
    """Know what a pair's photographs show, as far as that is known."""

    graphs: Graphs | None

    def of(self, claims: tuple[Claim, ...]) -> bool | None:
        """Say whether the claims hold; ``None`` where it cannot be known."""
        return all_hold(claims, self.graphs) if claims and self.graphs else None


def truth_of(row: DifferenceRow, pairs: Mapping[str, PairRow], images: Mapping[str, ImageRow]) -> Truth:
    """Look up the scene graphs of the pair that a description is about."""
    pair = pairs.get(row.subject)
    rows = [images.get(key) for key in (pair.first, pair.second)] if pair else []
    graphs = [image.graph for image in rows if image is not None and image.graph is not None]
    return Truth((graphs[0], graphs[1]) if len(graphs) == 2 else None)


def read_claims(row: DifferenceRow) -> tuple[Claim, ...]:
    """Return what a description claims; nothing where that is unknown."""
    return CLAIMS.validate_json(row.claims)


def likeness(first: str, second: str) -> float:
    """Return the cosine of two texts' counts of words and of pairs of neighbouring words.

    Needs no collection, unlike TF-IDF; the pairs of words tell a text from the same words in another order.
    """
    a, b = _counts(first), _counts(second)
    length = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return round(sum(n * b[term] for term, n in a.items()) / length, 9) if length else 0.0


def _counts(text: str) -> Counter[str]:
    words = WORD.findall(text.lower())
    return Counter(words) + Counter(f"{a} {b}" for a, b in pairwise(words))


def rejected_row(
    row: DifferenceRow, text: str, *, maker: str, note: str, score: float, skipped_true: int
) -> RejectedTextRow:
    """Return the row of a text that is wrong for the description's pair."""
    return RejectedTextRow(
        key=make_key(row.subject, maker, text),
        source_key=row.key,
        subject=row.subject,
        text=text,
        maker=maker,
        note=note,
        score=score,
        skipped_true=skipped_true,
    )
