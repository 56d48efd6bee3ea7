"""List what a table of a dataset refused, and why: what ``status --refused`` prints.

Reads the rows that were dropped, that failed, or that were kept and say a reason, and names what each is about.
"""

from collections.abc import Iterator, Sequence

from pairwright.schemas.rows import ImageRow, PairRow, RemovalRow
from pairwright.tasks.rejected import remove_elements
from pairwright.tasks.sources import read_items
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.ledger import DUPLICATE
from pairwright.tasks.store.snapshot import find_live
from pairwright.tasks.store.stage import Planned


def list_refused(build: Build, stages: Sequence[Planned], table: str) -> Iterator[tuple[str, str, str]]:
    """Yield status, reason and detail of what a table of a settled build refused, each image by its name.

    The status is "dropped", "failed", or "kept": a row that is there, and that is not used for this reason, or less.
    """
    planned = next((stage for stage in stages if stage.stage.name == table), None)
    refused = list(build.refused(planned)) if planned else []
    names: dict[str, tuple[str, ...]] = {}
    if planned and "items" not in planned.stage.reads:  # those tell the names themselves
        names = _names_of({subject for *_, subject in refused}, build, stages)
    elif planned and planned.stage.writes is ImageRow:
        for name, other in build.duplicates(planned, "name"):
            yield "dropped", DUPLICATE, f"{name}: the same image as {other}"
    told = ((s, reason, _told(names.get(about, ()), detail)) for s, reason, detail, about in refused)
    yield from dict.fromkeys(told)  # several rows may be about one image


def _told(names: Sequence[str], detail: str) -> str:
    """Return a detail behind the names of what it is about; one that it begins with is not said twice."""
    for name in reversed(names):
        if not f"{detail}: ".startswith(f"{name}: "):
            detail = f"{name}: {detail}".removesuffix(": ")
    return detail


def _names_of(subjects: set[str], build: Build, stages: Sequence[Planned]) -> dict[str, tuple[str, ...]]:
    """Return what people call images, pairs and elements: the names of files, and behind it an element's tag."""
    tables = {stage.stage.name: stage for stage in stages}
    pairs, removed = tables.get("pairs"), tables.get(remove_elements.STAGE.name)
    known = find_live(build, pairs, PairRow, subjects=subjects) if pairs else ()
    big = ("patch", "mask")
    elements = find_live(build, removed, RemovalRow, subjects=subjects, without=big) if removed else ()
    keys = subjects.union(*((pair.first, pair.second) for pair in known), (one.image_key for one in elements))
    images, big = tables[read_items.IMAGES.name], ("image", "graph", "captions")
    files = {row.key: row.name for row in find_live(build, images, ImageRow, subjects=keys, without=big)}
    return {
        **{key: (name,) for key, name in files.items()},
        **{pair.key: (" | ".join(files.get(key, key) for key in (pair.first, pair.second)),) for pair in known},
        **{one.subject: (files.get(one.image_key, one.image_key), one.tag) for one in elements},
    }
