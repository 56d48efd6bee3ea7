"""Read frames of videos at a rate; frames close in time give near-identical pairs.

A source is one video, a pattern (``clips/*.mp4``) or a folder of videos (MP4, MOV, Matroska, WebM,
AVI) on a local disk. ``reading.frames_per_second`` is the number of frames read per second (1);
they are kept as JPEG of quality 95, named ``CLIP/000012.000s`` by their time. The frames of a video
are one group: they go to one split, and ``mining.max_pairs_per_group`` limits their pairs. Listing
reads only the headers of the videos.

An item's key hashes the video's name, size and time of change, the rate and the frame's number.
Frames are decoded in stretches, each after its own seek, so that a frame does not depend on how
shards are cut. Needs OpenCV's FFmpeg.

Videos may be hostile: only files that start like one are opened, since FFmpeg also follows
playlists to other files and addresses; ``images.max_pixels`` applies before a frame is decoded
(``images.max_bytes`` does not: no video is read whole).
"""

import json
import logging
import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.images.decode import encode_jpeg
from pairwright.tasks.sources.find_files import FilePattern, holds, open_place
from pairwright.tasks.sources.read_entry import EntryMetadata, SourceImage, read_image
from pairwright.tasks.sources.reader import (
    Read,
    Reader,
    RefusedEntryError,
    is_unicode,
    list_item,
    locate,
    read_one,
    refuse,
    shown_name,
)

if TYPE_CHECKING:
    import cv2

log = logging.getLogger(__name__)

ENDINGS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")
STRETCH = 16
"""Frames decoded after one seek."""
MAX_FRAMES = 1_000_000
"""Maximum frames of a video, since headers can claim any number."""
_MP4 = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the frames of all videos in order, at most ``limit``; ``SourceError`` if there is none."""
    if "://" in config.path:
        raise SourceError(f"{config.path}: videos are read from local disks only; copy or mount it")
    place = open_place(config.path)
    names = place.names(ENDINGS)
    if not names:
        raise SourceError(
            f"{config.path}: no video found; videos have the extensions {' '.join(ENDINGS)}"
        )
    yield from islice((item for name in names for item in _items(place, name, config)), limit)


def _items(place: FilePattern, name: str, config: SourceConfig) -> Iterator[ItemRow]:
    import cv2

    where: dict[str, Any] = {"path": name}
    wanted = config.reading.frames_per_second
    try:
        where |= place.look(name)
        with _opened(place, name, config) as capture:
            own, total = capture.get(cv2.CAP_PROP_FPS), capture.get(cv2.CAP_PROP_FRAME_COUNT)
        if not (math.isfinite(own) and own > 0 and math.isfinite(total) and total >= 1):
            raise RefusedEntryError(
                "no frames", "its header tells no length: ffmpeg -i VIDEO -c copy NEW.mkv adds it"
            )
        rate = min(wanted, own)
        frames = (total - 1) * rate / own + 1e-6  # including a frame at the end of a step
        if frames >= MAX_FRAMES:
            detail = f"{frames:.0f} at reading.frames_per_second={wanted:g}; at most {MAX_FRAMES}: cut the video"
            raise RefusedEntryError("too many frames", detail)
    except (RefusedEntryError, OSError) as error:
        refused = (
            error
            if isinstance(error, RefusedEntryError)
            else RefusedEntryError("unreadable file", str(error))
        )
        yield list_item("video", shown_name(name), where, refused)
        return
    log.info("%s: %d frames", shown_name(name), int(frames) + 1)
    for number in range(int(frames) + 1):
        label = f"{shown_name(name)}/{number / rate:010.3f}s"
        yield list_item("video", label, {**where, "rate": rate, "frame": number})


@contextmanager
def _opened(place: FilePattern, name: str, config: SourceConfig) -> "Generator[cv2.VideoCapture]":
    """Open a video; ``RefusedEntryError`` if it is not a supported one."""
    import cv2

    if not is_unicode(name):
        raise RefusedEntryError("unreadable name", "FFmpeg reads names in UTF-8: rename the file")
    with place.open(name) as file:
        start = file.read(12)
    if not start:
        raise RefusedEntryError("empty file")
    is_avi = start.startswith(b"RIFF") and start.endswith(b"AVI ")
    if not (is_avi or start[4:8] in _MP4 or start.startswith(b"\x1a\x45\xdf\xa3")):
        raise RefusedEntryError("not a video", "read are MP4, MOV, Matroska, WebM and AVI")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # damage is reported in the item's row
    capture = cv2.VideoCapture(place.path(name), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    try:
        if not capture.isOpened():
            raise RefusedEntryError("damaged video")
        width, height = (
            capture.get(cv2.CAP_PROP_FRAME_WIDTH),
            capture.get(cv2.CAP_PROP_FRAME_HEIGHT),
        )
        if width * height > config.images.max_pixels:
            detail = f"{width:.0f} x {height:.0f}; images.max_pixels={config.images.max_pixels}"
            raise RefusedEntryError("too many pixels", detail)
        yield capture
    finally:
        capture.release()


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield each frame, or the reason why there is none; each stretch is decoded once, from its start."""
    place = open_place(config.path)
    located = [(item, json.loads(item.locator)) for item in items]
    for _, group in groupby(
        located, key=lambda both: (both[1]["path"], both[1].get("frame", 0) // STRETCH)
    ):
        frames = list(group)
        with ExitStack() as stack:
            try:
                where = locate(frames[0][0])
                place.look(where["path"], where)
                capture = stack.enter_context(_opened(place, where["path"], config))
            except (RefusedEntryError, OSError) as error:
                yield from (refuse(item, error) for item, _ in frames)
                continue
            seen = _decode(capture, [one["frame"] for _, one in frames], where["rate"])
            for (item, one), pixels in zip(frames, seen, strict=True):
                yield from read_one(item, _read, one["path"], pixels, config)


def _decode(
    capture: "cv2.VideoCapture", frames: Sequence[int], rate: float
) -> Iterator[NDArray[np.uint8] | None]:
    """Yield the frames of a stretch in order, ``(h, w, 3)`` RGB; ``None`` if the video has none there."""
    import cv2

    if start := frames[0] // STRETCH * STRETCH:
        capture.set(cv2.CAP_PROP_POS_MSEC, 1000 * start / rate)
    slack, at = 400 / capture.get(cv2.CAP_PROP_FPS), -math.inf
    for frame in frames:
        while at + slack < 1000 * frame / rate:
            at = capture.get(cv2.CAP_PROP_POS_MSEC) if capture.grab() else math.inf
        found, pixels = capture.retrieve() if at < math.inf else (False, None)
        yield (
            cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB).astype(np.uint8)
            if found and pixels is not None
            else None
        )


def _read(
    item: ItemRow, name: str, pixels: NDArray[np.uint8] | None, config: SourceConfig
) -> list[ImageRow]:
    if pixels is None:
        raise RefusedEntryError("no frame at this time", "the video is damaged, or ends before it")
    picture = SourceImage(data=encode_jpeg(pixels), name=item.name)
    return [read_image(item, picture, config, EntryMetadata(group=shown_name(name)))]


READER = Reader(
    kind="video",
    about="frames of local videos at a rate: one video, a pattern or a folder",
    example="video:CLIPS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    recognises=lambda path: holds(path, ENDINGS),
)
