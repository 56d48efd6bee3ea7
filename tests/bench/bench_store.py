"""Measure the store: writing image rows, making them durable, reading one row, planning what is
unfinished.

Run with ``make bench BENCH=store``, or ``python -m tests.bench.bench_store``. Needs ``datasets``
and 2 GB below the temporary folder. The sides of a ratio take turns, and the least times are
divided.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import schema_of, to_table
from pairwright.schemas.rows import ImageRow, ItemRow, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import ITEMS, ITEMS_PER_PART, Build
from pairwright.tasks.store.part import describe_part, encode_part
from tests.bench.turns import take_turns
from tests.fixtures.rows import row_of
from tests.tasks.store.toy import STAGES, ToyConfig, plan_toy

ROWS, IMAGE_BYTES, ROWS_PER_PART = 3_000, 60_000, 200
REPEATS = 7
PLANNED_PARTS = 3_300


def make_images(count: int, *, size_bytes: int = IMAGE_BYTES) -> list[ImageRow]:
    """Return rows whose images are as incompressible as PNG files; the same ones each time."""
    rng = np.random.default_rng(0)
    return [_image(number, rng.bytes(size_bytes)) for number in range(count)]


def _image(number: int, data: bytes) -> ImageRow:
    told = {"format": "png", "width": 256, "height": 192, "captions": ("a photograph of a table",)}
    return row_of(ImageRow, number, source=make_key(number), image=data, **told)


def say(what: str, *, ours: float, other: float, target: str) -> None:
    """Print one ratio with its sides, in milliseconds."""
    print(f"{what:<64} {ours * 1e3:9.1f} {other * 1e3:9.1f} {other / ours:7.2f}  {target}")


def _write_plainly(folder: Folder, name: str, data: memoryview) -> None:
    Path(folder.path(name)).write_bytes(data)


def write_images(folder: Folder, rows: Sequence[ImageRow], *, durable: bool) -> None:
    """Write rows as a shard does: to Arrow, to a part's bytes, to a file."""
    for start in range(0, len(rows), ROWS_PER_PART):
        name = f"written/part-{rows[start].key}.parquet"
        data = encode_part(
            to_table(rows[start : start + ROWS_PER_PART], ImageRow), {"rows": str(ROWS_PER_PART)}
        )
        if durable:
            folder.write(name, data)
        else:
            _write_plainly(folder, name, data)


def _write_datasets(
    images: Sequence[ImageRow], folder: Folder, *, as_images: bool
) -> Callable[[], object]:
    """Give the same bytes to ``datasets``: as images that are not decoded, or as plain binary."""
    import datasets

    datasets.disable_progress_bars()
    schema = pa.schema(
        [field for field in schema_of(ImageRow) if field.name not in ("status", "reason", "detail")]
    )
    rows = [
        {name: getattr(row, name) for name in schema.names} | {"captions": list(row.captions)}
        for row in images
    ]
    path, features = folder.path("written/datasets.parquet"), None
    if as_images:
        rows = [{**row, "image": {"bytes": row["image"], "path": None}} for row in rows]
        features = datasets.Features(
            {**datasets.Features.from_arrow_schema(schema), "image": datasets.Image()}
        )
    return lambda: datasets.Dataset.from_list(rows, features=features).to_parquet(path)


def bench_writing(folder: Folder) -> None:
    """Compare the store's write with that of ``datasets``, and the durable write with the plain
    one."""
    images = make_images(ROWS)

    def clean(write: Callable[[], object]) -> None:
        """Write, and delete what was written."""
        write()
        for file in folder.names("written"):
            folder.delete(f"written/{file}")

    sides = {
        "plain": partial(write_images, folder, images, durable=False),
        "durable": partial(write_images, folder, images, durable=True),
        "images": _write_datasets(images, folder, as_images=True),
        "binary": _write_datasets(images, folder, as_images=False),
    }
    found = take_turns({name: partial(clean, side) for name, side in sides.items()}, REPEATS)
    print(f"write {ROWS:,} rows of {IMAGE_BYTES // 1000} KB")
    for what, ours, other, target in (
        ("store, not flushed | datasets, Image()", "plain", "images", "at least 4"),
        ("store, not flushed | datasets, binary", "plain", "binary", "at least 4"),
        ("store, flushed and renamed | datasets, Image()", "durable", "images", ""),
        ("store, not flushed | flushed and renamed", "plain", "durable", "at most 1.6"),
    ):
        say(f"  {what}", ours=found[ours].clock, other=found[other].clock, target=target)


def write_planned(folder: Folder, parts: int) -> tuple[str, ...]:
    """Write a finished first table of many parts, and its listing, without flushing; return the
    listing's parts."""
    planned = plan_toy(ToyConfig(), STAGES[:1])[0]
    Path(folder.path(planned.table_path)).mkdir(parents=True)
    Path(folder.path(ITEMS)).mkdir(parents=True)
    for start in range(0, parts * ROWS_PER_PART, ROWS_PER_PART):
        rows = [_image(number, b"") for number in range(start, start + ROWS_PER_PART)]
        _write_table(
            folder, f"{planned.table_path}/part-{make_key(start)}.parquet", to_table(rows, ImageRow)
        )
    names: list[str] = []
    for start in range(0, parts * ROWS_PER_PART, ITEMS_PER_PART):
        keys = [
            make_key(number)
            for number in range(start, min(start + ITEMS_PER_PART, parts * ROWS_PER_PART))
        ]
        rows = [ItemRow(key=key, source_key=key, subject=key, name="", locator="") for key in keys]
        names.append(f"{ITEMS}/part-{make_key(start)}.parquet")
        _write_table(folder, names[-1], to_table(rows, ItemRow))
    return tuple(names)


def _write_table(folder: Folder, name: str, table: pa.Table) -> None:
    _write_plainly(folder, name, encode_part(table, describe_part(name, table, version=1)))


def plan(url: str, items: Sequence[str]) -> None:
    """Print the seconds and the peak memory of planning a second stage over a finished first
    one."""
    start = time.perf_counter()
    with Build(Folder(url), plan_toy(ToyConfig(), STAGES[:2]), items) as build:
        counts = [build.resolve(stage) for stage in build.planned]
        shards = build.shards(build.planned[1])
    seconds = time.perf_counter() - start
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    what = f"plan {counts[1].of:,} rows of {PLANNED_PARTS:,} parts as {len(shards):,} shards"
    print(f"{what:<64} {seconds:9.1f} s, at most 10 s; {int(peak.split()[1]) >> 10} MB of memory")


def bench_planning(folder: Folder) -> None:
    """Plan in a process of its own, so that its memory can be told."""
    items = write_planned(folder, PLANNED_PARTS)
    subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_store", folder.url, *items], check=True
    )


def main() -> None:
    """Print one line per measurement: our milliseconds, the other side's, and their ratio."""
    print(f"{'':<64} {'ours ms':>9} {'other ms':>9} {'ratio':>7}  target")
    with tempfile.TemporaryDirectory(prefix="pairwright-bench-") as path:
        folder = Folder(path)
        Path(folder.path("written")).mkdir()
        bench_writing(folder)
        bench_planning(Folder(f"{path}/planned"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        plan(sys.argv[1], sys.argv[2:])
    else:
        main()
