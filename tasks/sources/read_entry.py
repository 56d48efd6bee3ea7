"""Turn one item of a source into checked rows: images, pairs, or the reason why there are none.

All images are decoded here, so that every image in the tables can be decoded later. Reads files
below a folder by names from annotations, which may be hostile: absolute paths, ``..`` and links out
of the folder are refused, and only regular files of limited size are read.
"""

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from pairwright.schemas.config import ImagesConfig, SourceConfig
from pairwright.schemas.rows import ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.images.decode import RGB, RefusedImageError, decode_rgb, probe_image
from pairwright.tasks.sources.reader import RefusedEntryError, is_unicode, shown_name

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
"""Extensions of images."""
MAX_PATH = 4096
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""Our names of published splits; for pairs of other splits, one is drawn."""
MISSING, LEAVES = "missing file", "path leaves the folder"
NO_FILE = (-1, 0)
"""Size and time of an unreadable file, so that it is another item once it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImage:
    """Image as its source gave it."""

    data: bytes
    """Bytes of the encoded file."""
    name: str
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryMetadata:
    """Metadata of an image or a pair in a source."""

    licence: str = ""
    """Published licence of the data set; a configured one overrides it."""
    group: str = ""
    """Images of one group go to the same split."""
    origin: str = "given"
    """"given" (the source paired them) or "edit" (the source edited the first into the second)."""
    human_differences: tuple[str, ...] = ()
    instruction: str = ""
    change_types: tuple[str, ...] = ()
    split: str = ""
    """Split of a pair, by the source's own name."""
    may_be_identical: bool = False
    """Whether the source states that nothing changed, so that two equal images are valid."""


def read_image(
    item: ItemRow, picture: SourceImage, config: SourceConfig, about: EntryMetadata
) -> ImageRow:
    """Return an image; ``RefusedEntryError`` if it cannot be decoded, or exceeds a limit."""
    return _decode(item, picture, config, about)[0]


def read_pair(
    item: ItemRow, pictures: Sequence[SourceImage], config: SourceConfig, about: EntryMetadata
) -> list[ImageRow | PairRow]:
    """Return two images (one, if they are the same file) and their pair, in the source's order.

    ``RefusedEntryError``: one cannot be decoded, or both are equal although something is stated to
    have changed.
    """
    (first, before), (second, after) = (
        _decode(item, picture, config, about) for picture in pictures
    )
    if not about.may_be_identical and np.array_equal(before, after):
        raise RefusedEntryError("identical images", f"{first.name} and {second.name}")
    types = (make_key("change types", *about.change_types),) if about.change_types else ()
    key = make_key(
        "pair",
        first.key,
        second.key,
        about.origin,
        about.instruction,
        *about.human_differences,
        *types,
    )
    pair = PairRow(
        key=key,
        source_key=item.key,
        subject=key,
        first=first.key,
        second=second.key,
        origin=about.origin,
        anchor="",
        cluster=-1,
        human_differences=about.human_differences,
        instruction=about.instruction,
        change_types=about.change_types,
        split=SPLITS.get(about.split.lower(), ""),
    )
    return [first, *([second] if second.key != first.key else []), pair]


def _decode(
    item: ItemRow, picture: SourceImage, config: SourceConfig, about: EntryMetadata
) -> tuple[ImageRow, RGB]:
    limit = config.images.max_bytes
    whose = "" if picture.name == item.name else f"{picture.name}: "
    if len(picture.data) > limit:
        raise RefusedEntryError(
            "file too large", f"{whose}{len(picture.data)} bytes; images.max_bytes={limit}"
        )
    try:
        info = probe_image(picture.data, config.images)
        pixels = decode_rgb(picture.data)
    except RefusedImageError as refused:
        raise RefusedEntryError(
            refused.reason, f"{whose}{refused.detail}".removesuffix(": ")
        ) from refused
    key = make_key(picture.data)
    row = ImageRow(
        key=key,
        source_key=item.key,
        subject=key,
        image=picture.data,
        format=info.format,
        width=pixels.shape[1],
        height=pixels.shape[0],
        name=picture.name,
        source=config.kind,
        licence=config.images.licence or about.licence,
        group=about.group,
        captions=picture.captions,
    )
    return row, pixels


def check_path(path: object) -> str:
    """Return a path that stays below its folder as written; links are checked when the file is opened."""
    if not isinstance(path, str) or not path:
        raise RefusedEntryError("no path of an image", f"a {type(path).__name__}")
    parts = PurePosixPath(path.replace("\\", "/")).parts
    # "C:" begins a path with a drive letter, "s3:" an address.
    leaves = not parts or parts[0].startswith("/") or parts[0].endswith(":") or ".." in parts
    if leaves or len(path) > MAX_PATH or "\0" in path or not is_unicode(path):
        is_address = bool(parts) and parts[0].endswith(":") and len(parts[0]) > len("C:")
        reason = "an address, not a path: download the file first" if is_address else LEAVES
        raise RefusedEntryError(reason, shown_name(path[:200]))
    return path


def size_and_time(root: str | Path, relative: str) -> tuple[int, int]:
    """Return a file's size and time of change (ns); ``NO_FILE`` if it cannot be read."""
    path = Path(root) / relative
    try:
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) if os.access(path, os.R_OK) else NO_FILE
    except (OSError, ValueError):
        return NO_FILE


def read_below(
    root: str | Path, relative: str, config: ImagesConfig, listed: Sequence[int] = NO_FILE
) -> bytes:
    """Return the bytes of a file below ``root``; size and time must be those ``listed``, if it was readable then."""
    check_path(relative)
    shown = shown_name(relative[:200])
    try:
        path = (Path(root) / relative).resolve()
    except RuntimeError as error:
        raise RefusedEntryError("symlink loop", shown) from error
    if not path.is_relative_to(Path(root).resolve()):
        raise RefusedEntryError(LEAVES, shown)
    return read_file(path, config, listed, shown)


REFUSALS = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), MISSING),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.ENAMETOOLONG), "unreadable file"),
    errno.ELOOP: "symlink loop",
}
"""Reasons why a file cannot be opened; other errors of a disk may be temporary."""


def read_file(path: Path, config: ImagesConfig, listed: Sequence[int], shown: str = "") -> bytes:
    """Return the bytes of a regular file of limited size; ``shown`` is its name in a refusal."""
    try:
        status = (
            path.stat()
        )  # before it is opened, since opening a pipe waits and a device may have side effects
        if not stat.S_ISREG(status.st_mode):
            raise RefusedEntryError("not a regular file", shown)
        if status.st_size > config.max_bytes:
            limit = f"{status.st_size} bytes; images.max_bytes={config.max_bytes}"
            raise RefusedEntryError("file too large", f"{shown}: {limit}" if shown else limit)
        if tuple(listed) not in (NO_FILE, (status.st_size, status.st_mtime_ns)):
            raise RefusedEntryError("changed since it was listed", shown)
        with path.open("rb") as file:
            return file.read(config.max_bytes)
    except OSError as error:
        if reason := REFUSALS.get(error.errno or 0):
            raise RefusedEntryError(reason, shown) from error
        raise
