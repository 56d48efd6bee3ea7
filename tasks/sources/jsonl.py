"""Read images, or pairs of them, from manifests: JSON Lines, JSON lists or CSV that name images.

A line looks like ``{"image": "a.jpg", "caption": "A dog."}``. Its fields, all optional but the
first:

* ``image``, ``image_path``, ``file_name``, ``path`` or ``images``: a path below ``reading.images``
  or, if unset, the manifest's folder, relative or absolute; never an address, never outside that
  folder;
* ``caption``, ``captions`` and ``text``, or the field named by ``reading.caption_column``: a text
  or a list of texts;
* ``licence`` or ``license``, ``group`` (images of one group go to the same split), ``split``,
  ``id``.

A file may be gzipped. The fields of a CSV are its heads, in any case and with spaces or
underscores; its columns are separated by commas, semicolons or tabs. If its first line has the name
of an image there are no heads: columns that name images that exist are the images, and the only one
with words is the text; so are columns under other heads. All manifests of a folder are read (JSON
Lines, if there are any); a line without ``split`` belongs to the split that its file is
named after.

Two images, as a list, as ``image1`` and ``image2``, ``before`` and ``after`` or as ``pre_image``
and ``post_image`` (RSCC's ``RSCC_qvq.jsonl``), are a pair, in the source's own order. A manifest of
pairs has its own kind, ``jsonl-pairs``; without a kind, the first line with images decides. As
``jsonl``, a line with two images gives both and no pair; as ``jsonl-pairs``, a line with one image
is dropped. A pair may have:

* ``difference``, ``differences``, ``sentence``, ``sentences``, ``description`` or
  ``change_caption``, and likewise ``caption``, ``captions`` and ``text`` (or the field named by
  ``reading.caption_column``): people's texts about the difference, one or a list. With them,
  ``differences.writer`` is ``given`` unless it is set;
* ``caption1`` and ``caption2``: captions of the first and of the second image;
* ``instruction``: the edit that turned the first image into the second;
* ``change_types``: one or several; ``no_change``: true if nothing changed (or the single type
  ``no_change``), so that the images may be identical. Otherwise two equal images are dropped;
* ``source`` and ``scene``: pairs of one scene are one group.

The kind ``omnidiff`` reads the same lines: OmniDiff's published format was not known when this was
written.

An item's key hashes the content of its line and the sizes and times of its images, not its
position. An invalid line is a dropped item; a field beside the image that cannot be used costs the
field only, and the image has a remark. Local disks only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources import annotations
from pairwright.tasks.sources.annotations import CAPTIONS, Record, read_texts, read_word
from pairwright.tasks.sources.layouts import AnnotatedItem, DatasetLayout, Listed, layout_reader
from pairwright.tasks.sources.manifests import ALL_ENDINGS, GZIPPED, LINES, stream_records
from pairwright.tasks.sources.read_entry import EXTENSIONS, EntryMetadata, path_below
from pairwright.tasks.sources.reader import RefusedEntryError

IMAGES = ("image", "image_path", "file_name", "path", "images")
PAIRS = (
    *(("image1", "image2"), ("image_1", "image_2"), ("image_a", "image_b"), ("img1", "img2")),
    *(("before", "after"), ("before_image", "after_image"), ("image_before", "image_after")),
    *(("pre_image", "post_image"), ("first", "second"), ("first_image", "second_image")),
)
OTHER_FIELDS = (
    *("caption1", "caption2", "instruction", "change_types", "no_change", "source", "scene"),
    *("licence", "license", "group", "split", "id", "conversations"),
)
"""Fields that hold neither images nor texts about a difference."""
TURNS = "conversations"
"""Field of conversations about images, which other readers read."""
DIFFERENCES = (
    *("difference", "differences", "change_caption", "sentence", "sentences", "description"),
)
LINE_ENDINGS = (*LINES, *(f"{ending}{GZIPPED}" for ending in LINES))
LOOKED_AT = 100
"""Lines read to recognise a manifest, and to tell pairs from images."""
MAX_SPLITS = 50
"""Maximum names of splits in a message."""


def _count_images(path: Path, folder: Path) -> tuple[int, str]:
    """Return the number of images in the first record with any, of the first 100.

    0: none has, and why not, by the first record.
    """
    fault = ""
    for place, record in islice(stream_records(path), LOOKED_AT):
        try:
            if isinstance(record, RefusedEntryError):
                raise record
            if TURNS in record:
                return 0, f"{place}: holds a conversation"
            return len(_images(_with_plain_names(record), folder)), ""
        except RefusedEntryError as refused:
            fault = fault or f"{place}: {refused}"
    return 0, fault


def _has_texts(path: str) -> bool:
    """Return whether one of a local manifest's first pairs has a text about its difference."""
    root = Path(path)
    if "://" in path or not root.exists():
        return False
    files = [root]
    if root.is_dir():
        files = [file for file in root.iterdir() if file.name.lower().endswith(ALL_ENDINGS)]
    return any(_has_text(file) for file in files)


