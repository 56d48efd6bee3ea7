"""Write where images differ as COCO's JSON of object detection, and read it back.

One file per split: ``images``, ``annotations`` with ``bbox`` and uncompressed run lengths as
``segmentation``, ``categories``. An annotation also names its ``pair`` and the ``side`` of its
image. Annotations are written as they come; in memory are the images' names.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.plain_text import to_json_line
from pairwright.schemas.scene import Mask
from pairwright.tasks.export.form import UnheldError, require
from pairwright.tasks.export.paired_row import PairedRow
from pairwright.tasks.images.decode import RefusedImageError, probe_image
from pairwright.tasks.images.masks import box_of, decode_mask, read_runs
from pairwright.tasks.images.regions import Region

COCO = "coco"
"""Folder of the files beside a Parquet export."""
ANY_SIZE = ImagesConfig(min_side=1, max_pixels=2**31)
DAMAGED = "an image cannot be read"


@dataclass(frozen=True, slots=True)
class CocoRecord:
    """Images of a row with the names of their files, and the regions of each."""

    row: PairedRow
    files: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    """Width and height of each image."""
    extra: Mapping[str, Any]
    """Further fields of each annotation."""


def make_record(
    row: PairedRow, files: Sequence[str], extra: Mapping[str, Any] | None = None
) -> CocoRecord:
    """Return the record of a row; ``UnheldError``: an image of it cannot be read."""
    sizes = tuple(size_of(image) for image in row.images)
    return CocoRecord(row, tuple(files), sizes, extra or {})


def size_of(image: bytes) -> tuple[int, int]:
    """Return width and height of an image; ``UnheldError``: it cannot be read."""
    try:
        info = probe_image(image, ANY_SIZE)
    except RefusedImageError as refused:
        raise UnheldError(f"{DAMAGED}: {refused.reason}") from refused
    return info.width, info.height


class CocoFile:
    """One JSON file; beside others it counts no rows, alone its images."""

    def __init__(self, path: Path, *, is_alone: bool = False) -> None:
        """Set the file; ``is_alone``: its images are what is counted."""
        self.rows = 0
        self.size_bytes = 0
        self._path = path
        self._is_alone = is_alone
        self._image_ids: dict[str, int] = {}
        self._images: list[dict[str, Any]] = []
        self._categories: dict[str, int] = {}
        self._annotations: IO[bytes] | None = None
        self._annotation_count = 0

    def write(self, record: CocoRecord) -> None:
        """Write the regions of a row."""
        image_ids = [
            self._find_image(file, size)
            for file, size in zip(record.files, record.sizes, strict=True)
        ]
        for region in record.row.regions or ():
            self._annotate(region, record, image_ids[region.side])

    def _find_image(self, file: str, size: tuple[int, int]) -> int:
        """Return the id of an image, which is listed once."""
        if file not in self._image_ids:
            number = len(self._images) + 1
            self._image_ids[file] = number
            self.rows += self._is_alone
            width, height = size
            self._images.append({"id": number, "file_name": file, "width": width, "height": height})
        return self._image_ids[file]

    def _annotate(self, region: Region, record: CocoRecord, image_id: int) -> None:
        category = self._categories.setdefault(region.label, len(self._categories) + 1)
        self._annotation_count += 1
        x0, y0, x1, y1 = region.box
        annotation = {
            "id": self._annotation_count,
            "image_id": image_id,
            "category_id": category,
            "bbox": [x0, y0, x1 - x0, y1 - y0],
            "area": read_runs(region.mask).area,
            "iscrowd": 0,
            "segmentation": {
                "size": [region.mask.height, region.mask.width],
                "counts": list(region.mask.counts),
            },
            "pair": record.row.subject,
            "side": region.side,
            "other": record.files[1 - region.side],
            **record.extra,
        }
        if self._annotations is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._annotations = self._unfinished.open("wb")
        comma = b",\n" if self._annotation_count > 1 else b""
        self._annotations.write(comma + to_json_line(annotation).encode())

    @property
    def _unfinished(self) -> Path:
        return self._path.with_suffix(".unfinished")

    def close(self) -> None:
        """Complete the file."""
        if self._annotations:
            self._annotations.close()
        if not self._images:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        categories = [{"id": number, "name": name} for name, number in self._categories.items()]
        with self._path.open("wb") as file:
            images = to_json_line(self._images)
            file.write(f'{{"info": {{}}, "licenses": [], "images": {images},\n'.encode())
            file.write(f'"categories": {to_json_line(categories)},\n"annotations": [\n'.encode())
            if self._annotations:
                with self._unfinished.open("rb") as lines:
                    while block := lines.read(1 << 20):
                        file.write(block)
                self._unfinished.unlink()
            file.write(b"\n]}\n")
        self._annotations = None
        self._images = []
        self.size_bytes = self._path.stat().st_size


def check_coco(path: Path, has_image: Callable[[str], bool]) -> Iterator[str]:
    """Check a file of annotations, and yield the name of each image."""
    content = json.loads(path.read_text(encoding="utf-8"))
    images = {image["id"]: image for image in content["images"]}
    categories = {category["id"] for category in content["categories"]}
    for image in images.values():
        require(has_image(image["file_name"]), f"no image {image['file_name']}")
    for annotation in content["annotations"]:
        image = images.get(annotation["image_id"])
        require(image, f"annotation {annotation['id']} is of no image")
        require(annotation["category_id"] in categories, "an annotation has no category")
        height, width = annotation["segmentation"]["size"]
        require(
            image and (width, height) == (image["width"], image["height"]),
            f"the mask of annotation {annotation['id']} has another size than its image",
        )
        counts = tuple(annotation["segmentation"]["counts"])
        pixels = decode_mask(Mask(height=height, width=width, counts=counts))
        x, y, box_width, box_height = annotation["bbox"]
        box = (x, y, x + box_width, y + box_height)
        is_right = pixels.any() and box_of(pixels) == box
        require(is_right, f"the box of annotation {annotation['id']} is not that of its mask")
    for image in images.values():
        yield image["file_name"]
