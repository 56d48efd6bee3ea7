"""Read images, or pairs of them, from manifests: JSON Lines of objects that name images.

A line looks like ``{"image": "a.jpg", "caption": "A dog."}``. Its fields, all optional but the
first:

* ``image``, ``image_path``, ``file_name``, ``path`` or ``images``: a path below ``reading.images``
  or, if unset, the manifest's folder; never an address, never outside that folder;
* ``caption``, ``captions`` and ``text``, or the field named by ``reading.caption_column``: a text
  or a list of texts;
* ``licence`` or ``license``, ``group`` (images of one group go to the same split), ``split``,
  ``id``.

All manifests of a folder are read; a line without ``split`` belongs to the split that its file is
named after.

Two images, as a list or as ``image1`` and ``image2``, are a pair, in the source's own order. A
manifest of pairs has its own kind, ``jsonl-pairs``; without a kind, the first line with images
decides. As ``jsonl``, a line with two images gives both and no pair; as ``jsonl-pairs``, a line
with one image is dropped. A pair may have:

* ``difference`` or ``differences``, and likewise ``caption``, ``captions`` and ``text`` (or the
  field named by ``reading.caption_column``): people's texts about the difference, one or a list;
* ``caption1`` and ``caption2``: captions of the first and of the second image;
* ``instruction``: the edit that turned the first image into the second;
* ``change_types``: one or several; ``no_change``: true if nothing changed (or the single type
  ``no_change``), so that the images may be identical. Otherwise two equal images are dropped;
* ``source`` and ``scene``: pairs of one scene are one group.

The kind ``omnidiff`` reads the same lines: OmniDiff's published format was not known when this was
written.

An item's key hashes the content of its line and the sizes and times of its images, not its
position. An invalid line is a dropped item. Local disks only.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources import annotations
from pairwright.tasks.sources.annotations import (
    CAPTIONS,
    Record,
    check_texts,
    check_word,
    parse_record,
)
from pairwright.tasks.sources.layouts import AnnotatedItem, DatasetLayout, Listed, layout_reader
from pairwright.tasks.sources.read_entry import EntryMetadata, check_path
from pairwright.tasks.sources.reader import RefusedEntryError

IMAGES = ("image", "image_path", "file_name", "path", "images")
PAIR = ("image1", "image2")
DIFFERENCES = ("difference", "differences")
ENDINGS = (".jsonl", ".ndjson")
LOOKED_AT = 100
"""Lines read to recognise a manifest, and to tell pairs from images."""
MAX_SPLITS = 50
"""Maximum names of splits in a message."""


def _count_images(path: Path) -> int:
    """Return the number of images in the first line with any, of the first 100; 0: none has."""
    for _, line in islice(annotations.stream_lines(path), LOOKED_AT):
        try:
            return len(_images(parse_record(line)))
        except RefusedEntryError:
            continue
    return 0


def _is_manifest(path: str, *, images: int) -> bool:
    """Return whether a path has a manifest's extension and lines with this many images.

    A missing file counts as one image.
    """
    if not path.lower().endswith(ENDINGS):
        return False
    if "://" in path or not Path(path).is_file():
        return True
    return max(1, _count_images(Path(path))) == images


def _list_manifests(layout: DatasetLayout, *, pairs: bool) -> Iterator[Listed]:
    requested = layout.reading.splits
    splits: set[str] = set()
    for path in layout.find_lines():
        _check_manifest(path)
        file_split = "" if path == layout.root else path.stem
        for number, line in annotations.stream_lines(path):
            name = f"{path.name} line {number}"
            try:
                record = parse_record(line)
                split = check_word(record, "split") or file_split
            except RefusedEntryError as refused:
                yield name, refused, ""
                continue
            if split and (split in requested or len(splits) < MAX_SPLITS):
                splits.add(split)
            if not requested or split in requested:
                yield name, partial(_entry, record, layout, pairs=pairs), split
    layout.choose_splits(sorted(splits))


def _check_manifest(path: Path) -> None:
    if not _count_images(path):
        raise SourceError(
            f"{path}: is not a manifest: none of its first {LOOKED_AT} lines is a JSON object "
            f"with the path of an image in {', '.join(IMAGES)}, or image1 and image2"
        )


def _entry(record: Record, layout: DatasetLayout, *, pairs: bool) -> AnnotatedItem:
    images = _images(record)
    if len(images) > 2:
        raise RefusedEntryError("more than two images", " ".join(images[:9]))
    if pairs and len(images) < 2:
        raise RefusedEntryError("not a pair", " ".join(images[:9]))
    name = check_word(record, "id") or " ".join(images)
    fields = (layout.reading.caption_column,) if layout.reading.caption_column else CAPTIONS
    group = _group(record)
    metadata = EntryMetadata(licence=check_word(record, *annotations.LICENCES), group=group)
    if len(images) == 1:
        captions = (_texts(record, *fields),)
        return AnnotatedItem(name=name, images=images, captions=captions, metadata=metadata)
    instruction = " ".join(_texts(record, "instruction"))
    types = _texts(record, "change_types")
    metadata = replace(
        metadata,
        origin="edit" if instruction else "given",
        human_differences=_texts(record, *DIFFERENCES, *fields),
        instruction=instruction,
        change_types=types,
        may_be_identical=record.get("no_change") is True or types == ("no_change",),
    )
    captions = (_texts(record, "caption1"), _texts(record, "caption2"))
    return AnnotatedItem(name=name, images=images, captions=captions, metadata=metadata)


def _group(record: Record) -> str:
    """Return a record's group: the stated one, or its source and scene."""
    source = check_word(record, "source")
    scene = check_word(record, "scene")
    group = check_word(record, "group")
    if group or not scene:
        return group
    return f"{source}/{scene}" if source else scene


def _images(record: Record) -> tuple[str, ...]:
    if all(field in record for field in PAIR):
        return tuple(check_path(record[field]) for field in PAIR)
    for field in IMAGES:
        value = record.get(field)
        if value:
            paths = value if isinstance(value, list) else [value]
            return tuple(map(check_path, paths))
    raise RefusedEntryError("names no image")


def _texts(record: Record, *fields: str) -> tuple[str, ...]:
    """Return the distinct texts of these fields."""
    texts: list[str] = []
    for field in fields:
        if record.get(field) is not None:
            texts += check_texts(record[field])
    return tuple(dict.fromkeys(texts))


READER = layout_reader(
    partial(_list_manifests, pairs=False),
    kind="jsonl",
    about="a manifest: JSON Lines with paths of images and captions",
    example="jsonl:manifest.jsonl",
    details=__doc__ or "",
    recognises=partial(_is_manifest, images=1),
)
PAIRS_READER = layout_reader(
    partial(_list_manifests, pairs=True),
    kind="jsonl-pairs",
    about="a manifest of pairs: JSON Lines with two images, and differences or an edit instruction",
    example="jsonl-pairs:pairs.jsonl",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=partial(_is_manifest, images=2),
)
OMNIDIFF = replace(
    PAIRS_READER,
    kind="omnidiff",
    about="pairs with captions, change types and scenes, as JSON Lines in our own format",
    example="omnidiff:omnidiff",
    recognises=lambda _: False,
)
