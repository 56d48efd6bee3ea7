"""Read frames of videos at a rate; frames close in time give near-identical pairs.

A source is one video, a pattern (``clips/*.mp4``) or a folder of videos (MP4, MOV, Matroska, WebM,
AVI) on a local disk. ``reading.frames_per_second`` is the number of frames read per second (1);
they are kept as JPEG of quality 95, named ``CLIP/000012.000s`` by their time. The frames of a video
are one group: they go to one split, and ``mining.max_pairs_per_group`` limits their pairs. Listing
reads only the headers of the videos.

An item's key hashes the video's name, size and time of change, the rate and the frame's number.
Frames are decoded in stretches, each after its own seek, so that a frame does not depend on how
shards are cut. Needs OpenCV's FFmpeg.

Videos may be hostile: only files with the first bytes of a video are opened, since FFmpeg also
follows playlists to other files and addresses; ``images.max_pixels`` applies before a frame is
decoded (``images.max_bytes`` does not: no video is read whole).
"""

import json
import logging
import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.images.decode import encode_jpeg
from pairwright.tasks.sources.find_files import FilePattern, has_files, open_pattern
from pairwright.tasks.sources.read_entry import EntryMetadata, SourceImage, read_image
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    escape_name,
    is_unicode,
    list_item,
    locate,
    make_refusal,
    read_one,
)

if TYPE_CHECKING:
    import cv2

log = logging.getLogger(__name__)

ENDINGS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")
STRETCH = 16
"""Frames decoded after one seek."""
MAX_FRAMES = 1_000_000
"""Maximum frames of a video, since headers can claim any number."""
Located = tuple[ItemRow, dict[str, Any]]
"""An item and its locator."""
_MP4 = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the frames of all videos, at most ``limit``; ``SourceError`` if there is no video."""
    if "://" in config.path:
        raise SourceError(f"{config.path}: videos are read from local disks only; copy or mount it")
    files = open_pattern(config.path)
    names = files.names(ENDINGS)
    if not names:
        raise SourceError(
            f"{config.path}: no video found; videos have the extensions {' '.join(ENDINGS)}"
        )
    frames = chain.from_iterable(_list_frames(files, name, config) for name in names)
    yield from islice(frames, limit)


def _list_frames(files: FilePattern, name: str, config: SourceConfig) -> Iterator[ItemRow]:
    locator: dict[str, Any] = {"path": name}
    label = escape_name(name)
    try:
        locator |= files.stat(name)
        with _open_video(files, name, config) as capture:
            rate, frames = _plan_frames(capture, config.reading.frames_per_second)
    except RefusedEntryError as refused:
        yield list_item("video", label, locator, refused)
        return
    except OSError as error:
        refused = RefusedEntryError("unreadable file", str(error))
        yield list_item("video", label, locator, refused)
        return
    log.info("%s: %d frames", label, frames)
    for number in range(frames):
        frame_locator = {**locator, "rate": rate, "frame": number}
        yield list_item("video", f"{label}/{number / rate:010.3f}s", frame_locator)


def _plan_frames(capture: "cv2.VideoCapture", requested_rate: float) -> tuple[float, int]:
    """Return the rate and number of frames to read; ``RefusedEntryError`` without a length."""
    import cv2

    video_rate = capture.get(cv2.CAP_PROP_FPS)
    total = capture.get(cv2.CAP_PROP_FRAME_COUNT)
    has_rate = math.isfinite(video_rate) and video_rate > 0
    has_length = math.isfinite(total) and total >= 1
    if not has_rate or not has_length:
        raise RefusedEntryError(
            "no frames", "its header tells no length: ffmpeg -i VIDEO -c copy NEW.mkv adds it"
        )
    rate = min(requested_rate, video_rate)
    frames = (total - 1) * rate / video_rate + 1e-6  # including a frame at the end of a step
    if frames >= MAX_FRAMES:
        detail = (
            f"{frames:.0f} at reading.frames_per_second={requested_rate:g}; "
            f"at most {MAX_FRAMES}: cut the video"
        )
        raise RefusedEntryError("too many frames", detail)
    return rate, int(frames) + 1


@contextmanager
def _open_video(
    files: FilePattern, name: str, config: SourceConfig
) -> "Generator[cv2.VideoCapture]":
    """Open a video; ``RefusedEntryError`` if it is not a supported one."""
    import cv2

    if not is_unicode(name):
        raise RefusedEntryError("unreadable name", "FFmpeg reads names in UTF-8: rename the file")
    with files.open_for_reading(name) as file:
        start = file.read(12)
    if not start:
        raise RefusedEntryError("empty file")
    is_avi = start.startswith(b"RIFF") and start.endswith(b"AVI ")
    is_mp4 = start[4:8] in _MP4
    is_matroska = start.startswith(b"\x1a\x45\xdf\xa3")
    if not (is_avi or is_mp4 or is_matroska):
        raise RefusedEntryError("not a video", "read are MP4, MOV, Matroska, WebM and AVI")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # damage is reported in the item's row
    options = [cv2.CAP_PROP_N_THREADS, 1]
    capture = cv2.VideoCapture(files.path(name), cv2.CAP_FFMPEG, options)
    try:
        if not capture.isOpened():
            raise RefusedEntryError("damaged video")
        width = capture.get(cv2.CAP_PROP_FRAME_WIDTH)
        height = capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
        if width * height > config.images.max_pixels:
            detail = f"{width:.0f} x {height:.0f}; images.max_pixels={config.images.max_pixels}"
            raise RefusedEntryError("too many pixels", detail)
        yield capture
    finally:
        capture.release()


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield each frame, or why there is none; each stretch is decoded once, from its start."""
    files = open_pattern(config.path)
    located = [(item, json.loads(item.locator)) for item in items]
    for _, group in groupby(located, key=_stretch_of):
        yield from _read_stretch(files, list(group), config)


