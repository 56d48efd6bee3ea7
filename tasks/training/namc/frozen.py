"""What NAMC is shown of a run's rows: texts, crops of their images, and at the paper's size what tables say of them.

Written once into ``runs/NAME/places/``, mapped into memory, gone when the run is finished. An image is there once, in
however many rows it is, in the order of ``about.json``:

    rows.jsonl      key, split, chosen text, and the keys of its images
    crops.bin       (images, side, side, 3) bytes, black where one does not decode: small 64 pixels, paper 224 (151 kB
                    per image, only where patches are masked)
    grids.npy       (images, 196, 1024) float16, and codes.npy, (images, 196) uint16: copied from the tables
    relevant.npy    (rows, 2, places + L) float32: relevance by CLIP as it is before the training, where that is wanted
    about.json      the images' keys; which of them are known; how many features and codes there are

Pre-training at the paper's size reads 1.1 MB per row and epoch, fine-tuning 0.8 MB.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.namc import PAPER, NamcConfig
from pairwright.tasks.models.namc_places import CROP, PLACES, SIDE
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.vectors import map_new
from pairwright.tasks.training.freeze_rows import PAIR, FrozenRows
from pairwright.tasks.training.runs import publish_folder

ROWS, CROPS, ABOUT = "rows.jsonl", "crops.bin", "about.json"
TABLES = ("grids", "codes")
SMALL_SIDE = 64


def crop_small(data: bytes) -> NDArray[np.uint8]:
    """Return ``(64, 64, 3)`` RGB of an encoded image, squashed, so that places of a pair are comparable.

    Raises:
        RefusedImageError: it cannot be decoded.
    """
    import cv2

    size = (SMALL_SIDE, SMALL_SIDE)
    return np.asarray(cv2.resize(decode_rgb(data), size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def crop_large(data: bytes) -> NDArray[np.uint8]:
    """Return ``(224, 224, 3)`` RGB of an encoded image.

    Raises:
        RefusedImageError: it cannot be decoded.
    """
    return CROP(decode_rgb(data))


def freeze_images(splits: Iterable[FrozenRows], place: Path, config: NamcConfig) -> None:
    """Write the texts of a run's rows and the crops of their images, whole or not at all, unless they are there.

    Raises:
        StoreError: a row cannot be read, or the disk refuses.
    """
    if place.exists():
        return
    large = config.size == PAPER
    side = 0 if large and not config.noise_enabled else SIDE if large else SMALL_SIDE

    def crop(data: bytes) -> NDArray[np.uint8] | None:
        try:
            return (crop_large if large else crop_small)(data) if side else np.zeros(0, np.uint8)
        except RefusedImageError:
            return None

    staged = place.with_name(f".{place.name}")
    known: dict[str, bool] = {}
    with naming(str(place), "written"), ThreadPoolExecutor(count_cores()) as threads:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        with (staged / ROWS).open("w") as lines, (staged / CROPS).open("wb") as crops:
            for rows, row in ((own, own.read(number)) for own in splits for number in range(len(own))):
                about = {"key": row.key, "split": rows.split, "chosen": row.chosen, "images": row.image_keys}
                lines.write(json.dumps(about) + "\n")
                images = dict(zip(row.image_keys, row.images, strict=True)) if len(row.images) == PAIR else {}
                new = {key: data for key, data in images.items() if key not in known}
                for key, found in zip(new, threads.map(crop, new.values()), strict=True):
                    known[key] = found is not None
                    crops.write(bytes(3 * side**2) if found is None else found.tobytes())
        (staged / ABOUT).write_text(json.dumps({"images": known, "side": side, "widths": {}}))
        publish_folder(staged, place)


def copy_tables(build: Build, tables: Mapping[str, Planned], place: Path) -> None:
    """Copy what the settled tables (``grids``, ``codes``) say of a run's images to what was frozen of them.

    Raises:
        StoreError: a table cannot be read, or the disk refuses.
        TrainingError: a table has none of the images.
    """
    about = json.loads((place / ABOUT).read_text())
    order = {key: number for number, key in enumerate(about["images"])}
    with naming(str(place), "written"):
        for name in TABLES:
            if name in tables and name not in about["widths"]:
                about["widths"][name], found = _copy(build, tables[name], place / f"{name}.npy", order)
                about["images"] = {key: known and key in found for key, known in about["images"].items()}
        Folder(str(place)).write(ABOUT, json.dumps(about).encode())


def _copy(build: Build, planned: Planned, file: Path, order: Mapping[str, int]) -> tuple[int, set[str]]:
    """Copy a table's values to their images' places; return its width, and which images it has."""
    width, found = 0, set[str]()
    values: NDArray[Any] | None = None
    for table in stream_live(build, planned, ["subject", "kind", "width", "values"]):
        for row in table.to_pylist():
            if row["subject"] not in order:
                continue
            if values is None:
                width, kind = row["width"], np.dtype(row["kind"]).newbyteorder("<")
                shape = (PLACES, width) if row["kind"] == "float16" else (PLACES,)
                values = map_new(file, kind, (len(order), *shape))
            values[order[row["subject"]]] = np.frombuffer(row["values"], values.dtype).reshape(values.shape[1:])
            found.add(row["subject"])
    if not found:
        raise TrainingError(
            f"{planned.table}: has none of the run's {len(order):,} images: NAMC learns from rows about two images of "
            "the dataset, which can be decoded"
        )
    return width, found


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """What was frozen of a run, arrays mapped; ``None``: there is no such file."""

    folder: Path
    rows: list[dict[str, Any]]
    images: Mapping[str, int]
    """Place of each image that is known, by key."""
    widths: Mapping[str, int]
    """How many features and codes the tables have, by their names."""
    crops: NDArray[np.uint8] | None
    grids: NDArray[np.float16] | None
    codes: NDArray[np.uint16] | None


def open_frozen(place: Path) -> Frozen:
    """Open what was frozen.

    Raises:
        StoreError: it is not there, or damaged.
    """
    try:
        about = json.loads((place / ABOUT).read_text())
        tables = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in TABLES if name in about["widths"]}
        shape, crops = (-1, about["side"], about["side"], 3), None
        if about["side"] and any(about["images"]):
            crops = np.memmap(place / CROPS, np.uint8, mode="r").reshape(shape)
        return Frozen(
            folder=place,
            rows=[json.loads(line) for line in (place / ROWS).read_text().splitlines()],
            images={key: number for number, (key, known) in enumerate(about["images"].items()) if known},
            widths=about["widths"],
            crops=crops,
            grids=tables.get("grids"),
            codes=tables.get("codes"),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{place}: cannot be read: {error}. Start the run anew under another --name") from error
