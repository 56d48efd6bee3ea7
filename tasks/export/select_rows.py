"""Say which preferences are exported: by licence and source of their images, split, kind, score, people's verdicts."""

from collections.abc import Collection
from dataclasses import dataclass

from pairwright.schemas.decisions import ACCEPTED, Decision
from pairwright.schemas.rows import PreferenceRow

UNSTATED = "unstated"
"""Stands for images whose licence nobody stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Keep preferences to which all of this applies; what is not named may be anything. Names compare without case."""

    licences: tuple[str, ...] = ()
    """All images are under one of these; ``UNSTATED`` for none."""
    sources: tuple[str, ...] = ()
    """All images are from one of these."""
    splits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """The row is of one of these, as ``kinds_of`` names them."""
    score: float | None = None
    """Least score of the removal that its rejected images show; rows without such a removal have none."""
    accepted: bool = False
    """A person accepted the row, or edited it."""

    def keeps(self, row: PreferenceRow, decision: Decision | None = None) -> bool:
        """Say whether a row is exported about which a person may have decided."""
        return (
            (not self.accepted or (decision is not None and decision.verdict in ACCEPTED))
            and _all_in(row.licences, self.licences)
            and _all_in(row.sources, self.sources)
            and _all_in([row.split], self.splits)
            and (not self.kinds or any(_all_in([kind], self.kinds) for kind in kinds_of(row)))
            and (self.score is None or any(one.chosen and one.score >= self.score for one in row.removal_scores))
        )


EVERYTHING = Selection()


def kinds_of(row: PreferenceRow) -> set[str]:
    """Return what a row is: about a "pair" or one "image", and what made its rejected text and its rejected image."""
    about = "pair" if len(row.images) > 1 else "image"
    return {about, row.rejected_maker, row.rejected_image_maker} - {""}


def _all_in(found: Collection[str], wanted: Collection[str]) -> bool:
    allowed = {name.lower() for name in wanted}
    return not allowed or all((name or UNSTATED).lower() in allowed for name in found)
