"""Measure how images came to be rejected: what was refused on the way, which removals passed, what was chosen.

Reads the columns that say why, of ``TagsRow``, ``ElementRow``, ``InspectionRow``, ``RejectionRow`` and
``PreferenceRow``, some tens of thousands of rows at a time; only counts are held in memory.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import Counts

pc: Any = pyarrow.compute
REMOVED, CHECKED = "can be removed", "passed all checks"
CHOSEN = {"removal": "an element removed", "crop": "a random crop", "": "none"}
BEFORE_ELEMENTS = ("tags", "boxes", "masks")
"""Steps that drop an image for which they find nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """Hold how many of what came through each step, and why the rest did not."""

    images: int
    """Images that were looked at."""
    empty: dict[str, int]
    """Images in which a step found nothing, by its reason."""
    tags: int
    """Tags that were looked for or refused."""
    refused_tags: dict[str, int]
    elements: dict[str, int]
    """Tags with a mask by why they cannot be removed; those that can under ``REMOVED``."""
    inspected: dict[str, int]
    """Removals by the check that they failed; those that passed under ``CHECKED``."""
    made: dict[str, int]
    """Preferences by how their rejected image was made; under "none" those without. Before there are preferences: what
    may become one."""
    why: dict[str, int]
    """Why no removal was chosen."""
    candidates: float
    """Candidates of a preference, on average."""
    able: float
    """Those of them that passed their checks."""

    @property
    def total(self) -> int:
        """Return the preferences, or what may become one."""
        return sum(self.made.values())

    @property
    def rejected(self) -> int:
        """Return those with a rejected image."""
        return self.total - self.made.get(CHOSEN[""], 0)


def measure_removals(tables: Tables, counts: Sequence[Counts]) -> Removals | None:
    """Read what is counted, table by table; ``None`` where no image was to lose an element."""
    of = {one.stage: one for one in counts}
    if "tags" not in of and "rejections" not in of:
        return None
    tags, refused = _count_tags(tables)
    elements, inspected = _count_why(tables, "elements"), _count_why(tables, "inspected")
    rejections, candidates, able = _count_candidates(tables)
    made = _count_made(tables)
    return Removals(
        images=of["tags"].of if "tags" in of else 0,
        empty={reason: n for name in BEFORE_ELEMENTS if name in of for reason, n in of[name].reasons.items()},
        tags=tags,
        refused_tags=dict(refused.most_common()),
        elements=_named(elements, REMOVED),
        inspected=_named(inspected, CHECKED),
        made={name: made[name] for name in CHOSEN.values() if made[name]},
        why=of["rejections"].reasons if "rejections" in of else {},
        candidates=candidates / max(rejections, 1),
        able=able / max(rejections, 1),
    )


def _count_tags(tables: Tables) -> tuple[int, Counter[str]]:
    total, refused = 0, Counter[str]()
    for table in tables.chunks("tags", ["tags", "refused_tags"]):
        total += pc.sum(pc.list_value_length(table.column("tags"))).as_py() or 0
        if "refused_tags" in table.column_names:
            reasons = pc.struct_field(pc.list_flatten(table.column("refused_tags")), "reason")
            refused.update(_values(reasons))
    return total + refused.total(), refused


def _count_why(tables: Tables, name: str) -> Counter[str]:
    found = Counter[str]()
    for table in tables.chunks(name, ["why"]):
        found.update(_values(pc.fill_null(table.column("why"), "")))
    return found


def _count_made(tables: Tables) -> Counter[str]:
    name, column = ("preferences", "rejected_image_maker") if tables.has("preferences") else ("rejections", "maker")
    made = Counter[str]()
    for table in tables.chunks(name, [column]):
        for maker, number in _values(table.column(column)).items():
            made[CHOSEN.get(maker, maker)] += number
    return made


def _count_candidates(tables: Tables) -> tuple[int, int, int]:
    """Count the rows that have candidates to choose from, the candidates, and those that passed their checks."""
    rows = candidates = able = 0
    for table in tables.chunks("rejections", ["removal_scores"]):
        scores = pc.list_flatten(table.column("removal_scores"))
        rows, candidates = rows + len(table), candidates + len(scores)
        able += pc.sum(pc.equal(pc.fill_null(pc.struct_field(scores, "why"), ""), "")).as_py() or 0
    return rows, candidates, able


def _values(column: pa.ChunkedArray) -> dict[str, int]:
    return {item["values"] or "": item["counts"] for item in column.value_counts().to_pylist()}


def _named(found: Counter[str], name: str) -> dict[str, int]:
    """Return the counts, most frequent first after those without a reason, which get a name."""
    rest = Counter({why: number for why, number in found.items() if why})
    return {name: found[""], **dict(rest.most_common())} if found else {}
