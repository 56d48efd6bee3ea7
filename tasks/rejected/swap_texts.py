"""Make rejected texts by exchanging the first and the second image of a description.

Reads ``DifferenceRow`` and, to check, the scene graphs of its pair; writes ``RejectedTextRow`` by
the maker "swapped". Where nothing can be checked, halves with nearly the same words are as true
when exchanged. A person's text is swapped if it names both images by their order.
"""

import re
from collections.abc import Iterator, Sequence

from pairwright.prompts.difference_prompts import READ_BACK, fill_template
from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow
from pairwright.tasks.rejected.check_texts import (
    TRUTH_USES,
    KnownContent,
    rejected_row,
    truth_of,
)
from pairwright.tasks.rejected.compare_words import compare_texts
from pairwright.tasks.store.stage import Stage

NOTE = "first and second exchanged"


def swap_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    pairs: Pairs,
    images: Images,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield each description with its halves exchanged, or ``Dropped`` if that is as true."""
    del config  # no setting applies
    for row in rows:
        if row.is_given:
            yield _swap_given(row)
        else:
            yield _swap_halves(row, truth_of(row, pairs, images))


def _swap_halves(row: DifferenceRow, truth: KnownContent) -> RejectedTextRow | Dropped:
    claims = CLAIMS.validate_json(row.claims)
    swapped = tuple(claim.model_copy(update={"side": 1 - claim.side}) for claim in claims)
    true = truth.judge(swapped)
    if true or row.no_change or (true is None and compare_texts(*row.halves).is_none):
        return Dropped(
            source_key=row.key,
            reason="swapped text is true",
            detail=row.text,
        )
    text = fill_template(row.verbs[::-1], *row.halves[::-1])
    return rejected_row(
        row,
        text,
        maker="swapped",
        note=NOTE,
        true=true,
        claims=swapped,
    )


def _swap_given(row: DifferenceRow) -> RejectedTextRow | Dropped:
    """Exchange the names of both images in a person's text; dropped unless it names both."""
    names_both = all(re.search(pattern, row.text, re.IGNORECASE) for pattern in NAMED)
    if row.no_change or not names_both:
        return Dropped(
            source_key=row.key,
            reason="does not name both images",
            detail=row.text,
        )
    text = re.sub(
        "|".join(NAMED),
        _name_other,
        row.text,
        flags=re.IGNORECASE,
    )
    return rejected_row(
        row,
        text,
        maker="swapped",
        note=NOTE,
        true=None,
    )


def _name_other(match: re.Match[str]) -> str:
    """Return the name of the other image, with the same capitalisation."""
    word, *rest = match[0].split()
    other = OTHER[word.lower()]
    if word[0].isupper():
        other = other.capitalize()
    return " ".join([other, *rest])


IMAGE = r"(?: (?:image|picture|photo|photograph|one)\b)"
NAMED = (rf"\bfirst{IMAGE}|\bleft{IMAGE}|\bbefore\b", rf"\bsecond{IMAGE}|\bright{IMAGE}|\bafter\b")
OTHER = {
    "first": "second",
    "second": "first",
    "left": "right",
    "right": "left",
    "before": "after",
    "after": "before",
}

STAGE = Stage(
    name="swapped",
    version=6,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=swap_texts,
    config=lambda profile: profile.complete(profile.rejected_texts),
    prompts=READ_BACK,
    uses=TRUTH_USES,
)
