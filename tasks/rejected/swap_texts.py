"""Make rejected texts by exchanging the first and the second image of a description.

Reads ``DifferenceRow`` and, to check, the scene graphs of its pair; writes ``RejectedTextRow`` by the maker "swapped".
Where nothing can be checked, halves that say nearly the same are as true the other way round.
"""

from collections.abc import Iterator, Sequence

from pairwright.prompts.differences import TEMPLATE, fill_template
from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, Images, Pairs, RejectedTextRow
from pairwright.tasks.rejected.check_texts import TRUTH_USES, rejected_row, truth_of
from pairwright.tasks.rejected.compare_words import compare
from pairwright.tasks.store.stage import Stage


def swap_texts(
    rows: Sequence[DifferenceRow], config: RejectedTextsConfig, *, pairs: Pairs, images: Images
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield each description with its halves exchanged, or ``Dropped`` where that is as true."""
    del config  # There is nothing to choose.
    for row in rows:
        claims = CLAIMS.validate_json(row.claims)
        swapped = tuple(claim.model_copy(update={"side": 1 - claim.side}) for claim in claims)
        true = truth_of(row, pairs, images).of(swapped)
        if true or row.no_change or (true is None and compare(*row.halves).is_none):
            yield Dropped(source_key=row.key, reason="swapped text is true", detail=row.text)
        else:
            text = fill_template(row.verbs[::-1], *row.halves[::-1])
            note = "first and second exchanged"
            yield rejected_row(row, text, maker="swapped", note=note, true=true, claims=swapped)


STAGE = Stage(
    name="swapped",
    version=3,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=swap_texts,
    config="rejected_texts",
    prompts=(TEMPLATE,),
    uses=TRUTH_USES,
)
