"""Say which preferences are exported, by the licence and the source of their images."""

from collections.abc import Collection
from dataclasses import dataclass

from schemas.rows import PreferenceRow

UNSTATED = "unstated"
"""Stands for images whose licence nobody stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Keep preferences all of whose images are under these licences and from these sources; none named: any."""

    licences: tuple[str, ...] = ()
    """Compared without case; ``UNSTATED`` for none."""
    sources: tuple[str, ...] = ()

    def keeps(self, row: PreferenceRow) -> bool:
        """Say whether a row is exported."""
        return _all_in(row.licences, self.licences) and _all_in(row.sources, self.sources)


def _all_in(found: Collection[str], wanted: Collection[str]) -> bool:
    allowed = {name.lower() for name in wanted}
    return not allowed or all((name or UNSTATED).lower() in allowed for name in found)
