"""Read the items that a source listed: files of a folder, rendered worlds.

Reads ``ItemRow``, writes ``ImageRow``. What cannot be read is dropped with its reason; nothing stops a build.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas.config import SourceConfig
from schemas.errors import SourceError
from schemas.rows import Dropped, Failed, ImageRow, ItemRow
from tasks.sources import folder, scenes
from tasks.store.stage import Stage

KINDS = {
    "folder": "a local folder of images, read recursively (folder:PATH, or the path alone)",
    "scenes": "rendered table-top, room and street scenes with known truth (scenes:)",
}
ROWS_PER_SHARD = {"folder": 64, "scenes": 4}
"""Items of a shard: files are read in milliseconds, worlds are rendered in seconds."""


def recognise_source(text: str) -> str:
    """Return a source as ``kind:path``, the path absolute, so that a build is resumed from anywhere.

    Raises:
        SourceError: the kind is unknown, or nothing is there.
    """
    kind, colon, path = text.partition(":")
    if kind == "scenes" and (colon or not Path(text).exists()):
        if path:
            raise SourceError(f"{text}: scenes are rendered, not read from a path; write `scenes:`")
        return "scenes:"
    place = path if colon and kind == "folder" else text
    if colon and place is text and not Path(text).exists():
        kinds = "; ".join(KINDS.values())
        raise SourceError(f"{text}: no such folder, and {kind!r} is no kind of source. Sources: {kinds}")
    if not place:
        raise SourceError(f"{text!r}: names no folder; write folder:PATH")
    return f"folder:{place if '://' in place else Path(place).absolute()}"


def list_items(config: SourceConfig, *, limit: int | None) -> Iterator[ItemRow]:
    """Yield what the source holds, in its own order, without reading it.

    Raises:
        SourceError: there is no such source, or it holds nothing.
    """
    if config.kind == "folder":
        yield from folder.list_items(config.path, limit=limit)
    else:
        yield from scenes.list_items(config.scenes, limit=limit)


def read_images(rows: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield the images of each item, or why there is none."""
    for item in rows:
        if config.kind == "folder":
            yield from folder.read_item(item, root=config.path, config=config.images)
        else:
            yield from scenes.read_item(item, config=config.scenes)


STAGE = Stage(
    name="images",
    version=1,
    group="sources",
    reads="items",
    row=ItemRow,
    writes=ImageRow,
    function=read_images,
    config="sources",
    journal=True,
)
