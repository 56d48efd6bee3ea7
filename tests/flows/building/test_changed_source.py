"""What a source says of its images is taken from it at each build: licence, captions, group."""

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import pairwright as pw
from pairwright.schemas.rows import PreferenceRow
from tests.fixtures.builds import build_here
from tests.fixtures.layouts import put, put_lines
from tests.fixtures.pictures import picture

SETTINGS = (
    "captions.writer=scene-graph",
    "differences.writer=given",
    "preferences.split=published",
    "rejections.enabled=false",
    "run.workers=1",
)
SENTENCE = "The ball number {} is now {} and it has moved to the right."


def write_pairs(folder: Path, *, licence: str, tests: Sequence[int]) -> None:
    """Write a manifest of four pairs; those with the numbers ``tests`` are a published test."""
    lines: list[dict[str, str]] = []
    for number in range(4):
        names = [f"{number}-{side}.png" for side in "ab"]
        for position, name in enumerate(names):
            put(folder, name, picture(2 * number + position))
        lines.append(
            {
                "image1": names[0],
                "image2": names[1],
                "difference": SENTENCE.format(number, "green"),
                "license": licence,
                "split": "test" if number in tests else "train",
            }
        )
    put_lines(folder, "pairs.jsonl", *lines)


def read_preferences(dataset: Path) -> dict[str, PreferenceRow]:
    rows = pw.open(dataset)["preferences"].rows(without=("images", "rejected_images"))
    return {row.subject: row for row in rows}


def test_licence_and_split_follow_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    out = tmp_path / "out"
    write_pairs(source, licence="CC-BY-4.0", tests=[0])
    build_here(out, f"jsonl-pairs:{source / 'pairs.jsonl'}", settings=SETTINGS)
    before = read_preferences(out)
    assert len(before) == 4
    assert {row.licences for row in before.values()} == {("CC-BY-4.0", "CC-BY-4.0")}

    write_pairs(source, licence="proprietary", tests=[2])
    pw.open(out).resume()
    after = read_preferences(out)
    assert {row.licences for row in after.values()} == {("proprietary", "proprietary")}
    assert before.keys() == after.keys()
    tested = [row.chosen for row in after.values() if row.split == "test"]
    assert [SENTENCE.format(2, "green") in chosen for chosen in tested] == [True]
    splits = {row.subject: row.split for row in pw.open(out)["splits"].rows()}
    assert splits == {subject: row.split for subject, row in after.items()}


def test_a_rescan_notices_bytes_of_equal_size_and_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    out = tmp_path / "out"
    for number in range(3):
        pixels = np.full((48, 64, 3), 60 * number, np.uint8)
        put(source, f"{number}.bmp", _encode_bmp(pixels))
        os.utime(source / f"{number}.bmp", (1e9, 1e9))
    build_here(out, source, until="images", settings=["run.workers=1"])
    before = _images(out)
    put(source, "1.bmp", _encode_bmp(np.full((48, 64, 3), 200, np.uint8)))
    os.utime(source / "1.bmp", (1e9, 1e9))
    pw.open(out).resume()
    assert _images(out) == before, "equal size and time: it is not read"
    pw.open(out).resume(rescan=True)
    after = _images(out)
    assert after["1.bmp"] == (source / "1.bmp").read_bytes()
    assert {name: after[name] for name in ("0.bmp", "2.bmp")} == {
        name: before[name] for name in ("0.bmp", "2.bmp")
    }
    pw.open(out).resume()
    assert _images(out) == after


def _encode_bmp(pixels: NDArray[np.uint8]) -> bytes:
    data = BytesIO()
    Image.fromarray(pixels).save(data, "BMP")
    return data.getvalue()


def _images(dataset: Path) -> dict[str, bytes]:
    return {row.name: row.image for row in pw.open(dataset)["images"].rows()}
