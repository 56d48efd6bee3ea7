"""Choose the removed element that rejects a chosen text the most (paper 004, Eq. 9).

Reads ``PairRow`` with its description and the elements of both images, writes one ``RejectionRow`` per pair.
"""

from collections.abc import Iterator, Mapping, Sequence

from schemas.config import RejectionsConfig
from schemas.removing import is_wanted
from schemas.rows import (
    DifferenceRow,
    Dropped,
    ElementRow,
    ImageRow,
    InspectionRow,
    PairRow,
    RejectionRow,
    RemovalScore,
    make_key,
)
from tasks.rejected.score_by_graphs import score_by_graphs
from tasks.store.stage import Stage, Uses

NO_ELEMENT, NO_DROP = "no element can be removed", "no removal changes how the text fits"
Candidate = tuple[RemovalScore, ElementRow]


def choose_removals(
    rows: Sequence[PairRow],
    config: RejectionsConfig,
    *,
    differences: Mapping[str, DifferenceRow],
    images: Mapping[str, ImageRow],
    elements: Mapping[str, tuple[ElementRow, ...]],
    inspected: Mapping[str, tuple[InspectionRow, ...]],
) -> Iterator[RejectionRow | Dropped]:
    """Yield what rejects each pair's description by an image, with the score of every candidate."""
    for pair in rows:
        if pair.key not in differences:
            yield Dropped(source_key=pair.key, reason="no difference description")
            continue
        checks = {row.element: row for image in (pair.first, pair.second) for row in inspected.get(image, ())}
        sides = [(0, row) for row in elements.get(pair.first, ())] + [(1, row) for row in elements.get(pair.second, ())]
        removed = [(side, row) for side, row in sides if row.key in checks]
        scores = score_by_graphs(differences[pair.key], (images[pair.first], images[pair.second]), removed)
        candidates = [
            (_score(side, row, score, checks[row.key]), row)
            for (side, row), score in zip(removed, scores, strict=bool(scores))
        ]
        yield reject(pair.key, candidates, config)


def _score(side: int, row: ElementRow, score: float, check: InspectionRow) -> RemovalScore:
    return RemovalScore(removal=row.key, tag=row.tag, side=side, score=score, chosen=False, why=check.why)


def reject(key: str, candidates: Sequence[Candidate], config: RejectionsConfig) -> RejectionRow:
    """Return the row of a pair; the highest score wins, then the smaller area, then the lower key."""
    able = [one for one in candidates if not one[0].why and one[0].score > config.least_drop]
    best = min(able, key=_rank, default=None)
    scores = tuple(
        RemovalScore(
            removal=score.removal,
            tag=score.tag,
            side=score.side,
            score=score.score,
            chosen=best is not None and score is best[0],
            clip=score.clip,
            why=score.why,
        )
        for score, _ in candidates
    )
    made_of = [f"{score.removal} {score.side} {score.score} {score.why}" for score in scores]
    return RejectionRow(
        key=make_key("rejection", key, *made_of),
        source_key=key,
        subject=key,
        maker="removal" if best else "",
        side=best[0].side if best else 0,
        element=best[1].key if best else "",
        removal_scores=scores,
        why="" if best else NO_DROP if candidates else NO_ELEMENT,
    )


def _rank(candidate: Candidate) -> tuple[float, float, str]:
    score, element = candidate
    return -score.score, element.area_share, element.key


STAGE = Stage(
    name="rejections",
    version=1,
    group="rejected",
    reads="pairs",
    row=PairRow,
    writes=RejectionRow,
    function=choose_removals,
    config="rejections",
    wanted=is_wanted,
    uses=(
        Uses(table="differences", row=DifferenceRow, counts=True),
        Uses(table="images", row=ImageRow, on="images", without=("image",)),
        Uses(table="elements", row=ElementRow, kind="many", on="images", counts=True),
        Uses(table="inspected", row=InspectionRow, kind="many", on="images", counts=True),
    ),
)
