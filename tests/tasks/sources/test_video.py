"""Frames of videos: those that lie at the times asked for, whatever the shards; damaged and hostile
files by reason."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from pairwright.schemas.config import ImagesConfig, Profile, ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.video import STRETCH, list_items, read_items

FPS, FRAMES = 10, 200


def film(path: Path, codec: str = "mp4v", frames: int = FRAMES) -> Path:
    """Write a video whose frame n shows the eight bits of n as stripes, black or white."""
    writer = cv2.VideoWriter(
        str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*codec), FPS, (96, 64)
    )
    for number in range(frames):
        stripes = np.repeat(np.unpackbits(np.uint8(number)) * 255, 12).astype(np.uint8)
        writer.write(np.broadcast_to(stripes[None, :, None], (64, 96, 3)).copy())
    writer.release()
    return path


def config_of(path: Path, rate: float = 1.0, max_pixels: int = 40_000_000) -> SourceConfig:
    profile = Profile(
        reading=ReadingConfig(frames_per_second=rate), images=ImagesConfig(max_pixels=max_pixels)
    )
    return profile.model_copy(update={"source": f"video:{path}"}).sources


def read(
    path: Path, rate: float = 1.0, max_pixels: int = 40_000_000
) -> list[ImageRow | Dropped | Failed]:
    config = config_of(path, rate, max_pixels)
    found = list(read_items(list(list_items(config, None)), config))
    assert all(isinstance(row, ImageRow | Dropped | Failed) for row in found)
    return found  # type: ignore[return-value] - a video brings nothing else


def numbers(rows: list[ImageRow | Dropped | Failed]) -> list[int]:
    """Return which frames these are."""
    pixels = [
        decode_rgb(row.image)[32, 6::12, 0] > 127 for row in rows if isinstance(row, ImageRow)
    ]
    return [int(np.packbits(bits)[0]) for bits in pixels]


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", "mp4v"), ("a.avi", "MJPG"), ("a.mkv", "mp4v"), ("a.MOV", "mp4v")]
)
def test_frames_lie_at_their_times(tmp_path: Path, name: str, codec: str) -> None:
    rows = read(film(tmp_path / name, codec), rate=2)
    assert len(rows) == 2 * FRAMES // FPS
    assert numbers(rows) == list(range(0, FRAMES, FPS // 2))
    first, second = rows[:2]
    assert isinstance(first, ImageRow)
    assert isinstance(second, ImageRow)
    assert (first.name, second.name) == (f"{name}/000000.000s", f"{name}/000000.500s")
    assert (first.group, first.width, first.height, first.format) == (name, 96, 64, "jpeg")


def test_a_rate_above_the_videos_gives_each_frame_once(tmp_path: Path) -> None:
    assert len(read(film(tmp_path / "a.avi", "MJPG", frames=30), rate=999)) == 30


def test_a_frame_does_not_depend_on_how_shards_are_cut(tmp_path: Path) -> None:
    config = config_of(film(tmp_path / "a.mp4"), 4)
    items = list(list_items(config, None))
    together = list(read_items(items, config))
    assert len(items) > 4 * STRETCH
    for start in (1, STRETCH - 1, STRETCH, 2 * STRETCH + 3):
        assert list(read_items(items[start : start + 3], config)) == together[start : start + 3]
    assert list(read_items(items[5::7], config)) == together[5::7]
    assert list(list_items(config, 7)) == items[:7]


def half(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def test_of_a_truncated_video_what_is_there_is_read(tmp_path: Path) -> None:
    rows = read(half(film(tmp_path / "a.avi", "MJPG")))
    whole = len(numbers(rows))
    assert 5 < whole < 15
    assert numbers(rows[:whole]) == list(range(0, FPS * whole, FPS))
    assert {row.reason for row in rows if not isinstance(row, ImageRow)} == {
        "no frame at this time"
    }


def reason_of(path: Path, data: bytes | None = None, max_pixels: int = 40_000_000) -> str:
    if data is not None:
        path.write_bytes(data)
    row, *more = read(path, max_pixels=max_pixels)
    assert isinstance(row, Dropped)
    assert not more
    return row.reason


def test_what_is_no_video_is_dropped_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    film(tmp_path / "real.avi", "MJPG")
    assert reason_of(path, b"") == "empty file"
    assert reason_of(path, b"\x07" * 5000) == "not a video"
    other = b"ffconcat version 1.0\nfile real.avi\n"  # FFmpeg would read the other file
    assert reason_of(path, other) == "not a video"
    assert (
        reason_of(path, b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/x.ts\n#EXT-X-ENDLIST\n")
        == "not a video"
    )
    assert reason_of(path, b"\0\0\0\x18ftypisom" + b"\xff" * 5000) == "damaged video"
    assert reason_of(half(film(path))) == "damaged video"  # its index was at the end
    assert reason_of(film(tmp_path / "b.avi", "MJPG"), max_pixels=96 * 63) == "too many pixels"
    assert reason_of(film(tmp_path / "c.avi", "MJPG", frames=0)) in (
        "no frames",
        "damaged video",
        "missing file",
    )


def test_a_header_that_claims_too_much_lists_nothing(tmp_path: Path) -> None:
    data = film(tmp_path / "a.avi", "MJPG").read_bytes()
    claim, place = (
        (2**31 - 1).to_bytes(4, "little"),
        data.index(b"strh") + 8 + 32,
    )  # dwLength of the stream
    assert data[place : place + 4] == FRAMES.to_bytes(4, "little")
    reason = reason_of(tmp_path / "b.avi", data[:place] + claim + data[place + 4 :])
    assert reason in ("too many frames", "no frames")


def test_names_that_ffmpeg_cannot_take_end_no_process(tmp_path: Path) -> None:
    film(tmp_path / "a.avi", "MJPG").rename(tmp_path / "x\udcff.avi")
    code = (
        "import sys; from tests.tasks.sources.test_video import reason_of; from pathlib import "
        "Path; "
    )
    code += "print(reason_of(Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "unreadable name\n"), done.stderr


def test_a_video_that_changed_since_it_was_listed_is_refused(tmp_path: Path) -> None:
    path = film(tmp_path / "a.avi", "MJPG", frames=30)
    config = config_of(path)
    items: list[ItemRow] = list(list_items(config, None))
    path.write_bytes(path.read_bytes() + b" ")
    reasons = [row.reason for row in read_items(items, config) if isinstance(row, Dropped)]
    assert reasons == ["changed since it was listed"] * 3
    path.unlink()
    assert {row.reason for row in read_items(items, config) if isinstance(row, Dropped)} == {
        "missing file"
    }


def test_sources_without_videos_say_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no video found"):
        list(list_items(config_of(tmp_path), None))
    film(tmp_path / "a.avi", "MJPG", frames=2)
    assert recognise_source(str(tmp_path)) == f"video:{tmp_path}"
    assert recognise_source(str(tmp_path / "a.avi")) == f"video:{tmp_path}/a.avi"
    with pytest.raises(SourceError, match="local"):
        list(list_items(config_of(tmp_path).model_copy(update={"path": "s3://clips"}), None))
