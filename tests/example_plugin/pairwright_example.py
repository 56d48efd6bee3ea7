"""One of each that a plugin may add to Pairwright. As a package it is found by the entry points in
pyproject.toml."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import (
    Box,
    Dropped,
    ImageRow,
    ItemRow,
    PreferenceRow,
    Row,
    Tag,
    make_key,
)
from pairwright.schemas.section import Section, Share
from pairwright.tasks.captioning.validators import Validator
from pairwright.tasks.export.form import ExportSettings, Form, check_answer, rejected_text
from pairwright.tasks.export.lines import MediaFolder, open_lines, read_lines
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.scene_models import TagMask
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

# A model per place of the line. One with weights has `has_weights = True`, too (one copy per GPU),
# and may have `check(download=...)`, which finds its files.


class BrightHalf:
    """Tagger that names the brighter half of an image."""

    name, version = "halves", "1"

    def prepare(self, image: DecodedImage) -> tuple[float, float]:
        """Return the mean brightness of the upper and the lower half."""
        middle = image.pixels.shape[0] // 2
        return image.pixels[:middle].mean(), image.pixels[middle:].mean()

    def tag(self, prepared: Sequence[tuple[float, float]]) -> list[tuple[Tag, ...]]:
        """Return one tag per image."""
        names = ["lamp" if above > below else "table" for above, below in prepared]
        return [(Tag(name=name, score=1.0, tagger=self.name),) for name in names]


class MiddleBox:
    """Detector that finds everything in the middle."""

    name, version = "middle", "1"

    def prepare(self, image: DecodedImage) -> tuple[int, int]:
        """Return height and width."""
        return image.pixels.shape[:2]

    def detect(
        self, prepared: Sequence[tuple[int, int]], tags: Sequence[Sequence[Tag]]
    ) -> list[tuple[Box, ...]]:
        """Return a box for each tag."""
        boxes = []
        for (height, width), image_tags in zip(prepared, tags, strict=True):
            x0, y0, x1, y1 = width * 0.25, height * 0.25, width * 0.75, height * 0.75
            numbers = range(len(image_tags))
            boxes.append(
                tuple(Box(tag=tag, score=1.0, x0=x0, y0=y0, x1=x1, y1=y1) for tag in numbers)
            )
        return boxes


class BoxMask:
    """Segmenter whose mask is the box itself."""

    name, version = "box", "1"

    def prepare(self, image: DecodedImage) -> tuple[int, int]:
        """Return height and width."""
        return image.pixels.shape[:2]

    def segment(
        self,
        prepared: Sequence[tuple[int, int]],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterator[list[TagMask]]:
        """Yield a mask per tag of each image."""
        for size, image_tags, image_boxes in zip(prepared, tags, boxes, strict=True):
            masks = [np.zeros(size, dtype=bool) for _ in image_tags]
            for box in image_boxes:
                masks[box.tag][int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)] = True
            yield [TagMask(mask, 1.0) for mask in masks]


class FlatRemover:
    """Remover that fills a hole with the mean colour of the image."""

    name, version = "flat", "1"

    def prepare(
        self, image: np.ndarray, hole: np.ndarray, window: tuple[int, int, int, int], tag: str
    ) -> np.ndarray:
        """Return the window's pixels, filled; `tag` is the name of what is removed."""
        x0, y0, x1, y1 = window
        pixels = image[y0:y1, x0:x1].copy()
        pixels[hole] = image.mean(axis=(0, 1))
        return pixels

    def inpaint(self, prepared: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the filled windows."""
        return prepared


class ColourWords:
    """Scorer in the space of the embedder of its name: the colours that a text names."""

    name, version = "mean-colour", "1"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a unit vector per text."""
        colours = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
        vectors = [
            np.sum([colours.get(word, (0, 0, 0)) for word in text.split()], axis=0) - 0.5
            for text in texts
        ]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / lengths).astype(np.float32)

    def split_text(self, text: str) -> tuple[str, ...]:
        """Return the text in pieces that are read in full."""
        return (text,)


class LongWords:
    """Finder of nouns for which every long word is one."""

    name, version = "long-words", "1"

    def nouns(self, texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Yield the nouns of each text."""
        for text in texts:
            yield tuple(word for word in text.lower().split() if len(word) > 4 and word.isalpha())

    phrases = nouns


HALVES, MIDDLE, BOX, FLAT = BrightHalf(), MiddleBox(), BoxMask(), FlatRemover()
COLOUR_WORDS, LONG_WORDS = ColourWords(), LongWords()

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
TAGGERS, DETECTORS, SEGMENTERS, REMOVERS = [HALVES], [MIDDLE], [BOX], [FLAT]
SCORERS, NOUNS = [COLOUR_WORDS], [LONG_WORDS]
