"""Read data sets that are folders of images with annotation files beside them: what their readers share.

A reader turns the annotations into ``Entry`` rows, in their own order; from there on all is alike. Each becomes one
``ItemRow`` whose locator holds everything but the pixels (paths, sizes, times, texts), so that annotations are read
once, while listing. Each item becomes one image, or one pair with both its images, or one ``Dropped`` or ``Failed``.
No network, no model; local disks only.

A bad record becomes an item that is dropped with its reason, and so does an image that is a link out of the folder.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow, PairRow, Row, make_key
from pairwright.tasks.sources.read_entry import (
    NO_FILE,
    About,
    Picture,
    RefusedEntryError,
    check_path,
    read_below,
    read_each,
    read_image,
    read_pair,
    shown_name,
    size_and_time,
)
from pairwright.tasks.sources.reader import Read, Reader, never

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One image or pair as the annotations name it."""

    name: str
    """What people call it."""
    images: tuple[str, ...] = ()
    """Paths below the folder of images: one, or the two of a pair in the source's order."""
    texts: tuple[str, ...] = ()
    """Captions of the one image, or what people wrote about the difference."""
    captions: tuple[tuple[str, ...], ...] = ()
    """Captions of each image of a pair."""
    licence: str = ""
    """What the record itself says; the configured one goes before it."""
    instruction: str = ""
    change_types: tuple[str, ...] = ()
    turns: tuple[tuple[str, str], ...] = ()
    """Roles and texts of a conversation about a pair."""
    group: str = ""
    no_change: bool = False
    """Whether the source says that nothing changed."""
    refused: str = ""
    """Why there is none."""
    detail: str = ""


_STORED = tuple(field.name for field in fields(Entry) if field.name != "name")
"""What a locator holds, where there is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Place of a data set on disk."""

    root: Path
    """What was named on the command line."""
    images: Path
    """Where paths of images start: ``reading.images``, or the root (its folder, where it is a file)."""
    reading: ReadingConfig

    def find_folder(self, *names: str) -> str:
        """Return the first of these folders of images that is there, with a final slash; "" stands for all."""
        found = next((name for name in names if (self.images / name).is_dir()), "")
        return f"{found}/" if found else ""

    def find_image(self, *paths: str) -> str:
        """Return the first of these paths at which there is something, else the first.

        Raises:
            RefusedEntryError: one of them is no path below the folder.
        """
        for path in paths:
            check_path(path)
        return next((path for path in paths if size_and_time(self.images, path) != NO_FILE), paths[0])

    def find_file(self, *names: str) -> Path:
        """Return the first of these files that is there; ``SourceError`` where there is none of them."""
        for name in names:
            if (self.root / name).is_file():
                return self.root / name
        raise SourceError(f"{self.root}: holds no {' or '.join(names)}")

    def find_lists(self, folders: Sequence[str], splits: Sequence[str]) -> tuple[str, dict[str, Path]]:
        """Return the first folder that holds the list ``<split>.json`` of a split, and the lists that it holds.

        Raises:
            SourceError: none holds any.
        """
        for folder in folders:
            paths = {split: self.root / f"{folder}{split}.json" for split in splits}
            if found := {split: path for split, path in paths.items() if path.is_file()}:
                return folder, found
        raise SourceError(f"{self.root}: holds no {', '.join(f'{folders[0]}{split}.json' for split in splits)}")

    def find_lines(self) -> list[Path]:
        """Return the root, where it is a file, else the JSON Lines files in it, in the order of their names.

        Raises:
            SourceError: there is none.
        """
        if self.root.is_file():
            return [self.root]
        paths = sorted(path for path in self.root.glob("*.jsonl") if path.is_file() and path.name[0] != ".")
        if not paths:
            raise SourceError(f"{self.root}: holds no file *.jsonl")
        return paths

    def choose_splits(self, there: Sequence[str]) -> list[str]:
        """Return the splits to read, in the source's own order.

        Raises:
            SourceError: a split is asked for that is not there.
        """
        wanted = self.reading.splits
        if unknown := sorted(set(wanted) - set(there)):
            raise SourceError(
                f"{self.root}: reading.splits names {', '.join(map(repr, unknown))}; there are: "
                f"{', '.join(map(shown_name, there)) or 'none'}"
            )
        return [name for name in there if not wanted or name in wanted]


Entries = Callable[[Layout], Iterator[Entry]]