def _has_text(path: Path) -> bool:
    for _, record in islice(stream_records(path), LOOKED_AT):
        is_record = not isinstance(record, RefusedEntryError)
        if is_record and _texts_about_pair(_with_plain_names(record), CAPTIONS, []):
            return True
    return False


def _is_manifest(path: str, *, images: int) -> bool:
    """Return whether a path has a manifest's extension and lines with this many images.

    A missing file counts as one image.
    """
    if not path.lower().endswith(ALL_ENDINGS):
        return False
    is_lines = path.lower().endswith(LINE_ENDINGS)
    if "://" in path or not Path(path).is_file():
        return is_lines
    try:
        count, _ = _count_images(Path(path), Path(path).parent)
    except SourceError:
        count = 0
    return (max(1, count) if is_lines else count) == images


def _list_manifests(layout: DatasetLayout, *, pairs: bool) -> Iterator[Listed]:
    requested = layout.reading.splits
    splits: set[str] = set()
    for path in _find_manifests(layout):
        _check_manifest(path, layout.images)
        file_split = "" if path == layout.root else path.name.partition(".")[0]
        for place, record in stream_records(path):
            name = f"{path.name} {place}"
            if isinstance(record, RefusedEntryError):
                yield name, record, ""
                continue
            split = read_word(record, ["split"], []) or file_split
            if split and (split in requested or len(splits) < MAX_SPLITS):
                splits.add(split)
            if not requested or split in requested:
                yield name, partial(_entry, record, layout, pairs=pairs), split
    layout.choose_splits(sorted(splits))


def _find_manifests(layout: DatasetLayout) -> list[Path]:
    """Return the manifests of a source: in a folder, JSON Lines rather than others."""
    paths = layout.find_manifests(ALL_ENDINGS)
    lines = [path for path in paths if path.name.lower().endswith(LINE_ENDINGS)]
    return lines or paths


def _check_manifest(path: Path, folder: Path) -> None:
    count, fault = _count_images(path, folder)
    if not count:
        raise SourceError(
            f"{path}: is not a manifest: none of its first {LOOKED_AT} lines is a JSON object "
            f"with the path of an image in {', '.join(IMAGES)}, or image1 and image2 "
            f"({fault or 'it is empty'})"
        )


def _entry(record: Record, layout: DatasetLayout, *, pairs: bool) -> AnnotatedItem:
    record = _with_plain_names(record)
    images = _images(record, layout.images)
    if len(images) > 2:
        raise RefusedEntryError("more than two images", " ".join(images[:9]))
    if pairs and len(images) < 2:
        raise RefusedEntryError("not a pair", " ".join(images[:9]))
    remarks: list[str] = []
    read_word(record, ["split"], remarks)
    name = read_word(record, ["id"], remarks) or " ".join(images)
    fields = (layout.reading.caption_column,) if layout.reading.caption_column else CAPTIONS
    group = _group(record, remarks)
    licence = read_word(record, annotations.LICENCES, remarks)
    metadata = EntryMetadata(licence=licence, group=group)
    caption_fields: list[Sequence[str]] = [fields]
    if len(images) == 2:
        caption_fields = [["caption1"], ["caption2"]]
        metadata = _pair_metadata(record, metadata, fields, remarks)
    captions = tuple(read_texts(record, names, remarks) for names in caption_fields)
    return AnnotatedItem(
        name=name,
        images=images,
        captions=captions,
        metadata=metadata,
        remarks=tuple(remarks),
    )


