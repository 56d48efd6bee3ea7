"""Shared parts of readers of data sets that are folders of images with annotation files.

A reader turns the annotations into ``Entry`` rows. Each becomes an ``ItemRow`` with everything but the pixels in its
locator (paths, sizes, times, texts), so that annotations are read once, while listing. Each item becomes one image, or
one pair with its two images, or one ``Dropped`` or ``Failed``. Local disks only.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow, PairRow
from pairwright.tasks.sources import annotations
from pairwright.tasks.sources.read_entry import (
    NO_FILE,
    About,
    Picture,
    RefusedEntryError,
    check_path,
    list_item,
    read_below,
    read_image,
    read_one,
    read_pair,
    shown_name,
    size_and_time,
)
from pairwright.tasks.sources.reader import Read, Reader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One image or pair in the annotations."""

    images: tuple[str, ...]
    """Paths below the folder of images: one, or the two of a pair in the source's order."""
    captions: tuple[tuple[str, ...], ...] = ((), ())
    """Captions of each image."""
    about: About = field(default_factory=About)
    """Its ``human_differences`` include blank texts of the annotations, since evaluation counts them."""
    turns: tuple[tuple[str, str], ...] = ()
    """Roles and texts of a conversation about a pair."""
    name: str = ""
    """Readable name, if it differs from the listed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Place of a data set on disk."""

    root: Path
    """Path given on the command line."""
    images: Path
    """Base of the images' paths: ``reading.images``, or the root (its folder, if it is a file)."""
    reading: ReadingConfig

    def find_folder(self, *names: str) -> str:
        """Return the first existing one of these folders of images, with a final slash; "" stands for all."""
        found = next((name for name in names if (self.images / name).is_dir()), "")
        return f"{found}/" if found else ""

    def find_image(self, *paths: str) -> str:
        """Return the first existing one of these paths, else the first."""
        for path in paths:
            check_path(path)
        return next((path for path in paths if size_and_time(self.images, path) != NO_FILE), paths[0])

    def find_file(self, *names: str) -> Path:
        """Return the first existing one of these files; ``SourceError`` if there is none."""
        for name in names:
            if (self.root / name).is_file():
                return self.root / name
        raise SourceError(f"{self.root}: holds no {' or '.join(names)}")

    def find_lists(self, folders: Sequence[str], splits: Sequence[str]) -> tuple[str, dict[str, Path]]:
        """Return the first folder with a list ``<split>.json``, and its lists."""
        for folder in folders:
            paths = {split: self.root / f"{folder}{split}.json" for split in splits}
            if found := {split: path for split, path in paths.items() if path.is_file()}:
                return folder, found
        raise SourceError(f"{self.root}: holds no {', '.join(f'{folders[0]}{split}.json' for split in splits)}")

    def find_lines(self) -> list[Path]:
        """Return the root if it is a file, else its JSON Lines files, sorted by name."""
        if self.root.is_file():
            return [self.root]
        paths = sorted(path for path in self.root.glob("*.jsonl") if path.is_file() and path.name[0] != ".")
        if not paths:
            raise SourceError(f"{self.root}: has no *.jsonl file")
        return paths

    def choose_splits(self, there: Sequence[str]) -> list[str]:
        """Return the splits to read, in the source's own order; ``SourceError`` if one is missing."""
        return annotations.choose_splits(self.root, self.reading.splits, there)


Listed = tuple[str, Callable[[], Entry] | RefusedEntryError]
"""Name of a record, and the function that makes its entry or raises ``RefusedEntryError``, or that error."""


def of_split(split: str, make: Callable[[], Entry]) -> Callable[[], Entry]:
    """Return a function that makes the same entry with a published split."""

    def entry() -> Entry:
        made = make()
        return replace(made, about=replace(made.about, split=split))

    return entry


def layout_reader(entries: Callable[[Layout], Iterator[Listed]], **declaration: Any) -> Reader:
    """Return the reader of a data set of this form; the rest is declared as in any ``Reader``."""
    return Reader(list_items=partial(_list_entries, entries=entries), read_items=read_entries, **declaration)


def _list_entries(
    config: SourceConfig, limit: int | None, *, entries: Callable[[Layout], Iterator[Listed]]
) -> Iterator[ItemRow]:
    layout = _open_layout(config)
    count = 0
    for name, make in islice(entries(layout), limit):
        count += 1
        yield make_item(config.kind, layout.images, name, make)
    log.info("%s: listed %d of %s", shown_name(str(layout.root)), count, config.kind)
    if not count and limit != 0:
        raise SourceError(f"{layout.root}: the annotations name no image")


def make_item(kind: str, base: Path, name: str, make: Callable[[], Entry] | RefusedEntryError) -> ItemRow:
    """Return an entry as an item. A repeated record has the same key, so it is read once."""
    try:
        if isinstance(make, RefusedEntryError):
            raise make
        entry = make()
    except RefusedEntryError as refused:
        return list_item(kind, shown_name(name), {"name": name, "refused": refused.reason, "detail": refused.detail})
    place = {
        "images": [[path, *size_and_time(base, path)] for path in entry.images],
        "captions": entry.captions[: len(entry.images)],
        "about": {name: value for name, value in asdict(entry.about).items() if value},
        "turns": entry.turns,
    }
    return list_item(kind, shown_name(entry.name or name), place)


def read_entries(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the image of each item, or the pair with its images, or the reason why there is none."""
    base = _images_folder(config).resolve()
    for item in items:
        yield from read_one(item, partial(read_item, item, base, config))


def read_item(item: ItemRow, base: Path, config: SourceConfig) -> list[ImageRow | PairRow]:
    """Return the image, or the pair with its images, of a locator."""
    place: dict[str, Any] = json.loads(item.locator)
    if "refused" in place:
        raise RefusedEntryError(place["refused"], place["detail"])
    pictures = [
        Picture(data=read_below(base, path, config.images, listed), name=shown_name(path), captions=tuple(captions))
        for (path, *listed), captions in zip(place["images"], place["captions"], strict=True)
    ]
    about: dict[str, Any] = {
        name: tuple(filter(None, value)) if isinstance(value, list) else value for name, value in place["about"].items()
    }
    if len(pictures) == 1:
        return [read_image(item, pictures[0], config, About(**about))]
    return read_pair(item, pictures, config, About(**about))


def _images_folder(config: SourceConfig) -> Path:
    root = Path(config.path)
    return Path(config.reading.images or (root.parent if root.is_file() else root))


def _open_layout(config: SourceConfig) -> Layout:
    for path in filter(None, (config.path, config.reading.images)):
        if "://" in path:
            raise SourceError(f"{path}: {config.kind} is read from local disks only; copy or mount it there")
    root, images = Path(config.path), _images_folder(config)
    for path, what in ((root, "the path of the data set"), (images, "reading.images")):
        if not path.exists():
            raise SourceError(f"{path}: no such file or folder; give {what}")
        if not os.access(path, os.R_OK | os.X_OK * path.is_dir()):
            raise SourceError(f"{path}: permission denied; make it readable for this user")
    if not images.is_dir():
        raise SourceError(f"{images}: is not a folder; set reading.images to the folder of the images")
    return Layout(root=root, images=images, reading=config.reading)
