"""Read the metadata of an ``imagefolder``: captions beside images, as Hugging Face's loader has.

A folder of images may have ``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet``, also in
its subfolders; ``file_name`` is the path of an image below the file's own folder. Captions,
licence and group have the names that manifests use.
"""

import logging
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.config import SourceConfig
from pairwright.tasks.sources.annotations import CAPTIONS, LICENCES, read_texts, read_word
from pairwright.tasks.sources.manifests import stream_records
from pairwright.tasks.sources.read_entry import check_path
from pairwright.tasks.sources.reader import RefusedEntryError, escape_name

log = logging.getLogger(__name__)
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
NAME = "file_name"


@dataclass(frozen=True, slots=True)
class ImageMetadata:
    """Metadata of one image of a folder."""

    captions: tuple[str, ...]
    licence: str
    group: str
    remarks: tuple[str, ...]


def read_metadata(
    root: Path, names: Iterable[str], config: SourceConfig
) -> dict[str, ImageMetadata]:
    """Return the metadata of images by their paths below ``root``, of the metadata files named."""
    metadata: dict[str, ImageMetadata] = {}
    for name in names:
        if posixpath.basename(name) in METADATA:
            count = len(metadata)
            refused = _read_file(root, name, config, metadata)
            added = len(metadata) - count
            log.info(
                "%s: metadata of %d images, %d lines without a usable %s",
                escape_name(str(root / name)),
                added,
                refused,
                NAME,
            )
    return metadata


def _read_file(
    root: Path, name: str, config: SourceConfig, metadata: dict[str, ImageMetadata]
) -> int:
    """Add the metadata of a file; return the number of its records without a path."""
    caption = config.reading.caption_column
    fields = (caption,) if caption else CAPTIONS
    folder = posixpath.dirname(name)
    refused = 0
    for _, record in stream_records(root / name):
        try:
            if isinstance(record, RefusedEntryError):
                raise record
            path = check_path(record.get(NAME))
        except RefusedEntryError:
            refused += 1
            continue
        remarks: list[str] = []
        captions = read_texts(record, fields, remarks)
        metadata[posixpath.normpath(posixpath.join(folder, path))] = ImageMetadata(
            captions=captions,
            licence=read_word(record, LICENCES, remarks),
            group=read_word(record, ["group"], remarks),
            remarks=tuple(remarks),
        )
    return refused
