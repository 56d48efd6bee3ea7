"""Find out how much is still to be fetched, and whether there is room for it.

Looks at names and sizes only: a file that is another one is found when it is verified. Asks the servers for sizes.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairwright.tasks.models.fetching.fetch_file import FetchError, ask_size
from pairwright.tasks.models.fetching.fetch_hub import ask_hub
from pairwright.tasks.models.fetching.published import PublishedFile, weights_folder
from pairwright.tasks.models.fetching.verify_weights import Wanted
from pairwright.tasks.models.weights import HubFiles, find_cached


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Say what is still to be fetched, and where to."""

    file: str
    size: int
    """In bytes, of what is not here yet; 0: not known."""
    folder: Path


def find_lacking(wanted: Wanted) -> list[Lacking]:
    """Return the files that are not on this machine."""
    return list(_published(wanted) if isinstance(wanted, PublishedFile) else _on_hub(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Say what is to come onto one disk."""

    folders: tuple[Path, ...]
    files: int
    size: int
    unknown: int
    """Files whose size is not known, and not counted."""
    free: int


def find_room(lacking: Iterable[Lacking]) -> list[Room]:
    """Return, per disk, what is to come and how much room there is."""
    disks: defaultdict[int, list[Lacking]] = defaultdict(list)
    for file in lacking:
        disks[_place(file.folder).stat().st_dev].append(file)
    return [
        Room(
            folders=tuple(dict.fromkeys(file.folder for file in files)),
            files=len(files),
            size=sum(file.size for file in files),
            unknown=sum(not file.size for file in files),
            free=shutil.disk_usage(_place(files[0].folder)).free,
        )
        for files in disks.values()
    ]


def _published(file: PublishedFile) -> Iterator[Lacking]:
    folder = weights_folder()
    if (folder / file.name).is_file():
        return
    part = folder / f"{file.name}.part"
    here = part.stat().st_size if part.exists() else 0
    try:
        yield Lacking(file=file.name, size=max(0, ask_size(file.url) - here), folder=folder)
    except FetchError:
        yield Lacking(file=file.name, size=0, folder=folder)


def _on_hub(files: HubFiles) -> Iterator[Lacking]:
    from huggingface_hub import constants, try_to_load_from_cache

    def is_here(name: str) -> bool:
        return isinstance(try_to_load_from_cache(files.repository, name, revision=files.revision or None), str)

    if find_cached(files):
        return
    needed = [(name,) for name in files.beside] + [files.weights]
    for names in needed:
        if not any(map(is_here, names)):
            name, size = _ask(files, names)
            yield Lacking(file=name, size=size, folder=Path(constants.HF_HUB_CACHE))


def _ask(files: HubFiles, names: tuple[str, ...]) -> tuple[str, int]:
    """Return the first of the names that the Hub has, and its size."""
    for name in names:
        try:
            return name, ask_hub(files.repository, name, files.revision, again=False).size
        except Exception:  # noqa: BLE001, S112 - the Hub's client raises its own and httpx2's errors; fetching tells why
            continue
    return names[0], 0


def _place(folder: Path) -> Path:
    """Return a folder that need not be there yet, or the nearest one above it that is."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())