def _pair_metadata(
    record: Record, metadata: EntryMetadata, fields: Sequence[str], remarks: list[str]
) -> EntryMetadata:
    """Return the metadata of a pair: how it differs, and what people wrote about that."""
    instruction = " ".join(read_texts(record, ["instruction"], remarks))
    types = read_texts(record, ["change_types"], remarks)
    return replace(
        metadata,
        origin="edit" if instruction else "given",
        human_differences=_texts_about_pair(record, fields, remarks),
        instruction=instruction,
        change_types=types,
        may_be_identical=record.get("no_change") is True or types == ("no_change",),
    )


def _texts_about_pair(record: Record, fields: Sequence[str], remarks: list[str]) -> tuple[str, ...]:
    """Return people's texts about a pair: of the known fields, or of the only one with words."""
    names = [*DIFFERENCES, *fields]
    known = {*names, *IMAGES, *OTHER_FIELDS, *(name for pair in PAIRS for name in pair)}
    if not any(record.get(name) for name in names):
        others = {name: value for name, value in record.items() if name not in known}
        worded = {value: name for name, value in others.items() if _has_words(value)}
        if len(worded) == 1:
            names = list(worded.values())
    return read_texts(record, names, remarks)


def _has_words(value: object) -> bool:
    return isinstance(value, str) and " " in value.strip() and not _names_image(value)


def _names_image(value: object) -> bool:
    """Return whether a value ends like the name of an image file."""
    return isinstance(value, str) and Path(value.strip().lower()).suffix in EXTENSIONS


def _with_plain_names(record: Record) -> Record:
    """Return a record that has each field in small letters with underscores, too."""
    plain = {"_".join(name.lower().split()): value for name, value in record.items()}
    return {**plain, **record}


def _group(record: Record, remarks: list[str]) -> str:
    """Return a record's group: the stated one, or its source and scene."""
    source = read_word(record, ["source"], remarks)
    scene = read_word(record, ["scene"], remarks)
    group = read_word(record, ["group"], remarks)
    if group or not scene:
        return group
    return f"{source}/{scene}" if source else scene


def _images(record: Record, folder: Path) -> tuple[str, ...]:
    for pair in PAIRS:
        if all(field in record for field in pair):
            return tuple(path_below(record[field], folder) for field in pair)
    for field in IMAGES:
        value = record.get(field)
        if value:
            paths = value if isinstance(value, list) else [value]
            return tuple(path_below(path, folder) for path in paths)
    paths = dict.fromkeys(filter(_names_image, record.values()))
    existing = [path for path in paths if _exists(path, folder)]
    if 1 <= len(existing) <= 2:
        return tuple(path_below(path, folder) for path in existing)
    raise RefusedEntryError("names no image")


def _exists(path: str, folder: Path) -> bool:
    try:
        return (folder / path_below(path, folder)).is_file()
    except (RefusedEntryError, OSError):
        return False


READER = layout_reader(
    partial(_list_manifests, pairs=False),
    kind="jsonl",
    about="a manifest: JSON Lines, JSON or CSV with paths of images and captions",
    example="jsonl:manifest.jsonl",
    details=__doc__ or "",
    recognises=partial(_is_manifest, images=1),
)
PAIRS_READER = layout_reader(
    partial(_list_manifests, pairs=True),
    kind="jsonl-pairs",
    about="a manifest of pairs: lines with two images, and differences or an edit instruction",
    example="jsonl-pairs:pairs.jsonl",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=partial(_is_manifest, images=2),
    has_texts=_has_texts,
)
OMNIDIFF = replace(
    PAIRS_READER,
    kind="omnidiff",
    about="pairs with captions, change types and scenes, as JSON Lines in our own format",
    example="omnidiff:omnidiff",
    recognises=lambda _: False,
)
