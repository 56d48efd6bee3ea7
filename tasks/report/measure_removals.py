"""Measure how images came to be rejected: what was refused on the way, which removals passed, what was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.tasks.report.tables import Tables, count
from pairwright.tasks.store.ledger import Counts

REMOVED, CHECKED = "can be removed", "passed all checks"
CHOSEN = {"removal": "an element removed", "crop": "a random crop", "": "none"}
BEFORE_ELEMENTS = ("tags", "boxes", "masks")
"""Steps that drop an image for which they find nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """How many of what came through each step, and why the rest did not."""

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
    found, refused = _count_tags(tables)
    rejections, candidates, able = _count_candidates(tables)
    name, column = ("preferences", "rejected_image_maker") if tables.has("preferences") else ("rejections", "maker")
    made = {CHOSEN.get(maker, maker): number for maker, number in _count(tables, name, column).items()}
    return Removals(
        images=of["tags"].of if "tags" in of else 0,
        empty={reason: n for name in BEFORE_ELEMENTS if name in of for reason, n in of[name].reasons.items()},
        tags=found + sum(refused.values()),
        refused_tags=refused,
        elements=_named(_count(tables, "elements", "why"), REMOVED),
        inspected=_named(_count(tables, "inspected", "why"), CHECKED),
        made={name: made[name] for name in CHOSEN.values() if made.get(name)},
        why=of["rejections"].reasons if "rejections" in of else {},
        candidates=candidates / max(rejections, 1),
        able=able / max(rejections, 1),
    )


def _count(tables: Tables, name: str, column: str) -> dict[str, int]:
    with tables.database(**{name: [column]}) as database:
        return count(database, f"SELECT {column} AS value FROM {name}")


def _count_tags(tables: Tables) -> tuple[int, dict[str, int]]:
    if not tables.has("tags"):
        return 0, {}
    with tables.database(tags=["tags", "refused_tags"]) as database:
        ((found,),) = database.execute("SELECT coalesce(sum(len(tags)), 0)::BIGINT FROM tags").fetchall()
        return found, count(database, "SELECT unnest(refused_tags).reason AS value FROM tags")


def _count_candidates(tables: Tables) -> tuple[int, int, int]:
    """Count the rows that have candidates to choose from, the candidates, and those that passed their checks."""
    if not tables.has("rejections"):
        return 0, 0, 0
    able = "len(list_filter(removal_scores, lambda one: coalesce(one.why, '') = ''))"
    sums = f"coalesce(sum(len(removal_scores)), 0)::BIGINT, coalesce(sum({able}), 0)::BIGINT"
    with tables.database(rejections=["removal_scores"]) as database:
        return database.execute(f"SELECT count(*), {sums} FROM rejections").fetchall()[0]


def _named(found: dict[str, int], name: str) -> dict[str, int]:
    """Return the counts, most frequent first after those without a reason, which get a name."""
    return {name: found.get("", 0), **{why: number for why, number in found.items() if why}} if found else {}