def layout_reader(
    kind: str,
    entries: Entries,
    *,
    about: str,
    example: str,
    details: str | None,
    origin: str = "given",
    brings: tuple[type[Row], ...] = (PairRow,),
    recognises: Callable[[str], bool] = never,
    rows_per_shard: int = 256,
) -> Reader:
    """Return the reader of a data set of this form."""
    return Reader(
        kind=kind,
        about=about,
        example=example,
        details=details or "",
        list_items=partial(list_entries, entries),
        read_items=partial(read_entries, origin=origin),
        brings=brings,
        recognises=recognises,
        rows_per_shard=rows_per_shard,
    )


def has_files(names: Sequence[str], path: str) -> bool:
    """Say whether a folder, or ``data`` in it, holds all of these files."""
    places = (Path(path), Path(path, "data")) if "://" not in path else ()
    return any(all((place / name).is_file() for name in names) for place in places)


def checked(name: str, make: Callable[[], Entry]) -> Entry:
    """Return the entry that ``make`` makes, or a refused one where it raises."""
    try:
        return make()
    except RefusedEntryError as refused:
        return Entry(name=name, refused=refused.reason, detail=refused.detail)


def list_entries(entries: Entries, config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield an item per entry, the first ``limit`` of them.

    Raises:
        SourceError: there is no such data set, or nothing in it.
    """
    layout = _open_layout(config)
    count = 0
    for entry in islice(entries(layout), limit):
        item = make_item(config.kind, layout.images, entry)
        count += 1
        yield item
    log.info("%s: listed %d of %s", shown_name(str(layout.root)), count, config.kind)
    if not count and limit != 0:
        raise SourceError(f"{layout.root}: the annotations name no image")


def make_item(kind: str, base: Path, entry: Entry, *, is_named: bool = True) -> ItemRow:
    """Return an entry as an item. A record that is there twice has one key, and so is read once.

    Where its name says no more than where it stands (``is_named``), the key leaves it out.
    """
    place: dict[str, Any] = {name: value for name in _STORED if (value := getattr(entry, name))}
    place["images"] = [[path, *size_and_time(base, path)] for path in entry.images]
    locator = json.dumps(place, ensure_ascii=True, sort_keys=True)
    name = shown_name(entry.name)
    key = make_key(kind, *([name] if is_named else []), locator)
    return ItemRow(key=key, source_key=key, subject=key, name=name, locator=locator)


def read_entries(items: Sequence[ItemRow], config: SourceConfig, *, origin: str = "given") -> Iterator[Read]:
    """Yield the image of each item, or the pair with its images, or why there is none."""
    base = images_folder(config).resolve()
    return read_each(items, lambda item: read_item(item, base, config, origin))


def read_item(item: ItemRow, base: Path, config: SourceConfig, origin: str = "given") -> list[ImageRow | PairRow]:
    """Return the image, or the pair with its images, that a locator names.

    Raises:
        RefusedEntryError: it is not to be had.
        OSError: the disk fails.
    """
    place: dict[str, Any] = json.loads(item.locator)
    if "refused" in place:
        raise RefusedEntryError(place["refused"], place.get("detail", ""))
    data = [read_below(base, path, config.images, listed) for path, *listed in place["images"]]
    texts = tuple(place.get("texts", ()))
    captions = [tuple(own) for own in place.get("captions", ((), ()))] if len(data) == 2 else [texts]
    names = [shown_name(path) for path, *_ in place["images"]]
    pictures = [
        Picture(data=found, name=name, captions=own) for found, name, own in zip(data, names, captions, strict=True)
    ]
    about = About(
        group=place.get("group", ""),
        licence=place.get("licence", ""),
        origin=origin,
        human_differences=texts,
        instruction=place.get("instruction", ""),
        change_types=tuple(place.get("change_types", ())),
        may_be_identical=place.get("no_change", False),
    )
    if len(pictures) == 1:
        return [read_image(item, pictures[0], config, about)]
    return [*read_pair(item, pictures, config, about)]


def images_folder(config: SourceConfig) -> Path:
    """Return the folder from which paths of images start."""
    root = Path(config.path)
    return Path(config.reading.images or (root.parent if root.is_file() else root))


def _open_layout(config: SourceConfig) -> Layout:
    for path in filter(None, (config.path, config.reading.images)):
        if "://" in path:
            raise SourceError(f"{path}: {config.kind} is read from local disks only; copy or mount it")
    root, images = Path(config.path), images_folder(config)
    for path, what in ((root, "the data set's folder"), (images, "reading.images")):
        if not path.exists():
            raise SourceError(f"{path}: there is no such folder; give {what}")
        if not os.access(path, os.R_OK | os.X_OK * path.is_dir()):
            raise SourceError(f"{path}: may not be read")
    if not images.is_dir():
        raise SourceError(f"{images}: is no folder; reading.images names the folder of the images")
    return Layout(root=root, images=images, reading=config.reading)
