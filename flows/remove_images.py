"""Remove images from a dataset on request, or take them back: an entry in a list, which the next build reads.

Nothing is changed in the tables: the next build makes the parts that hold them anew without them, and
``flows.collect_garbage`` deletes the old ones once a version without them is published.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.flows.version import open_version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.dataset import Build, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.lineage import count_rows, follow, keys_like
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.takedowns import read_takedowns, removed_by, write_takedown

KEY = re.compile(r"[0-9a-f]{1,32}")
WHOLE = 32


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Removal of images: what was entered, and what comes of it."""

    number: int
    """Of the entry; 0: nothing was to be done."""
    keys: list[str]
    before: list[str]
    unknown: list[str]
    """Images that the newest version has not: they stay out when they come."""
    rows: dict[str, int]
    """Per table the rows of the newest version that go."""


def remove_images(folder: Folder, texts: Sequence[str] = (), *, names: Sequence[str] = (), reason: str = "") -> Removal:
    """Enter images into the dataset's list of removed ones."""
    with open_version(folder).settled() as (build, _):
        images = next(planned for planned in build.planned if planned.stage.writes is ImageRow)
        keys = list[str]()
        for text in _checked(texts):
            like = keys_like(build.ledger, images.stage.name, text)
            is_whole = len(text) == WHOLE and not like
            keys.append(text if is_whole else _only(text, like, "no image's key begins so"))
        keys = list(dict.fromkeys([*keys, *_by_name(build, images, names)]))
        before = removed_by(read_takedowns(folder))
        new = [key for key in keys if key not in before]
        seeds = [(images.stage.name, key) for key in new if keys_like(build.ledger, images.stage.name, key)]
        links = follow(build, seeds, "made of it")
        entry = write_takedown(folder, new, reason=reason) if new else None
        return Removal(
            number=entry.number if entry else 0,
            keys=new,
            before=[key for key in keys if key in before],
            unknown=[key for key in new if (images.stage.name, key) not in seeds],
            rows=count_rows(links, seeds),
        )


def take_back(folder: Folder, texts: Sequence[str], *, reason: str = "") -> list[str]:
    """Enter that removed images are taken back; return their keys."""
    read_record(folder)
    removed = sorted(removed_by(read_takedowns(folder)))
    like = {text: [key for key in removed if key.startswith(text)] for text in _checked(texts)}
    keys = [_only(text, some, "no removed image's key begins so") for text, some in like.items()]
    if keys:
        write_takedown(folder, keys, reason=reason, undo=True)
    return keys


def list_removed(folder: Folder) -> list[tuple[str, str, str]]:
    """Return the images that are removed now: when, which, why."""
    read_record(folder)
    entries = read_takedowns(folder)
    removed = removed_by(entries)
    last = {key: entry for entry in entries if not entry.undo for key in entry.keys}
    return sorted((last[key].when, key, last[key].reason) for key in removed)


def _checked(texts: Sequence[str]) -> list[str]:
    keys = [text.strip().lower() for text in texts]
    for key in keys:
        if not KEY.fullmatch(key):
            raise ConfigError(f"{key!r} is no key: it has up to 32 of the digits 0-9 and a-f. Names go behind --name")
    return keys


def _by_name(build: Build, images: Planned, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    wanted: dict[str, list[str]] = {name: [] for name in names}
    for table in stream_live(build, images, ["key", "name"]):
        for key, name in zip(table["key"].to_pylist(), table["name"].to_pylist(), strict=True):
            if name in wanted:
                wanted[name].append(key)
    if missing := [name for name, keys in wanted.items() if not keys]:
        raise ConfigError(f"--name {missing[0]}: no image of the newest version is called so")
    return [key for keys in wanted.values() for key in keys]


def _only(text: str, keys: Sequence[str], none: str) -> str:
    if len(keys) == 1:
        return keys[0]
    several = f"several begin so: {', '.join(keys[:5])}. Give more of it"
    raise ConfigError(f"{text}: {several if keys else none}")
