"""List the images that a source named and a rule refused, for the first page.

Reads the status, reason and detail of refused rows of the settled images stage; writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.ledger import DUPLICATE, Counts

STAGE = "images"
MOST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedImages:
    """Hold the first dropped images and how many there are."""

    total: int
    """Dropped images that are no copies."""
    copies: int
    """Images with the bytes of another one; they have no row that says which."""
    rows: tuple[tuple[str, str], ...]
    """Name, with what else differs from image to image, and reason."""


def list_dropped(tables: Tables, counts: Sequence[Counts]) -> DroppedImages | None:
    """Return the dropped images; ``None`` where none were dropped."""
    count = next((one for one in counts if one.stage == STAGE and one.dropped), None)
    if count is None:
        return None
    dropped = ((detail, reason) for status, reason, detail in tables.refused(STAGE) if status == "dropped")
    copies = count.reasons.get(DUPLICATE, 0)
    return DroppedImages(total=count.dropped - copies, copies=copies, rows=tuple(islice(dropped, MOST)))
