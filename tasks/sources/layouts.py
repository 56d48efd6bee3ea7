"""Shared parts of readers of data sets that are folders of images with annotation files.

A reader turns the annotations into ``AnnotatedItem``. Each becomes an ``ItemRow`` with everything
but the pixels in its locator (paths, sizes, times, texts), so that annotations are read once, while
listing. Each item becomes one image, or one pair with its two images, or one ``Dropped`` or
``Failed``. Local disks only.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow, PairRow
from pairwright.tasks.sources import annotations
from pairwright.tasks.sources.find_files import local_path
from pairwright.tasks.sources.read_entry import (
    NO_FILE,
    EntryMetadata,
    SourceImage,
    check_path,
    read_below,
    read_image,
    read_pair,
    size_and_time,
)
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    escape_name,
    list_item,
    locate,
    read_one,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedItem:
    """One image or pair in the annotations."""

    images: tuple[str, ...]
    """Paths below the folder of images: one, or the two of a pair in the source's order."""
    captions: tuple[tuple[str, ...], ...] = ((), ())
    """Captions of each image."""
    metadata: EntryMetadata = field(default_factory=EntryMetadata)
    """Its ``human_differences`` include blank texts of the annotations, since evaluation counts
    them."""
    mask: str = ""
    """Path of the image that is bright where the second image of a pair differs."""
    remarks: tuple[str, ...] = ()
    """Fields that cannot be used, each "phrase: particulars"."""
    turns: tuple[tuple[str, str], ...] = ()
    """Roles and texts of a conversation about a pair."""
    name: str = ""
    """Readable name, if it differs from the listed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetLayout:
    """Files of a data set on disk."""

    root: Path
    """Path given on the command line."""
    images: Path
    """Base of the images' paths: ``reading.images``, or the root (its folder, if it is a file)."""
    reading: ReadingConfig

    def find_folder(self, *names: str) -> str:
        """Return the first of these folders of images, with a final slash; "" if none exists."""
        for name in names:
            if (self.images / name).is_dir():
                return f"{name}/" if name else ""
        return ""

    def find_image(self, *paths: str) -> str:
        """Return the first of these paths that exists, or else the first."""
        for path in map(check_path, paths):
            if size_and_time(self.images, path) != NO_FILE:
                return path
        return paths[0]

    def find_file(self, *names: str) -> Path:
        """Return the first of these files that exists; ``SourceError`` if there is none."""
        for name in names:
            if (self.root / name).is_file():
                return self.root / name
        raise SourceError(f"{self.root}: holds no {' or '.join(names)}")

    def find_lists(
        self, folders: Sequence[str], splits: Sequence[str]
    ) -> tuple[str, dict[str, Path]]:
        """Return the first folder with a list ``<split>.json``, and its lists."""
        for folder in folders:
            paths = {split: self.root / f"{folder}{split}.json" for split in splits}
            existing = {split: path for split, path in paths.items() if path.is_file()}
            if existing:
                return folder, existing
        names = [f"{folders[0]}{split}.json" for split in splits]
        raise SourceError(f"{self.root}: holds no {', '.join(names)}")

    def find_manifests(self, endings: tuple[str, ...]) -> list[Path]:
        """Return the root if it is a file, else its files with these endings, sorted by name."""
        if self.root.is_file():
            return [self.root]
        files = [
            path
            for path in self.root.iterdir()
            if path.name.lower().endswith(endings) and path.is_file()
        ]
        visible = [path for path in files if path.name[0] != "."]
        if not visible:
            raise SourceError(f"{self.root}: has no manifest ({' '.join(endings)})")
        return sorted(visible)

    def choose_splits(self, available: Sequence[str]) -> list[str]:
        """Return the splits to read, in the source's order; ``SourceError`` if one is missing."""
        return annotations.choose_splits(self.root, self.reading.splits, available)


Listed = tuple[str, Callable[[], AnnotatedItem] | RefusedEntryError, str]
"""Name of a record; the function that makes its entry or raises ``RefusedEntryError``, or that
error; its split."""


def layout_reader(
    entries: Callable[[DatasetLayout], Iterator[Listed]], **declaration: Any
) -> Reader:
    """Return the reader of a data set of this form; the rest is declared as in any ``Reader``."""

    def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
        root = local_path(config.path, "the data set")
        images = local_path(config.reading.images or str(_images_folder(config)), "reading.images")
        if not images.is_dir():
            raise SourceError(
                f"{images}: is not a folder; set reading.images to the folder of the images"
            )
        layout = DatasetLayout(root=root, images=images, reading=config.reading)
        count = 0
        for listed in islice(entries(layout), limit):
            count += 1
            yield make_item(config.kind, images, *listed)
        log.info("%s: listed %d of %s", escape_name(str(root)), count, config.kind)
        if not count and limit != 0:
            raise SourceError(f"{root}: the annotations name no image")

    def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
        base = _images_folder(config).resolve()
        for item in items:
            yield from read_one(item, read_item, base, config)

    return Reader(list_items=list_items, read_items=read_items, **declaration)


def _images_folder(config: SourceConfig) -> Path:
    if config.reading.images:
        return Path(config.reading.images)
    root = Path(config.path)
    return root.parent if root.is_file() else root


def make_item(
    kind: str,
    base: Path,
    name: str,
    make: Callable[[], AnnotatedItem] | RefusedEntryError,
    split: str,
) -> ItemRow:
    """Return an entry as an item. A repeated record has the same key, so it is read once."""
    try:
        if isinstance(make, RefusedEntryError):
            raise make
        entry = make()
    except RefusedEntryError as refused:
        return list_item(kind, escape_name(name), {"name": name}, refused)
    metadata = asdict(replace(entry.metadata, split=split))
    locator: dict[str, Any] = {
        "images": [[path, *size_and_time(base, path)] for path in entry.images],
        "captions": entry.captions[: len(entry.images)],
        "about": {name: value for name, value in metadata.items() if value},
        "turns": entry.turns,
    }
    if entry.mask:
        locator["mask"] = [entry.mask, *size_and_time(base, entry.mask)]
    if entry.remarks:
        locator["remarks"] = entry.remarks
    return list_item(kind, escape_name(entry.name or name), locator)


def read_item(item: ItemRow, base: Path, config: SourceConfig) -> list[ImageRow | PairRow]:
    """Return the image, or the pair with its images, of a locator."""
    locator = locate(item)
    pictures: list[SourceImage] = []
    for image, captions in zip(locator["images"], locator["captions"], strict=True):
        path, *listed = image
        data = read_below(base, path, config.images, listed)
        name = escape_name(path)
        remarks = () if pictures else tuple(locator.get("remarks", ()))
        picture = SourceImage(data=data, name=name, captions=tuple(captions), remarks=remarks)
        pictures.append(picture)
    fields: dict[str, Any] = {}
    for field_name, value in locator["about"].items():
        if isinstance(value, list):
            fields[field_name] = tuple(filter(None, value))
        else:
            fields[field_name] = value
    if "mask" in locator:
        path, *listed = locator["mask"]
        fields["mask"] = read_below(base, path, config.images, listed)
    metadata = EntryMetadata(**fields)
    if len(pictures) == 2:
        return read_pair(item, pictures, config, metadata)
    return [read_image(item, pictures[0], config, metadata)]
