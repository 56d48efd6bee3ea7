"""Turn one item of a source into checked rows: images, pairs, or the reason why there are none.

All images are decoded here, so that every image in the tables can be decoded later. Reads files
below a folder by names from annotations, which may be hostile: absolute paths, ``..`` and links out
of the folder are refused, and only regular files of limited size are read.
"""

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import ImagesConfig, SourceConfig
from pairwright.schemas.rows import ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.images.decode import (
    RGB,
    RefusedImageError,
    decode_rgb,
    encode_png,
    probe_image,
    render_image,
)
from pairwright.tasks.images.depth import BY_IMAGE, Rendered
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.models.pair_parts import (
    NOT_ALIGNED,
    PairPart,
    align_pair,
    cut_image,
    cut_tiles,
    whole_pair,
)
from pairwright.tasks.sources.reader import RefusedEntryError, escape_name, is_unicode

EXTENSIONS = (
    *(".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".avif", ".heic", ".heif", ".jxl", ".jpe", ".jfif"),
)
"""Extensions of images."""
MAX_PATH = 4096
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""Our names of published splits; for pairs of other splits, one is drawn."""
_MEASURING: ContextVar[list[str] | None] = ContextVar("measuring", default=None)
MEASURED = "measured only"
MISSING = "missing file"
LEAVES = "path leaves the folder"
NO_FILE = (-1, 0)
"""Size and time of an unreadable file, so that it is another item once it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceImage:
    """Image as its source gave it."""

    data: bytes
    """Bytes of the encoded file."""
    name: str
    captions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """Fields beside the image that cannot be used, each "phrase: particulars"."""


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
    mask: bytes = b""
    """Encoded image that is bright where the second image of a pair differs."""
    may_be_identical: bool = False
    """Whether the source states that nothing changed, so that two equal images are valid."""


@contextmanager
def only_measuring(renderings: list[str]) -> Generator[None]:
    """Collect how images of more than 8 bits are shown one by one, instead of reading any."""
    token = _MEASURING.set(renderings)
    try:
        yield
    finally:
        _MEASURING.reset(token)


def _measure(data: bytes, config: ImagesConfig, renderings: list[str]) -> None:
    """Note how an image is shown, if it is of more than 8 bits."""
    try:
        probe_image(data, config)
        rendered = render_image(data, config)
    except RefusedImageError:
        return
    if rendered:
        renderings.append(rendered.how)


def read_image(
    item: ItemRow,
    picture: SourceImage,
    config: SourceConfig,
    metadata: EntryMetadata,
) -> ImageRow:
    """Return an image; ``RefusedEntryError`` if it cannot be decoded, or exceeds a limit."""
    row, _ = _decode(item, picture, config, metadata)
    return row


def read_pair(
    item: ItemRow,
    pictures: Sequence[SourceImage],
    config: SourceConfig,
    metadata: EntryMetadata,
) -> list[ImageRow | PairRow]:
    """Return two images (one, if they are the same file) and their pair, in the source's order.

    They may be aligned, and cut into tiles, each of which is a pair.

    ``RefusedEntryError``: one cannot be decoded, or both are equal although something is stated to
    have changed.
    """
    (first, before), (second, after) = (
        _decode(item, picture, config, metadata) for picture in pictures
    )
    mask: NDArray[np.bool_] | None = None
    if metadata.mask:
        try:
            mask = _read_mask(metadata.mask, after)
        except RefusedEntryError as refused:
            first = replace(first, remarks=(*first.remarks, str(refused)))
    may_be_identical = metadata.may_be_identical or (mask is not None and not mask.any())
    if not may_be_identical and np.array_equal(before, after):
        raise RefusedEntryError("identical images", f"{first.name} and {second.name}")
    pair = whole_pair(before, after, mask)
    if not config.cuts_pairs:
        return _make_pair(item, (first, second), metadata, pair)
    if config.align:
        aligned = align_pair(pair)
        if isinstance(aligned, str):
            first = replace(first, remarks=(*first.remarks, f"{NOT_ALIGNED}: {aligned}"))
        elif not may_be_identical and np.array_equal(aligned.first, aligned.second):
            raise RefusedEntryError("identical images", f"{first.name} and {second.name}, aligned")
        else:
            pair = aligned
    return _cut_pair(item, (first, second), config, metadata, pair)


def _cut_pair(
    item: ItemRow,
    images: tuple[ImageRow, ImageRow],
    config: SourceConfig,
    metadata: EntryMetadata,
    pair: PairPart,
) -> list[ImageRow | PairRow]:
    """Return the rows of a pair that may be cropped, or of its tiles.

    Texts of the whole pair are not those of its tiles.
    """
    if pair.second.shape != pair.first.shape and config.tiles.size:
        sizes = [f"{image.width} x {image.height}" for image in images]
        detail = f"{' and '.join(sizes)}; mining.align makes them one size"
        raise RefusedEntryError("tiles need images of one size", detail)
    metadata = replace(metadata, group=metadata.group or images[0].name)
    height, width = pair.first.shape[:2]
    if not config.tiles.size or max(height, width) <= config.tiles.size:
        return _make_pair(item, _cut_images(images, pair), metadata, pair)
    types = tuple(name for name in metadata.change_types if name == "no_change")
    about_tile = replace(metadata, human_differences=(), instruction="", change_types=types)
    wholes = (replace(images[0], captions=()), replace(images[1], captions=()))
    rows: list[ImageRow | PairRow] = []
    for tile in cut_tiles(pair, config.tiles):
        rows += _make_pair(item, _cut_images(wholes, tile), about_tile, tile)
    if not rows:
        raise RefusedEntryError("no tile has data that differ")
    return list(dict.fromkeys(rows))


def _cut_images(images: tuple[ImageRow, ImageRow], part: PairPart) -> tuple[ImageRow, ImageRow]:
    """Return both images as a part shows them; one that is whole and not warped stays."""
    cut: list[ImageRow] = []
    for side, pixels in enumerate((part.first, part.second)):
        image = images[side]
        if not part.keeps(side, image):
            image = cut_image(image, pixels, part.window)
        cut.append(image)
    return cut[0], cut[1]


def _make_pair(
    item: ItemRow, images: tuple[ImageRow, ImageRow], metadata: EntryMetadata, part: PairPart
) -> list[ImageRow | PairRow]:
    """Return the rows of two images and their pair."""
    first, second = (replace(image, group=metadata.group) for image in images)
    change_mask = ""
    if part.mask is not None:
        change_mask = encode_mask(part.mask).model_dump_json()
        if not part.mask.any():
            types = tuple(dict.fromkeys((*metadata.change_types, "no_change")))
            metadata = replace(metadata, change_types=types)
    is_cut = part.transform or not part.is_whole
    key = _pair_key(first, second, metadata)
    if change_mask:
        key = make_key("masked", key, change_mask)
    if is_cut:
        key = make_key("part", key, *map(str, part.window))
    pair = PairRow(
        key=key,
        source_key=item.key,
        subject=key,
        first=first.key,
        second=second.key,
        origin=metadata.origin,
        anchor="",
        cluster=-1,
        human_differences=metadata.human_differences,
        instruction=metadata.instruction,
        change_types=metadata.change_types,
        split=SPLITS.get(metadata.split.lower(), ""),
        change_mask=change_mask,
        window=part.window if is_cut else (),
        transform=part.transform,
    )
    if first.key == second.key:
        return [first, pair]
    return [first, second, pair]


def _read_mask(data: bytes, image: RGB) -> NDArray[np.bool_]:
    """Return the bright pixels of a mask; ``RefusedEntryError`` if it is not of the image's size.

    Masks of classes have small values: there, all but 0 count.
    """
    try:
        values = decode_rgb(data).max(axis=2)
    except RefusedImageError as refused:
        raise RefusedEntryError("damaged mask", str(refused)) from refused
    if values.shape != image.shape[:2]:
        detail = f"{values.shape[1]} x {values.shape[0]}"
        raise RefusedEntryError("mask of another size", detail)
    return values > (127 if values.max() > 127 else 0)


def _pair_key(first: ImageRow, second: ImageRow, metadata: EntryMetadata) -> str:
    parts = [first.key, second.key, metadata.origin, metadata.instruction]
    parts += metadata.human_differences
    if metadata.change_types:
        parts.append(make_key("change types", *metadata.change_types))
    return make_key("pair", *parts)


def _decode(
    item: ItemRow,
    picture: SourceImage,
    config: SourceConfig,
    metadata: EntryMetadata,
) -> tuple[ImageRow, RGB]:
    limit = config.images.max_bytes
    size = len(picture.data)
    measuring = _MEASURING.get()
    if measuring is not None:
        if size <= limit:
            _measure(picture.data, config.images, measuring)
        raise RefusedEntryError(MEASURED)
    prefix = "" if picture.name == item.name else f"{picture.name}: "
    if size > limit:
        detail = f"{prefix}{size} bytes; images.max_bytes={limit}"
        raise RefusedEntryError("file too large", detail)
    try:
        info = probe_image(picture.data, config.images)
        rendered = render_image(picture.data, config.images)
        pixels = rendered.pixels if rendered else decode_rgb(picture.data)
    except RefusedImageError as refused:
        detail = f"{prefix}{refused.detail}".removesuffix(": ")
        raise RefusedEntryError(refused.reason, detail) from refused
    data = picture.data
    remarks = picture.remarks
    if rendered:
        data = encode_png(pixels)
        remarks += _remarks_on(rendered)
    key = make_key(data)
    row = ImageRow(
        key=key,
        source_key=item.key,
        subject=key,
        image=data,
        format="png" if rendered else info.format,
        width=pixels.shape[1],
        height=pixels.shape[0],
        name=picture.name,
        source=config.kind,
        licence=config.images.licence or metadata.licence,
        group=metadata.group,
        captions=picture.captions,
        rendering=rendered.how if rendered else "",
        remarks=remarks,
    )
    return row, pixels


def _remarks_on(rendered: Rendered) -> tuple[str, ...]:
    """Return the remarks on a picture that was made of more than 8 bits."""
    remarks: list[str] = []
    if rendered.remark:
        remarks.append(f"{rendered.remark}: {rendered.how}; set images.range")
    if BY_IMAGE in rendered.how:
        remarks.append(f"shown in a range of its own: {rendered.how}; set images.range")
    return tuple(remarks)


def check_path(path: object) -> str:
    """Return a path that stays below its folder as written; links are checked on opening."""
    if not isinstance(path, str) or not path:
        raise RefusedEntryError("no path of an image", f"a {type(path).__name__}")
    parts = PurePosixPath(path.replace("\\", "/")).parts
    first = parts[0] if parts else "/"
    # "C:" begins a path with a drive letter, "s3:" an address.
    leaves = first.startswith("/") or first.endswith(":") or ".." in parts
    if leaves or len(path) > MAX_PATH or "\0" in path or not is_unicode(path):
        reason = LEAVES
        if first.endswith(":") and len(first) > len("C:"):
            reason = "an address, not a path: download the file first"
        raise RefusedEntryError(reason, escape_name(path[:200]))
    return path


def path_below(path: object, folder: Path) -> str:
    """Return a path below a folder; one that is absolute and inside it becomes relative."""
    if isinstance(path, str) and Path(path).is_absolute():
        for root in (folder.absolute(), folder.resolve()):
            if Path(path).is_relative_to(root):
                path = Path(path).relative_to(root).as_posix()
                break
    return check_path(path)


def size_and_time(root: str | Path, relative: str) -> tuple[int, int]:
    """Return a file's size and time of change (ns); ``NO_FILE`` if it cannot be read."""
    path = Path(root) / relative
    try:
        status = path.stat()
        is_readable = os.access(path, os.R_OK)
    except (OSError, ValueError):
        return NO_FILE
    return (status.st_size, status.st_mtime_ns) if is_readable else NO_FILE


def read_below(
    root: str | Path,
    relative: str,
    config: ImagesConfig,
    listed: Sequence[int] = NO_FILE,
) -> bytes:
    """Return the bytes of a file below ``root``.

    Its size and time must be those ``listed``, if it was readable then.
    """
    check_path(relative)
    name = escape_name(relative[:200])
    try:
        path = (Path(root) / relative).resolve()
    except RuntimeError as error:
        raise RefusedEntryError("symlink loop", name) from error
    if not path.is_relative_to(Path(root).resolve()):
        raise RefusedEntryError(LEAVES, name)
    return read_file(path, config, listed, name)


REFUSALS = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), MISSING),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.ENAMETOOLONG), "unreadable file"),
    errno.ELOOP: "symlink loop",
}
"""Reasons why a file cannot be opened; other errors of a disk may be temporary."""


def read_file(
    path: Path,
    config: ImagesConfig,
    listed: Sequence[int],
    name: str = "",
) -> bytes:
    """Return the bytes of a regular file of limited size; ``name`` is its name in a refusal."""
    try:
        # Before the file is opened: opening a pipe waits, and a device may have side effects.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RefusedEntryError("not a regular file", name)
        if status.st_size > config.max_bytes:
            sizes = f"{status.st_size} bytes; images.max_bytes={config.max_bytes}"
            raise RefusedEntryError("file too large", f"{name}: {sizes}" if name else sizes)
        current = (status.st_size, status.st_mtime_ns)
        if tuple(listed) not in (NO_FILE, current):
            raise RefusedEntryError("changed since it was listed", name)
        with path.open("rb") as file:
            return file.read(config.max_bytes)
    except OSError as error:
        reason = REFUSALS.get(error.errno or 0)
        if reason is None:
            raise
        raise RefusedEntryError(reason, name) from error
