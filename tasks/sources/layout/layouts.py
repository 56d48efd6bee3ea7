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
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.annotations import RefusedEntryError, check_path
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image, read_pair
from pairwright.tasks.sources.layout.read_below import NO_FILE, read_below, size_and_time

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Be one image or pair as the annotations name it."""

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
    """Say where a data set is."""

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
        return next((path for path in paths if size_and_time(str(self.images), path) != NO_FILE), paths[0])

    def names_in(self, folder: str) -> list[str]:
        """Return the names in a folder of images, none where there is no such folder.

        Raises:
            SourceError: it cannot be listed.
        """
        try:
            return [path.name for path in (self.images / folder).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SourceError(f"{self.images / folder}: cannot be listed: {error.strerror}") from error

    def find_file(self, *names: str) -> Path:
        """Return the first of these files that is there.

        Raises:
            SourceError: there is none of them.
        """
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
        try:
            found = (path for path in self.root.iterdir() if path.suffix == ".jsonl" and path.name[0] != ".")
            paths = sorted(path for path in found if path.is_file())
        except OSError as error:
            raise SourceError(f"{self.root}: cannot be listed: {error.strerror}") from error
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


def list_entries(entries: Entries, config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield an item per entry, the first ``limit`` of them.

    Raises:
        SourceError: there is no such data set, or nothing in it.
    """
    return _items(entries, _open_layout(config), kind=config.kind, limit=limit)


def read_entries(
    items: Sequence[ItemRow], config: SourceConfig, *, origin: str = "given"
) -> Iterator[ImageRow | PairRow | Dropped | Failed]:
    """Yield the image of each item, or the pair with its images, or why there is none."""
    base = _base(config).resolve()
    for item in items:
        yield from _read(item, base, config, origin=origin)


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


def _open_layout(config: SourceConfig) -> Layout:
    for path in filter(None, (config.path, config.reading.images)):
        if "://" in path:
            raise SourceError(f"{path}: {config.kind} is read from local disks only; copy or mount it")
    root, images = Path(config.path), _base(config)
    for path, what in ((root, "the data set's folder"), (images, "reading.images")):
        if not path.exists():
            raise SourceError(f"{path}: there is no such folder; give {what}")
        if not os.access(path, os.R_OK | os.X_OK * path.is_dir()):
            raise SourceError(f"{path}: may not be read")
    if not images.is_dir():
        raise SourceError(f"{images}: is no folder; reading.images names the folder of the images")
    return Layout(root=root, images=images, reading=config.reading)


def _base(config: SourceConfig) -> Path:
    root = Path(config.path)
    return Path(config.reading.images or (root.parent if root.is_file() else root))


def _items(entries: Entries, layout: Layout, *, kind: str, limit: int | None) -> Iterator[ItemRow]:
    count = 0
    for entry in islice(entries(layout), limit):
        item = _item(kind, layout.images, entry)
        count += 1
        yield item
    log.info("%s: listed %d of %s", shown_name(str(layout.root)), count, kind)
    if not count and limit != 0:
        raise SourceError(f"{layout.root}: the annotations name no image")


def _item(kind: str, base: Path, entry: Entry) -> ItemRow:
    """Return an entry as an item. A record that is there twice has one key, and so is read once."""
    place: dict[str, Any] = {name: value for name in _STORED if (value := getattr(entry, name))}
    place["images"] = [[path, *size_and_time(str(base), path)] for path in entry.images]
    locator = json.dumps(place, ensure_ascii=True, sort_keys=True)
    name = shown_name(entry.name)
    key = make_key(kind, name, locator)
    return ItemRow(key=key, source_key=key, subject=key, name=name, locator=locator)


def _read(
    item: ItemRow, base: Path, config: SourceConfig, *, origin: str
) -> Iterator[ImageRow | PairRow | Dropped | Failed]:
    place: dict[str, Any] = json.loads(item.locator)
    if "refused" in place:
        yield dropped(item, place["refused"], place.get("detail", ""))
        return
    data: list[bytes] = []
    for path, *listed in place["images"]:
        found = read_below(item, str(base), path, config.images, listed=listed)
        if not isinstance(found, bytes):
            yield found
            return
        data.append(found)
    names = [shown_name(path) for path, *_ in place["images"]]
    texts, group, licence = tuple(place.get("texts", ())), place.get("group", ""), place.get("licence", "")
    if len(data) == 1:
        picture = Picture(data=data[0], name=names[0], captions=texts)
        yield read_image(item, picture, config, about=About(group=group, licence=licence))
        return
    about = About(
        group=group,
        licence=licence,
        origin=origin,
        human_differences=texts,
        instruction=place.get("instruction", ""),
        change_types=tuple(place.get("change_types", ())),
        may_be_identical=place.get("no_change", False),
    )
    captions = [tuple(texts) for texts in place.get("captions", ((), ()))]
    pictures = zip(data, names, captions, strict=True)
    first, second = (Picture(data=found, name=name, captions=own) for found, name, own in pictures)
    result = read_pair(item, first, second, config, about=about)
    yield from [result] if isinstance(result, Dropped) else result
