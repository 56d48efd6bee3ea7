"""Make rejected texts by exchanging the first and the second image of a description.

Reads ``DifferenceRow`` and, to check, the scene graphs of its pair; writes ``RejectedTextRow`` by the maker "swapped".
Where nothing can be checked, halves that say nearly the same are as true the other way round. CPU, no network.
"""

from collections.abc import Iterator, Mapping, Sequence

from pairwright.prompts import load
from pairwright.schemas.claims import Claim
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, ImageRow, PairRow, RejectedTextRow
from pairwright.tasks.rejected.check_texts import Truth, likeness, read_claims, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import compare
from pairwright.tasks.store.stage import Stage, Uses


def swap_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    pairs: Mapping[str, PairRow],
    images: Mapping[str, ImageRow],
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield each description with its halves exchanged, or ``Dropped`` where that is as true."""
    del config  # There is nothing to choose.
    for row in rows:
        yield _swap(row, truth_of(row, pairs, images))


def _swap(row: DifferenceRow, truth: Truth) -> RejectedTextRow | Dropped:
    true = truth.of(tuple(exchanged(claim) for claim in read_claims(row)))
    if true or row.no_change or (true is None and compare(row.first_half, row.second_half).is_none):
        return Dropped(source_key=row.key, reason="swapped text is true", detail=row.text)
    verbs = (row.verbs[1], row.verbs[0])
    text = load("difference_template").render(
        first_verb=verbs[0], first=row.second_half, second_verb=verbs[1], second=row.first_half
    )
    note = "first and second exchanged" + (", unchecked" if true is None else "")
    return rejected_row(row, text, maker="swapped", note=note, score=likeness(row.text, text), skipped_true=0)


def exchanged(claim: Claim) -> Claim:
    """Return the claim about the other image."""
    return claim.model_copy(update={"side": 1 - claim.side})


STAGE = Stage(
    name="swapped",
    version=2,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=swap_texts,
    config="rejected_texts",
    prompts=("difference_template",),
    uses=(
        Uses(table="pairs", row=PairRow),
        Uses(table="images", row=ImageRow, on="images", of="pairs", without=("image",)),
    ),
)
