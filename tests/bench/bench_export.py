"""Measure the export to Parquet against ``datasets``: rows per second, from the same rows in memory to files on disk.

Run with ``make bench BENCH=export``, or ``python -m tests.bench.bench_export``; takes about a minute, 1 GB of memory
and 1.5 GB below the temporary folder. Rows have four JPEG files of 80 KB, as ``hf`` has them; there are so many of
them that the card, which takes 30 ms however many there are, counts for little. Two ways of ``to_parquet`` are
measured: given the files' bytes, which is its best, and given pictures, as a script that loads them would, which it
encodes as PNG. Sides take turns in one process, what they wrote is deleted at once, and each side's least time
counts.

Most of our time is the copying of the images' bytes, by the system and by Arrow: rows as Python objects cost a tenth.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from PIL import Image

from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.tasks.export.forms.hf import FEATURES, to_record
from tests.bench.turns import print_rates, take_turns
from tests.fixtures.exports import export_some, preference

ROWS, PICTURES, PICTURED = 1_600, 40, 40
TURNS = 7
TARGET = 4


def make_jpeg(rng: np.random.Generator) -> bytes:
    """Return a photograph-like JPEG of 640 x 480 pixels."""
    small = rng.integers(0, 255, (48, 64, 3), dtype=np.uint8)
    sink = io.BytesIO()
    Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(sink, "JPEG", quality=90)
    return sink.getvalue()


def make_rows(count: int) -> list[PreferenceRow]:
    """Return preferences whose four files all differ."""
    rng = np.random.default_rng(0)
    files = [make_jpeg(rng) for _ in range(PICTURES)]
    return [_row(number, [files[(4 * number + place) % PICTURES] for place in range(4)]) for number in range(count)]


def _row(number: int, files: Sequence[bytes]) -> PreferenceRow:
    own = [file + number.to_bytes(4, "big") for file in files]
    keys = tuple(make_key(file) for file in own[:2])
    images, rejected = tuple(own[:2]), tuple(own[2:])
    return replace(preference(1), key=make_key(number), images=images, rejected_images=rejected, image_keys=keys)


def ours(rows: Sequence[PreferenceRow], folder: Path) -> None:
    """Export in the form ``hf``."""
    export_some(folder / "out", rows, form="hf")


def theirs(rows: Sequence[PreferenceRow], folder: Path, *, pictures: bool = False) -> None:
    """Make a dataset of the same columns, and write it as Parquet."""

    def records() -> Iterator[dict[str, Any]]:
        for row in rows:
            record = to_record(row)
            for name in ("images", "rejected_images") if pictures else ():
                record[name] = [Image.open(io.BytesIO(cell["bytes"])) for cell in record[name]]
            yield record

    made: Any = datasets.Dataset.from_generator(
        records, features=datasets.Features.from_dict(FEATURES), cache_dir=str(folder / "cache")
    )
    made.to_parquet(folder / "out.parquet")


def in_folder(side: Callable[[Path], None]) -> None:
    """Run a side in a folder that is deleted at once."""
    with tempfile.TemporaryDirectory() as place:
        side(Path(place))


def main() -> None:
    """Print rows per second of the sides."""
    datasets.disable_progress_bars()
    rows = make_rows(ROWS)
    sides = {
        "export hf": partial(in_folder, partial(ours, rows)),
        "datasets.to_parquet, bytes": partial(in_folder, partial(theirs, rows)),
    }
    print_rates(f"rows in memory to files (target {TARGET}x)", take_turns(sides, TURNS, warm=0), ROWS, "rows")
    pictured = {"datasets.to_parquet, pictures": partial(in_folder, partial(theirs, rows[:PICTURED], pictures=True))}
    print_rates("the same, given pictures", take_turns(pictured, 2, warm=0), PICTURED, "rows")


if __name__ == "__main__":
    main()
