"""Remove images from a dataset on request: an entry in a list by which every reader filters.

It holds at once, for all versions, without a build. The pages of the last report, which may show
the images, are deleted. ``collect_garbage`` then erases the images from the files.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.garbage import files_below
from pairwright.tasks.store.lineage import count_reached, follow, keys_like
from pairwright.tasks.store.open_tables import RECORD, Build, read_record
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.takedowns import read_takedowns, removed_by, write_takedown

REPORT_PAGE = "report/index.html"
KEY = re.compile(r"[0-9a-f]{1,32}")
KEY_LENGTH = 32
NAMED = 5  # maximum keys that are named if several begin with a prefix


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Removal of images: the entry, and its consequences."""

    number: int  # number of the entry; 0: nothing to do
    keys: list[str]
    before: list[str]
    # images that the newest version lacks; they stay out if the source has them later
    unknown: list[str]
    rows: dict[str, int]  # rows of the newest version that leave, by table


def remove_images(
    newest: Version, texts: Sequence[str] = (), *, names: Sequence[str] = (), reason: str = ""
) -> Removal:
    """Add images to the list of removals, by keys, prefixes of keys, or names."""
    folder = newest.folder
    with newest.resolved() as (build, _):
        images = next(planned for planned in build.planned if planned.stage.writes is ImageRow)
        table = images.stage.name
        keys_by_name = _find_keys_by_name(build, images, names)
        keys = dict.fromkeys(_find_key(build, table, text.strip().lower()) for text in texts)
        for named_keys in keys_by_name:
            keys.update(dict.fromkeys(named_keys))
        removed = removed_by(read_takedowns(folder))
        new = [key for key in keys if key not in removed]
        seeds = [(table, key) for key in new if keys_like(build.ledger, table, key)]
        links = follow(build, seeds, "made of it")
        number = 0
        if new:
            number = write_takedown(folder, new, reason=reason).number
            for excluded in folder.folders("excluded"):
                if folder.exists(f"excluded/{excluded}/{RECORD}"):
                    url = f"{folder.url.rstrip('/')}/excluded/{excluded}"
                    write_takedown(Folder(url), new, reason=reason)
            _delete_report(folder)
        return Removal(
            number=number,
            keys=new,
            before=[key for key in keys if key in removed],
            unknown=[key for key in new if (table, key) not in seeds],
            rows=count_reached(links, seeds),
        )


def _delete_report(folder: Folder) -> None:
    """Delete the pages of the last report."""
    if folder.exists(REPORT_PAGE):
        for name in list(files_below(folder, REPORT_PAGE.partition("/")[0])):
            folder.delete(name)


def list_removed(folder: Folder) -> list[tuple[str, str, str]]:
    """Return the images that are removed now: time, key, reason."""
    read_record(folder)
    removed: list[tuple[str, str, str]] = []
    for entry in read_takedowns(folder):
        removed += [(entry.when, key, entry.reason) for key in entry.keys]
    return sorted(removed)


def _find_keys_by_name(
    build: Build, images: Planned, names: Sequence[str]
) -> Iterable[Sequence[str]]:
    """Return the keys of the images with each name in the source."""
    if not names:
        return []
    keys: dict[str, list[str]] = {name: [] for name in names}
    for table in stream_live(build, images, ["key", "name"]):
        for row in table.to_pylist():
            if row["name"] in keys:
                keys[row["name"]].append(row["key"])
    for name in names:
        if not keys[name]:
            raise ConfigError(f"--name {name}: no image of the newest version has this name")
    return keys.values()


def _find_key(build: Build, table: str, text: str) -> str:
    """Return the only key that begins so, or a whole key that the version lacks."""
    if not KEY.fullmatch(text):
        raise ConfigError(
            f"{text!r} is not a key (up to 32 of the digits 0-9 and a-f); give names with --name"
        )
    keys = keys_like(build.ledger, table, text)
    if len(keys) == 1:
        return keys[0]
    if len(text) == KEY_LENGTH and not keys:
        return text
    if keys:
        some = ", ".join(keys[:NAMED])
        raise ConfigError(f"{text}: several begin so: {some}. Give more of it")
    raise ConfigError(f"{text}: no image has a key that begins so")
