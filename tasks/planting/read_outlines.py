"""Read the outlines of things in annotated photographs (COCO's layout).

Annotations are hostile: what cannot be read as one outline of one thing is left out, and a file
name that leaves the folder is not followed. Reads local files; no network.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from pairwright.schemas.errors import SourceError
from pairwright.schemas.scene import PLURALS

MAX_FILE_BYTES = 100 << 20
"""Maximum size of the annotations: 200,000 things in COCO's layout."""
MIN_SIDE = 40
"""Least longer side of a thing, in pixels of its photograph (ours)."""
FEWEST_NUMBERS = 6  # of a polygon: three corners
NOUN = re.compile(r"[a-z]+(?: [a-z]+)?")


class _CocoRuns(BaseModel):
    size: tuple[int, int]
    """Height and width."""
    counts: list[int]
    """Run lengths down the columns, starting with the background."""


class _CocoThing(BaseModel):
    image_id: int
    category_id: int
    segmentation: _CocoRuns | list[list[float]]
    """Run lengths, or outlines x, y, x, y, ...; compressed run lengths are not read."""
    iscrowd: int = 0
    bbox: Annotated[list[float], Field(min_length=4, max_length=4)]


class _Image(BaseModel):
    id: int
    file_name: str


class _Category(BaseModel):
    id: int
    name: str


class _Annotations(BaseModel):
    images: list[_Image]
    categories: list[_Category]
    annotations: list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Outline:
    """Annotated thing of one photograph."""

    path: Path
    noun: str
    points: tuple[float, ...] = ()
    """Of a polygon: x, y, x, y, ..."""
    counts: tuple[int, ...] = ()
    """Run lengths, without a polygon."""
    shape: tuple[int, int] = (0, 0)
    """Height and width that the run lengths are of."""


@dataclass(frozen=True, slots=True)
class Outlines:
    """Annotated things: those that can be cut out, and what each photograph shows."""

    usable: tuple[Outline, ...] = ()
    nouns_of: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Categories of all annotations of a photograph, by the name of its file."""


def hash_outlines(path: str) -> str:
    """Return the digest of the annotations; "" without any."""
    return sha256(_read_file(path)).hexdigest() if path else ""


@lru_cache(maxsize=2)
def read_outlines(path: str, digest: str) -> Outlines:
    """Return the outlines of a COCO file whose digest is known.

    Raises:
        SourceError: the file cannot be read, has another layout, or has no usable outline; the
            first photograph is not there.
    """
    content = _read_file(path)
    if sha256(content).hexdigest() != digest:
        raise SourceError(f"{path} changed while it was read: build again")
    try:
        annotations = _Annotations.model_validate(json.loads(content))
    except (ValueError, RecursionError) as error:
        message = f"{path} (planted.cutouts) is not a COCO file with images and categories: {error}"
        raise SourceError(message) from error
    folder = Path(path).parent
    paths: dict[int, Path] = {}
    for image in annotations.images:
        if is_inside(image.file_name):
            paths[image.id] = folder / image.file_name
    nouns = {category.id: category.name.strip().lower() for category in annotations.categories}
    outlines: list[Outline] = []
    for record in annotations.annotations:
        outline = _read_outline(record, paths, nouns)
        if outline is not None:
            outlines.append(outline)
    if not outlines:
        raise SourceError(
            f"{path} (planted.cutouts) has nothing to cut out: a thing needs one polygon or run "
            f"lengths, {MIN_SIDE} pixels, and a category that is a noun in lower case other than "
            f"{', '.join(PLURALS)}"
        )
    if not outlines[0].path.exists():
        raise SourceError(
            f"{outlines[0].path} is not there: the photographs lie beside {path} (planted.cutouts)"
        )
    return Outlines(tuple(outlines), _list_nouns(annotations.annotations, paths, nouns))


def _list_nouns(
    records: Iterable[Mapping[str, object]], paths: Mapping[int, Path], nouns: Mapping[int, str]
) -> dict[str, frozenset[str]]:
    """Return the categories annotated in each photograph, those that cannot be cut out too."""
    found: dict[str, set[str]] = {}
    for record in records:
        image, category = record.get("image_id"), record.get("category_id")
        if not isinstance(image, int) or not isinstance(category, int):
            continue
        if image in paths and category in nouns:
            found.setdefault(paths[image].name, set()).add(nouns[category])
    return {name: frozenset(names) for name, names in found.items()}


def _read_file(path: str) -> bytes:
    try:
        size = Path(path).stat().st_size
        if size > MAX_FILE_BYTES:
            raise SourceError(f"{path} (planted.cutouts) has {size:,} of {MAX_FILE_BYTES:,} bytes")
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(f"{path} (planted.cutouts) cannot be read: {error.strerror}") from error


def is_inside(name: str) -> bool:
    """Return whether a relative file name stays in its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _read_outline(
    record: Mapping[str, object], paths: Mapping[int, Path], nouns: Mapping[int, str]
) -> Outline | None:
    """Return a usable outline; ``None``: several polygons, a crowd, too small, no noun."""
    try:
        annotation = _CocoThing.model_validate(record)
    except ValidationError:
        return None
    noun = nouns.get(annotation.category_id, "")
    path = paths.get(annotation.image_id)
    if path is None or not NOUN.fullmatch(noun) or noun in PLURALS:
        return None
    if annotation.iscrowd or max(annotation.bbox[2:]) < MIN_SIDE:
        return None
    segmentation = annotation.segmentation
    if isinstance(segmentation, _CocoRuns):
        return Outline(path, noun, counts=tuple(segmentation.counts), shape=segmentation.size)
    if len(segmentation) != 1:
        return None
    points = segmentation[0]
    if len(points) < FEWEST_NUMBERS or len(points) % 2 or not all(map(isfinite, points)):
        return None
    return Outline(path, noun, points=tuple(points))
