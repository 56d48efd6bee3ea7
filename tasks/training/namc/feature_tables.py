"""Features and codes of each image by frozen models, for NAMC of the paper's size (paper 001, 3.2).

Reads ``ImageRow``, writes one ``PlacesRow`` per image into each table. ``grids``: the CNN's
features, 14 x 14 x 1024 float16, 401 kB an image. ``codes``: the VQGAN's codes, 392 bytes. The
tables have separate fingerprints, so that another VQGAN leaves the features valid. Memory of a
process: the model, 64 images on the device, and three copies of a shard's rows, 240 MB. On a GPU,
other processes decode images ahead.

A run trains on memory-mapped copies, deleted when it is finished:

    runs/NAME/places/grids.npy    (images, 196, 1024) float16
    runs/NAME/places/codes.npy    (images, 196) uint16
    runs/NAME/places/about.json   positions of images, numbers of features and codes; written last
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.namc_config import CnnConfig, VqganConfig
from pairwright.schemas.rows import Dropped, ImageRow, PlacesRow, make_key
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.namc_places import (
    AT_ONCE,
    CROP,
    GRID,
    PlaceEncoder,
    load_codes,
    load_grids,
    pin_weights,
)
from pairwright.tasks.models.prepare_ahead import BATCH, DecodedImage, Ready, by_image, in_groups
from pairwright.tasks.models.preprocess import Pixels
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned, Stage
from pairwright.tasks.store.vectors import map_new

ABOUT = "about.json"


def encode_places(
    rows: Sequence[ImageRow], config: CnnConfig | VqganConfig
) -> Iterator[PlacesRow | Dropped]:
    """Yield the CNN's features, or the VQGAN's codes, of each image."""
    if not rows:
        return
    load = load_grids if isinstance(config, CnnConfig) else load_codes
    encoder = load(config.model_dump_json())
    (model,) = name_model(config)
    yield from in_groups(
        [(row, row) for row in rows],
        by_image(_crop),
        partial(_encode_images, encoder, model),
        on_gpu=count_gpus() > 0,
        size=AT_ONCE,
        ahead=8 * BATCH,
    )


def _crop(image: DecodedImage) -> Pixels:
    return CROP(image.pixels)


def _encode_images(
    encoder: PlaceEncoder, model: str, images: Sequence[Ready[ImageRow, Pixels]]
) -> Iterator[PlacesRow]:
    encoded = encoder.encode([image.part for image in images])
    little_endian = encoded.astype(encoded.dtype.newbyteorder("<"), copy=False)
    for image, values in zip(images, little_endian, strict=True):
        key = image.row.key
        yield PlacesRow(
            key=make_key("places", key, model),
            source_key=key,
            subject=key,
            model=model,
            kind=encoder.kind.__name__,
            width=encoder.width,
            values=values.tobytes(),
        )


def name_model(config: CnnConfig | VqganConfig) -> tuple[str]:
    """Return the model with its revision, for the table's fingerprint."""
    name = config.model if isinstance(config, CnnConfig) else "vqgan"
    return (f"{name} {config.revision or config.checkpoint or 'main'}",)


def count_processes(_config: CnnConfig | VqganConfig) -> int:
    """Return how many processes load the model: one per GPU; 0: one per worker."""
    return count_gpus()


def _stage(name: str, config: type[CnnConfig | VqganConfig], rows_per_shard: int) -> Stage:
    return Stage(
        name=name,
        version=1,
        group="training",
        reads={"images": ImageRow, "aligned_images": ImageRow},
        writes=PlacesRow,
        config=config,
        function=encode_places,
        models=name_model,
        pin=pin_weights,
        processes=count_processes,
        without=("graph",),
        only_in=("pairs",),
        rows_per_shard=rows_per_shard,
    )


GRIDS = _stage("grids", CnnConfig, 200)
CODES = _stage("codes", VqganConfig, 1000)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Memory-mapped copies of the tables for a run's images."""

    images: Mapping[str, int]  # position of each image, by key
    grids: NDArray[Any]  # ``(images, places, features)``
    codes: NDArray[Any] | None  # ``(images, places)``; ``None`` where they are not learnt
    widths: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of features and codes by table; empty at the small size."""


def copy_tables(build: Build, tables: Sequence[Planned], keys: Sequence[str], folder: Path) -> None:
    """Copy the resolved tables' values of a run's images."""
    positions = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    encoded = set(positions)
    widths = dict[str, int]()  # images that all tables have
    with naming(str(folder), "written"):
        folder.mkdir(exist_ok=True)
        for planned in tables:
            name = planned.stage.name
            widths[name], copied = _copy(build, planned, folder / f"{name}.npy", positions)
            encoded &= copied
        about = {
            "images": {key: number for key, number in positions.items() if key in encoded},
            "widths": widths,
        }
        Folder(str(folder)).write(ABOUT, json.dumps(about).encode())


def _copy(
    build: Build, planned: Planned, file: Path, positions: Mapping[str, int]
) -> tuple[int, set[str]]:
    """Copy a table's values to their images' positions; return its width and the images copied."""
    width = 0
    copied = set[str]()
    values: NDArray[Any] | None = None
    for table in stream_live(build, planned, ["subject", "kind", "width", "values"]):
        for row in table.to_pylist():
            key = row["subject"]
            if key not in positions:
                continue
            if values is None:
                width = row["width"]
                values = _map_values(file, row["kind"], width, len(positions))
            value = np.frombuffer(row["values"], values.dtype)
            values[positions[key]] = value.reshape(values.shape[1:])
            copied.add(key)
    if not copied:
        raise TrainingError(
            f"{planned.table_path}: has none of the run's {len(positions):,} images: "
            "no row shows two"
        )
    return width, copied


def _map_values(file: Path, kind: str, width: int, images: int) -> NDArray[Any]:
    """Return a new memory-mapped array: features of each place, or its code."""
    shape = (GRID**2, width) if kind == "float16" else (GRID**2,)
    return map_new(file, np.dtype(kind).newbyteorder("<"), (images, *shape))


def open_copies(folder: Path) -> Copies:
    """Open a run's copies."""
    try:
        about = json.loads((folder / ABOUT).read_text())
        tables = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in about["widths"]}
        return Copies(**about, grids=tables["grids"], codes=tables.get("codes"))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StoreError(
            f"{folder}: cannot be read: {error}. Start over with another --name"
        ) from error
