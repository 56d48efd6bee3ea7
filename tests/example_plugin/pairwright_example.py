"""One of each that a plugin may add to Pairwright. As a package it is found by the entry points in
pyproject.toml."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, ItemRow, PreferenceRow, Row, make_key
from pairwright.schemas.section import Section, Share
from pairwright.tasks.captioning.validators import Validator
from pairwright.tasks.export.form import ExportSettings, Form, check_answer, rejected_text
from pairwright.tasks.export.lines import MediaFolder, open_lines, read_lines
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.store.stage import Stage

# A source: lists what there is, then reads it.


def list_colours(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the colours that a text file names, one on a line; nothing is read yet."""
    if not Path(config.path).is_file():
        raise SourceError(f"{config.path}: no such file; give a text file with a colour per line")
    for colour in Path(config.path).read_text(encoding="utf-8").split()[:limit]:
        key = make_key("palette", colour)
        yield ItemRow(key=key, source_key=key, subject=key, name=colour, locator=json.dumps(colour))


def paint_colours(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped]:
    """Yield an image of each colour, or why there is none."""
    for item in items:
        file = BytesIO()
        try:
            Image.new("RGB", (64, 64), json.loads(item.locator)).save(file, "png")
        except ValueError as error:
            yield Dropped(source_key=item.key, reason="unknown colour", detail=str(error))
            continue
        key = make_key(file.getvalue())
        yield ImageRow(
            key=key,
            source_key=item.key,
            subject=key,
            image=file.getvalue(),
            format="png",
            width=64,
            height=64,
            name=item.name,
            source="palette",
            licence=config.images.licence,
            group="",
        )


PALETTE = Reader(
    kind="palette",
    about="a text file that names a colour on each line",
    example="palette:COLOURS.txt",
    list_items=list_colours,
    read_items=paint_colours,
)

# A stage: its row, its settings, its function, its declaration.


@dataclass(frozen=True, slots=True, kw_only=True)
class BrightnessRow(Row):
    """How bright an image is; ``subject`` is the image."""

    brightness: float
    """Mean over all pixels and channels, 0 to 1."""


class BrightnessConfig(Section):
    """Which images are bright enough."""

    min_brightness: Share = 0.1
    """Darker images are dropped from this table."""


def measure_brightness(
    rows: Sequence[ImageRow], config: BrightnessConfig
) -> Iterator[BrightnessRow | Dropped]:
    """Yield how bright each image is."""
    for row in rows:
        brightness = float(decode_rgb(row.image).mean() / 255)
        if brightness < config.min_brightness:
            yield Dropped(source_key=row.key, reason="too dark", detail=f"{brightness:.3f}")
        else:
            yield BrightnessRow(
                key=row.key, source_key=row.key, subject=row.key, brightness=brightness
            )


BRIGHTNESS = Stage(
    name="brightness",
    version=1,
    group="sources",
    reads={"images": ImageRow},
    writes=BrightnessRow,
    function=measure_brightness,
    config=BrightnessConfig,
)

# A validator: says why a text will not do.

NO_METAL = Validator(
    name="no-metal", version=1, refuse=lambda text: "speaks of metal" if "metal" in text else ""
)

# An embedder: prepares one image, then encodes many.


class MeanColour:
    """The mean colour of an image, as a vector of three numbers."""

    name, version = "mean-colour", "1"

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Return the image's mean colour."""
        return image.mean(axis=(0, 1)) / 255 - 0.5

    def encode(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Return the vectors of prepared images."""
        return np.array(prepared, dtype=np.float32)


MEAN_COLOUR = MeanColour()

# A form of export: writes rows into a folder, and reads them back to check them.


def to_records(
    row: PreferenceRow, media: MediaFolder, setting: ExportSettings
) -> Iterator[tuple[str, dict]]:
    """Yield a row's record; a row without a rejected text is counted as left out."""
    yield (
        row.split,
        {"prompt": row.prompt[-1].text, "chosen": row.chosen, "rejected": rejected_text(row)},
    )


def check(folder: Path, record: dict) -> None:
    """Refuse a row that would not train."""
    for side in ("chosen", "rejected"):
        check_answer(record[side], side)


LINES = Form(
    name="lines",
    about="JSON Lines of texts: prompt, chosen, rejected",
    cannot="It has no images.",
    opens=open_lines(to_records),
    check=read_lines(check),
    use="Read `FOLDER/data/train.jsonl`.",
    owns=frozenset({"data"}),
)

# Without a package: `--plugin pairwright_example.py` finds them in these lists.

SOURCES, STAGES, VALIDATORS, EMBEDDERS, FORMATS = (
    [PALETTE],
    [BRIGHTNESS],
    [NO_METAL],
    [MEAN_COLOUR],
    [LINES],
)
