"""Frames lie at the times asked for, whatever the shards; damaged and hostile files by reason."""

import subprocess
import sys

import cv2
import numpy as np
import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.video import STRETCH
from tests.fixtures.sources import Source

FPS, FRAMES = 10, 200


def film(path, codec="MJPG", frames=FRAMES):
    """Write a video whose frame n shows the eight bits of n as stripes, black or white."""
    code = cv2.VideoWriter.fourcc(*codec)
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, code, FPS, (96, 64))
    for number in range(frames):
        stripes = np.repeat(np.unpackbits(np.uint8(number)) * 255, 12).astype(np.uint8)
        writer.write(np.broadcast_to(stripes[None, :, None], (64, 96, 3)).copy())
    writer.release()
    return path


def video(path, rate=1.0, max_pixels=40_000_000):
    limits = ImagesConfig(max_pixels=max_pixels)
    return Source("video", path, limits=limits, frames_per_second=rate)


def numbers(rows):
    """Return which frames these are."""
    images = [decode_rgb(row.image) for row in rows if isinstance(row, ImageRow)]
    return [int(np.packbits(image[32, 6::12, 0] > 127)[0]) for image in images]


@pytest.mark.parametrize(
    ("name", "codec"), [("a.avi", "MJPG"), ("a.mkv", "mp4v"), ("a.MOV", "mp4v")]
)
def test_frames_lie_at_their_times(tmp_path, name, codec) -> None:
    rows = video(film(tmp_path / name, codec), rate=2).read()
    assert numbers(rows) == list(range(0, FRAMES, FPS // 2))
    assert [row.name for row in rows[:2]] == [f"{name}/000000.000s", f"{name}/000000.500s"]
    first = rows[0]
    assert (first.group, first.width, first.height, first.format) == (name, 96, 64, "jpeg")


def test_a_frame_does_not_depend_on_how_shards_are_cut(tmp_path) -> None:
    source = video(film(tmp_path / "a.mp4", "mp4v"), rate=4)
    items = source.items()
    together = source.read(items)
    assert len(items) > 4 * STRETCH
    for start in (1, STRETCH - 1, STRETCH, 2 * STRETCH + 3):
        assert source.read(items[start : start + 3]) == together[start : start + 3]
    assert source.read(items[5::7]) == together[5::7]
    assert source.items(7) == items[:7]


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def test_of_a_truncated_video_what_is_there_is_read(tmp_path) -> None:
    rows = video(half(film(tmp_path / "a.avi"))).read()
    whole = len(numbers(rows))
    assert 5 < whole < 15
    assert numbers(rows[:whole]) == list(range(0, FPS * whole, FPS))
    assert {row.reason for row in rows[whole:]} == {"no frame at this time"}


def reason_of(path, **options):
    (row,) = video(path, **options).read()
    assert isinstance(row, Dropped)
    return row.reason


PLAYLIST = b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/x.ts\n#EXT-X-ENDLIST\n"


NO_VIDEOS = {
    "nothing": (b"", "empty file"),
    "noise": (b"\x07" * 5000, "not a video"),
    # FFmpeg would read the other file, and the address.
    "a list": (b"ffconcat version 1.0\nfile real.avi\n", "not a video"),
    "a playlist": (PLAYLIST, "not a video"),
    "damage": (b"\0\0\0\x18ftypisom" + b"\xff" * 5000, "damaged video"),
}


@pytest.mark.parametrize(("data", "reason"), NO_VIDEOS.values(), ids=NO_VIDEOS)
def test_what_is_no_video_is_dropped_with_the_reason(tmp_path, data, reason) -> None:
    film(tmp_path / "real.avi", frames=5)
    (tmp_path / "a.mp4").write_bytes(data)
    assert reason_of(tmp_path / "a.mp4") == reason


def test_videos_that_cannot_be_read_are_dropped_with_the_reason(tmp_path) -> None:
    # The index of an mp4 is at its end.
    assert reason_of(half(film(tmp_path / "a.mp4", "mp4v"))) == "damaged video"
    few = film(tmp_path / "few.avi", frames=5)
    assert reason_of(few, max_pixels=96 * 63) == "too many pixels"
    reasons = ("no frames", "damaged video", "missing file")
    assert reason_of(film(tmp_path / "none.avi", frames=0)) in reasons
    assert len(video(few, rate=999).read()) == 5, "above its own rate: each frame once"


def test_a_header_that_claims_too_much_lists_nothing(tmp_path) -> None:
    path = film(tmp_path / "a.avi")
    data = path.read_bytes()
    place = data.index(b"strh") + 8 + 32  # dwLength of the stream
    assert data[place : place + 4] == FRAMES.to_bytes(4, "little")
    path.write_bytes(data[:place] + (2**31 - 1).to_bytes(4, "little") + data[place + 4 :])
    assert reason_of(path) in ("too many frames", "no frames")


def test_names_that_ffmpeg_cannot_take_end_no_process(tmp_path) -> None:
    film(tmp_path / "a.avi", frames=5).rename(tmp_path / "x\udcff.avi")
    code = (
        "import sys; from tests.tasks.sources.test_video import reason_of;"
        "print(reason_of(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "unreadable name\n"), done.stderr


def test_a_video_that_changes_or_vanishes_after_listing(tmp_path) -> None:
    path = film(tmp_path / "a.avi", frames=30)
    source = video(path)
    items = source.items()
    path.write_bytes(path.read_bytes() + b" ")
    assert [row.reason for row in source.read(items)] == ["changed since it was listed"] * 3
    path.unlink()
    assert [row.reason for row in source.read(items)] == ["missing file"] * 3


def test_videos_are_recognised_and_sources_without_any_refused(tmp_path) -> None:
    with pytest.raises(SourceError, match="no video found"):
        video(tmp_path).items()
    with pytest.raises(SourceError, match="local"):
        video("s3://clips").items()
    film(tmp_path / "a.avi", frames=2)
    for path in (tmp_path, tmp_path / "a.avi"):
        assert recognise_source(str(path)) == f"video:{path}"
