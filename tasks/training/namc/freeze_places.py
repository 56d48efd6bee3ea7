"""Copy what NAMC of the paper's size is told of a run's images out of the tables, into files that are read at random.

Reads the settled tables of preferences and images and those of ``encode_places``; writes into ``runs/NAME/places/``,
which is mapped into memory and not held, and goes when the run is finished:

    rows.arrow     the run's rows: key, split, chosen text, images, the places of both in the files below, or -1
    grids.npy      (images, 196, 1024) float16: 401 kB per image
    codes.npy      (images, 196) uint16, where masked places are reconstructed
    patches.npy    (images, 196, 512) float16: 201 kB per image, until it is known what is relevant
    crops.npy      (images, 224, 224, 3) bytes: 151 kB per image, where patches are masked
    about.json     how many codes there are

An image is there once, in however many rows it is. Pre-training reads 1.1 MB per row and epoch, fine-tuning 0.8 MB.
Memory: a row group of a table twice (80 MB), and the rows' texts.
"""

import json
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.tasks.models.namc.places import CROP, PLACES, SIDE
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import naming
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.vectors import map_new
from pairwright.tasks.training.examples import PAIR
from pairwright.tasks.training.runs import publish_folder

ROWS, ABOUT, CROPS = "rows.arrow", "about.json", "crops"
SCHEMA = pa.schema(
    [
        *[(name, pa.string()) for name in ("key", "split", "chosen")],
        ("images", pa.list_(pa.string())),
        *[(name, pa.int32()) for name in ("first", "second")],
    ]
)
AT_ONCE = 64
"""Images that are decoded at once."""
Tables = Mapping[str, Planned]
"""Settled tables by name."""


def freeze_places(build: Build, tables: Tables, folder: Path, *, keys: Iterable[str], table: str, crops: bool) -> None:
    """Write what is known of a run's images, whole or not at all.

    Args:
        build: the opened dataset.
        tables: its tables, and those of ``encode_places`` that the run needs.
        folder: where it is written; nothing is there.
        keys: the run's rows.
        table: the one that they are of.
        crops: whether the images' pixels are needed, too.

    Raises:
        StoreError: a table cannot be read, or the disk refuses.
        TrainingError: no row is about two images, or none of them has features.
    """
    staged = folder.with_name(f".{folder.name}")
    shutil.rmtree(staged, ignore_errors=True)
    with naming(str(folder), "written"):
        staged.mkdir(parents=True)
        rows = list(stream_rows(build, tables[table], set(keys)))
        images = {key: place for place, key in enumerate(dict.fromkeys(key for row in rows for key in pair_of(row)))}
        about: dict[str, int] = {}
        seen = np.ones(len(images), dtype=bool)
        for name in ("grids", "codes", "patches"):
            if name in tables:
                about[name], found = _copy(build, tables[name], staged / f"{name}.npy", images)
                seen &= found
        if crops:
            seen &= _cut(build, tables["images"], staged / f"{CROPS}.npy", images)
        _write_rows(staged / ROWS, rows, images, seen)
        (staged / ABOUT).write_text(json.dumps(about))
        publish_folder(staged, folder)


def stream_rows(build: Build, planned: Planned, keys: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a run's rows without their images: key, split, chosen text, and the images' keys.

    Args:
        build: the opened dataset.
        planned: the settled table that they are of.
        keys: the run's rows.
    """
    for table in stream_live(build, planned, ["key", "split", "chosen", "image_keys"]):
        for row in table.to_pylist():
            if row["key"] in keys:
                yield row | {"images": row.pop("image_keys")}


def pair_of(row: Mapping[str, Any]) -> list[str]:
    """Return the two images of a row; none where it is about more or less."""
    return row["images"] if len(row["images"]) == PAIR else []


def _write_rows(file: Path, rows: list[dict[str, Any]], images: Mapping[str, int], seen: NDArray[np.bool_]) -> None:
    def places(row: Mapping[str, Any]) -> list[int]:
        return [images[key] if seen[images[key]] else -1 for key in pair_of(row)] or [-1, -1]

    placed = [row | dict(zip(("first", "second"), places(row), strict=True)) for row in rows]
    with pa.ipc.new_file(str(file), SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(placed, schema=SCHEMA))


def _copy(build: Build, planned: Planned, file: Path, images: Mapping[str, int]) -> tuple[int, NDArray[np.bool_]]:
    """Copy a table's values to their images' places; return its width, and which images it has."""
    found, width = np.zeros(len(images), dtype=bool), 0
    values: NDArray[Any] | None = None
    for table in stream_live(build, planned, ["subject", "kind", "width", "values"]):
        for row in _only(table, "subject", images):
            if values is None:
                width, kind = row["width"], np.dtype(row["kind"]).newbyteorder("<")
                shape = (PLACES, width) if row["kind"] == "float16" else (PLACES,)
                values = map_new(file, kind, (len(images), *shape))
            place = images[row["subject"]]
            values[place] = np.frombuffer(row["values"], dtype=values.dtype).reshape(values.shape[1:])
            found[place] = True
    if values is None:
        raise TrainingError(
            f"{planned.table}: has none of the run's {len(images):,} images: NAMC learns from rows about two images of "
            "the dataset, which can be decoded"
        )
    return width, found


def _only(table: pa.Table, column: str, images: Mapping[str, int]) -> list[dict[str, Any]]:
    return table.filter(pa.array([key in images for key in table.column(column).to_pylist()], pa.bool_())).to_pylist()


def _cut(build: Build, planned: Planned, file: Path, images: Mapping[str, int]) -> NDArray[np.bool_]:
    """Write the crop of each image; return which images there are."""
    found = np.zeros(len(images), dtype=bool)
    crops = map_new(file, np.uint8, (max(len(images), 1), SIDE, SIDE, 3))
    source = _encoded(build, planned, images)
    with ThreadPoolExecutor(count_cores()) as threads:
        while some := list(islice(source, AT_ONCE)):
            for (key, _), crop in zip(some, threads.map(_crop, (data for _, data in some)), strict=True):
                if crop is not None:
                    crops[images[key]], found[images[key]] = crop, True
    return found


def _encoded(build: Build, planned: Planned, images: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    for table in stream_live(build, planned, ["key", "image"]):
        yield from ((row["key"], row["image"]) for row in _only(table, "key", images))


def _crop(data: bytes) -> NDArray[np.uint8] | None:
    try:
        return CROP(decode_rgb(data))
    except RefusedImageError:
        return None


@dataclass(frozen=True)
class Frozen:
    """Be what was frozen."""

    folder: Path
    rows: pa.Table
    about: Mapping[str, int]

    def array(self, name: str) -> NDArray[Any]:
        """Return one of the files ("grids"), mapped.

        Raises:
            StoreError: it is not there, or damaged.
        """
        with _opening(self.folder):
            return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""
        return (self.folder / f"{name}.npy").exists()


def open_places(folder: Path) -> Frozen:
    """Open what was frozen.

    Raises:
        StoreError: it is not there, or damaged.
    """
    with _opening(folder):
        with pa.memory_map(str(folder / ROWS)) as source:
            rows = pa.ipc.open_file(source).read_all()
        if not rows.schema.equals(SCHEMA):
            raise ValueError(f"{ROWS} has other columns")
        return Frozen(folder, rows, json.loads((folder / ABOUT).read_text()))


@contextmanager
def _opening(folder: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"{folder}: cannot be read: {error}. Start the run anew under another --name") from error
