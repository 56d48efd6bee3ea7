"""Read pairs of images as people keep them: two folders with equal file names, or one sample.

``folder-pairs``: two folders, such as ``before`` and ``after`` or ``A`` and ``B``, also in folders
of splits (``train/A``, ``train/B``), whose images are paired by their paths without the ending. A
folder ``label``, ``labels``, ``mask`` or ``masks`` beside them holds images that are bright where
something changed: they become the pair's ``change_mask``, and a mask without a bright pixel states
that nothing changed. LEVIR-CC's and LEVIR-CD's layouts are of this form; LEVIR-CC's captions are
read from ``LevirCCcaptions.json``. Folders of other names are named with ``reading.folders``; where
there are only two, they are taken in the order of their names.

``golden``: a folder of images, each of which is paired with the one image ``reading.golden``, the
golden sample, and not with each other. All pairs share it, so all are in one split.

An image without a partner is a dropped item that names the missing file. Local disks only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ItemRow, PairRow
from pairwright.tasks.sources import folder
from pairwright.tasks.sources.annotations import check_record, load_json, read_texts
from pairwright.tasks.sources.find_files import walk_files
from pairwright.tasks.sources.layouts import AnnotatedItem, DatasetLayout, Listed, layout_reader
from pairwright.tasks.sources.read_entry import (
    EXTENSIONS,
    MISSING,
    SPLITS,
    EntryMetadata,
    SourceImage,
    read_file,
    read_pair,
    size_and_time,
)
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    SourceRow,
    escape_name,
    list_item,
    locate,
    read_one,
)

NAMES = (
    ("before", "after"),
    ("a", "b"),
    ("pre", "post"),
    ("t1", "t2"),
    ("time1", "time2"),
    ("im1", "im2"),
    ("image1", "image2"),
    ("first", "second"),
    ("reference", "test"),
)
"""Usual names of the two folders, in small letters."""
MASKS = ("label", "labels", "mask", "masks")
CAPTIONS = "LevirCCcaptions.json"


def _find_pair(root: Path, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the two folders of images directly below a folder; ``None``: there are no such."""
    folders = {path.name: path for path in root.iterdir() if path.is_dir()}
    if names:
        first, second = names
        return (first, second) if first in folders and second in folders else None
    by_name = {name.lower(): name for name in sorted(folders, reverse=True)}
    for first, second in NAMES:
        if first in by_name and second in by_name:
            return by_name[first], by_name[second]
    return None


def _find_bases(root: Path, names: Sequence[str]) -> list[str]:
    """Return the folders that hold two folders of images: the root, or folders of splits."""
    if _find_pair(root, names):
        return [""]
    bases: list[str] = []
    for parent in ("", "images/", "data/"):
        if not (root / parent).is_dir():
            continue
        for path in sorted((root / parent).iterdir()):
            if path.is_dir() and _find_pair(path, names):
                bases.append(f"{parent}{path.name}/")
        if not bases and parent and _find_pair(root / parent, names):
            bases.append(parent)
        if bases:
            return bases
    return []


def _two_folders(root: Path) -> tuple[str, str] | None:
    """Return the only two folders below a folder that are no masks and no splits."""
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name[0] != ".")
    others = [name for name in names if name.lower() not in (*MASKS, *SPLITS)]
    return (others[0], others[1]) if len(others) == 2 else None


def _list_pairs(layout: DatasetLayout) -> Iterator[Listed]:
    names = layout.reading.folders
    if len(names) not in (0, 2):
        raise SourceError(f"{layout.root}: reading.folders needs two names, not {len(names)}")
    bases = _find_bases(layout.images, names)
    chosen = tuple(names)
    if not bases and not names:
        chosen = _two_folders(layout.images) or ()
        bases = [""] if chosen else []
    if not bases:
        raise SourceError(
            f"{layout.images}: has no two folders of images to pair (before and after, A and B); "
            "name them with --set reading.folders=[FIRST,SECOND]"
        )
    captions = _load_captions(layout.root / CAPTIONS)
    splits = {base: base.rstrip("/").rpartition("/")[2] for base in bases if base}
    available = [split for split in splits.values() if split.lower() in SPLITS]
    wanted = layout.choose_splits(available)
    for base in bases:
        split = splits.get(base, "")
        if available and split not in wanted:
            continue
        pair = chosen or _find_pair(layout.images / base, ())
        assert pair is not None
        split = split if split.lower() in SPLITS else ""
        yield from _list_base(layout.images, base, pair, split=split, captions=captions)