def _read_stretch(
    files: FilePattern, frames: Sequence[Located], config: SourceConfig
) -> Iterator[ReadResult]:
    """Yield the frames of a stretch of one video, or why there are none."""
    with ExitStack() as stack:
        try:
            locator = locate(frames[0][0])
            files.stat(locator["path"], locator)
            video = _open_video(files, locator["path"], config)
            capture = stack.enter_context(video)
        except (RefusedEntryError, OSError) as error:
            yield from (make_refusal(item, error) for item, _ in frames)
            return
        numbers = [frame["frame"] for _, frame in frames]
        decoded = _decode(capture, numbers, locator["rate"])
        for (item, frame), pixels in zip(frames, decoded, strict=True):
            yield from read_one(item, _read, frame["path"], pixels, config)


def _stretch_of(located: Located) -> tuple[str, int]:
    """Return the video of a frame and the number of its stretch there."""
    _, locator = located
    return locator["path"], locator.get("frame", 0) // STRETCH


def _decode(
    capture: "cv2.VideoCapture", frames: Sequence[int], rate: float
) -> Iterator[NDArray[np.uint8] | None]:
    """Yield a stretch's frames in order, ``(h, w, 3)`` RGB; ``None`` if the video has none."""
    import cv2

    start = frames[0] // STRETCH * STRETCH
    if start:
        capture.set(cv2.CAP_PROP_POS_MSEC, 1000 * start / rate)
    slack_ms = 400 / capture.get(cv2.CAP_PROP_FPS)
    position_ms = -math.inf
    for frame in frames:
        while position_ms + slack_ms < 1000 * frame / rate:
            is_grabbed = capture.grab()
            position_ms = capture.get(cv2.CAP_PROP_POS_MSEC) if is_grabbed else math.inf
        if not position_ms < math.inf:
            yield None
            continue
        is_decoded, pixels = capture.retrieve()
        if is_decoded:
            yield cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB).astype(np.uint8)
        else:
            yield None


def _read(
    item: ItemRow, name: str, pixels: NDArray[np.uint8] | None, config: SourceConfig
) -> list[ImageRow]:
    if pixels is None:
        raise RefusedEntryError("no frame at this time", "the video is damaged, or ends before it")
    picture = SourceImage(data=encode_jpeg(pixels), name=item.name)
    metadata = EntryMetadata(group=escape_name(name))
    return [read_image(item, picture, config, metadata)]


READER = Reader(
    kind="video",
    about="frames of local videos at a rate: one video, a pattern or a folder",
    example="video:CLIPS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    recognises=lambda path: has_files(path, ENDINGS),
)
