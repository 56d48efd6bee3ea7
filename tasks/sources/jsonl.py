"""Read images, or pairs of them, from a manifest: a file of JSON Lines, each line an object that names an image.

A line looks like ``{"image": "a.jpg", "caption": "A dog."}``. Its fields, each optional but the first:

* ``image``, ``image_path``, ``file_name``, ``path`` or ``images``: a path below ``reading.images`` or, without it, the
  manifest's folder; never an address, and never outside of that folder;
* ``caption``, ``captions`` and ``text``, or the field that ``reading.caption_column`` names: a text or a list of texts;
* ``licence`` or ``license``, ``group`` (images of one group go to the same split), ``split``, ``id``.

Two images, as a list or as ``image1`` and ``image2``, are a pair, in the source's own order. What a source brings
decides which stages run, before it is read, so that a manifest of pairs has a kind of its own, ``jsonl-pairs``; where
no kind is given, the first line that names images tells. Read as ``jsonl``, a line of two images gives both and no
pair; read as ``jsonl-pairs``, a line of one image is dropped. A pair may have:

* ``difference`` or ``differences``, and likewise ``caption``, ``captions`` and ``text`` (or the field that
  ``reading.caption_column`` names): what people wrote about the difference, one text or a list;
* ``caption1`` and ``caption2``: captions of the first and of the second image;
* ``instruction``: the edit that made the second image of the first;
* ``no_change``: true where nothing changed, so that the images may be the same. Two equal images are dropped otherwise.

Lists ``ItemRow`` from the lines and from the sizes and times of the images that they name; an item's key hashes these
and what its line says, not where the line stands. A line that makes no sense is a dropped item. Local disks only.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ItemRow, PairRow
from pairwright.tasks.sources.annotations import (
    CAPTIONS,
    LICENCES,
    Record,
    check_texts,
    check_word,
    parse_record,
    read_lines,
)
from pairwright.tasks.sources.layouts import Entry, Layout, checked, list_entries, read_entries
from pairwright.tasks.sources.read_entry import RefusedEntryError, check_path
from pairwright.tasks.sources.reader import Read, Reader

IMAGES = ("image", "image_path", "file_name", "path", "images")
PAIRS = (("image1", "image2"), ("image_1", "image_2"))
CAPTIONS_OF = (("caption1", "captions1", "caption_1"), ("caption2", "captions2", "caption_2"))
DIFFERENCES = ("difference", "differences")
ENDINGS = (".jsonl", ".ndjson")
LOOKED_AT = 100
"""Lines that are looked at to tell a manifest from another file, and one of pairs from one of images."""
MAX_SPLITS = 50
"""Names of splits that a message lists."""


def list_lines(config: SourceConfig, limit: int | None, *, pairs: bool = False) -> Iterator[ItemRow]:
    """Yield an item per line of the manifest, the first ``limit`` of them.

    Raises:
        SourceError: there is no manifest, none of its first lines names an image, or a split is not there.
    """
    if "://" not in config.path and not Path(config.path).is_file():
        found = "is no file" if Path(config.path).exists() else "there is no such file"
        raise SourceError(f"{config.path}: {found}; give a manifest, as in {READER.example}")
    return list_entries(partial(_entries, pairs=pairs), config, limit)


def read_named(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the image that a line names, or two and their pair, or why there is none."""
    for item in items:
        # Where there is an instruction, the second image was made of the first.
        origin = "edit" if json.loads(item.locator).get("instruction") else "given"
        yield from read_entries([item], config, origin=origin)


def _count_images(path: Path) -> int:
    """Return how many images the first line that names any has, of the first 100 lines; 0: none does."""
    for _, line in islice(read_lines(path), LOOKED_AT):
        try:
            return len(_images(parse_record(line)))
        except RefusedEntryError:
            continue
    return 0


def _is_manifest(path: str, *, images: int) -> bool:
    """Say whether a path ends like a manifest, and its lines name so many images; one that is missing names one."""
    if not path.lower().endswith(ENDINGS):
        return False
    return "://" in path or not Path(path).is_file() or max(1, _count_images(Path(path))) == images


def _entries(layout: Layout, *, pairs: bool) -> Iterator[Entry]:
    if not _count_images(layout.root):
        raise SourceError(
            f"{layout.root}: is no manifest: none of its first {LOOKED_AT} lines is a JSON object with the path of an "
            f"image in {', '.join(IMAGES)}, or image1 and image2"
        )
    wanted, there = layout.reading.splits, set[str]()
    for number, line in read_lines(layout.root):
        try:
            record = parse_record(line)
            split = check_word(record, "split")
        except RefusedEntryError as refused:
            yield Entry(name=f"line {number}", refused=refused.reason, detail=refused.detail)
            continue
        if split and (split in wanted or len(there) < MAX_SPLITS):
            there.add(split)
        if not wanted or split in wanted:
            yield checked(f"line {number}", partial(_entry, record, layout, pairs=pairs))
    layout.choose_splits(sorted(there))


def _entry(record: Record, layout: Layout, *, pairs: bool) -> Entry:
    images = _images(record)
    if len(images) > 2 or (pairs and len(images) < 2):
        raise RefusedEntryError("more than two images" if len(images) > 2 else "not a pair", " ".join(images[:9]))
    is_pair = len(images) == 2
    captions = (layout.reading.caption_column,) if layout.reading.caption_column else CAPTIONS
    return Entry(
        name=check_word(record, "id") or " ".join(images),
        images=images,
        texts=_texts(record, *(DIFFERENCES if is_pair else ()), *captions),
        captions=tuple(_texts(record, *fields) for fields in CAPTIONS_OF) if is_pair else (),
        licence=check_word(record, *LICENCES),
        instruction=" ".join(_texts(record, "instruction")) if is_pair else "",
        group=check_word(record, "group"),
        no_change=is_pair and record.get("no_change") is True,
    )


def _images(record: Record) -> tuple[str, ...]:
    """Return the paths that a record names, each below its folder as it is written."""
    for fields in PAIRS:
        if all(field in record for field in fields):
            return tuple(check_path(record[field]) for field in fields)
    for field in IMAGES:
        if value := record.get(field):
            return tuple(check_path(path) for path in (value if isinstance(value, list) else [value]))
    raise RefusedEntryError("names no image")


def _texts(record: Record, *fields: str) -> tuple[str, ...]:
    found = [text for field in fields if record.get(field) is not None for text in check_texts(record[field])]
    return tuple(dict.fromkeys(found))


READER = Reader(
    kind="jsonl",
    about="a manifest: JSON Lines that name images, with captions",
    example="jsonl:manifest.jsonl",
    details=__doc__ or "",
    list_items=list_lines,
    read_items=read_named,
    recognises=partial(_is_manifest, images=1),
)
PAIRS_READER = Reader(
    kind="jsonl-pairs",
    about="a manifest of pairs: JSON Lines that name two images, with differences or an edit instruction",
    example="jsonl-pairs:pairs.jsonl",
    details=__doc__ or "",
    list_items=partial(list_lines, pairs=True),
    read_items=read_named,
    brings=(PairRow,),
    recognises=partial(_is_manifest, images=2),
)