def _list_base(
    root: Path,
    base: str,
    pair: Sequence[str],
    *,
    split: str,
    captions: Mapping[str, Mapping[str, Any]],
) -> Iterator[Listed]:
    """Yield the pairs of two folders, in the order of their names."""
    first, second = (_images_by_stem(root / base / name) for name in pair)
    masks: dict[str, str] = {}
    for name in sorted(path.name for path in (root / base).iterdir() if path.is_dir()):
        if name.lower() in MASKS:
            inside = _images_by_stem(root / base / name)
            masks |= {stem: f"{base}{name}/{file}" for stem, file in inside.items()}
    for stem in sorted({*first, *second}):
        name = f"{base}{stem}"
        if stem not in first or stem not in second:
            folder_name = pair[0] if stem not in first else pair[1]
            yield name, RefusedEntryError(MISSING, f"no {base}{folder_name}/{stem}.*"), split
            continue
        images = (f"{base}{pair[0]}/{first[stem]}", f"{base}{pair[1]}/{second[stem]}")
        record = captions.get(Path(first[stem]).name, {})
        listed_split = split or str(record.get("split", ""))
        yield name, partial(_make_pair, name, images, masks.get(stem, ""), record), listed_split


def _images_by_stem(root: Path) -> dict[str, str]:
    """Return the images below a folder by their paths without the ending."""
    images: dict[str, str] = {}
    for name in sorted(walk_files(root)):
        stem, dot, _ = name.rpartition(".")
        if dot and name.lower().endswith(EXTENSIONS):
            images.setdefault(stem, name)
    return images


def _make_pair(
    name: str, images: tuple[str, str], mask: str, record: Mapping[str, Any]
) -> AnnotatedItem:
    remarks: list[str] = []
    texts: list[str] = []
    sentences = record.get("sentences")
    if isinstance(sentences, list):
        for sentence in sentences:
            if isinstance(sentence, Mapping):
                texts += read_texts(sentence, ["raw"], remarks)
    is_unchanged = record.get("changeflag") == 0
    metadata = EntryMetadata(
        human_differences=tuple(texts),
        change_types=("no_change",) if is_unchanged else (),
        may_be_identical=is_unchanged,
    )
    return AnnotatedItem(
        name=name, images=images, metadata=metadata, mask=mask, remarks=tuple(remarks)
    )


def _load_captions(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return LEVIR-CC's records by the names of their files; empty without the file."""
    if not path.is_file():
        return {}
    records: dict[str, Mapping[str, Any]] = {}
    images = load_json(path, dict).get("images")
    for value in images if isinstance(images, list) else []:
        try:
            record = check_record(value)
        except RefusedEntryError:
            continue
        records[str(record.get("filename", ""))] = record
    return records


def _recognises(path: str) -> bool:
    root = Path(path)
    if "://" in path or not root.is_dir():
        return False
    try:
        has_images = any(entry.name.lower().endswith(EXTENSIONS) for entry in root.iterdir())
        return not has_images and bool(_find_bases(root, ()))
    except OSError:
        return False


FOLDER_PAIRS = layout_reader(
    _list_pairs,
    kind="folder-pairs",
    has_texts=lambda path: (Path(path) / CAPTIONS).is_file(),
    about="two folders of images paired by file name (before and after, A and B), with masks",
    example="folder-pairs:SURVEY",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=_recognises,
)


def _list_golden(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield each image of the folder with the golden sample's size and time."""
    golden = _golden_path(config)
    size, time_ns = size_and_time(golden.parent, golden.name)
    count = 0
    for item in folder.list_items(config):
        locator = locate(item)
        if count == limit:
            return
        if (Path(config.path) / locator["path"]).resolve() == golden.resolve():
            continue
        count += 1
        locator["golden"] = [golden.name, size, time_ns]
        yield list_item("golden", item.name, locator)
    if not count and limit != 0:
        raise SourceError(f"{config.path}: has no image beside the golden sample {golden}")


def _golden_path(config: SourceConfig) -> Path:
    path = Path(config.reading.golden)
    if not config.reading.golden or not path.is_file():
        raise SourceError(
            f"reading.golden: {config.reading.golden or 'not set'}: no such file; give the image "
            "that each is paired with: --golden FILE"
        )
    return path


def _read_golden(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    for item in items:
        yield from read_one(item, _read_golden_pair, config)


def _read_golden_pair(item: ItemRow, config: SourceConfig) -> list[SourceRow]:
    locator = locate(item)
    golden = _golden_path(config)
    sample = SourceImage(
        data=read_file(golden, config.images, locator["golden"][1:]),
        name=escape_name(golden.name),
    )
    picture, metadata = folder.read_picture(item, config)
    # Parts of the sample differ from pair to pair: its name keeps them in one split.
    group = sample.name if config.cuts_pairs else ""
    return [*read_pair(item, [sample, picture], config, replace(metadata, group=group))]


GOLDEN = Reader(
    kind="golden",
    about="a folder of images, each paired with one golden sample (--golden FILE)",
    example="golden:BOARDS --golden good.png",
    details=__doc__ or "",
    list_items=_list_golden,
    read_items=_read_golden,
    brings=(PairRow,),
)
