"""Read Localized Narratives: photographs, each described at length by one or more annotators.

Layout: JSON Lines ``<collection>_localized_narratives[-0000i-of-0000n].jsonl`` in a folder (or one
such file), and the images in ``reading.images``: ``<image_id>.jpg`` (COCO's with twelve digits)
there, in ``images``, or in a folder named like the dataset_id or its last word ("train2017").
Splits are the collections ("coco_train", "open_images_train_v6").

An image is one row with the captions of all its annotators. Its lines may be anywhere in the files,
so all narratives are in memory while listing (a few hundred MB for all collections).

The annotations' licence is CC BY 4.0. The images have their own, per collection or image: set
``images.licence``.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.annotations import check_texts, parse_record, stream_lines
from pairwright.tasks.sources.layouts import AnnotatedItem, DatasetLayout, Listed, layout_reader
from pairwright.tasks.sources.reader import RefusedEntryError

_FILE = re.compile(r"(.+?)_localized_narratives(-\d+-of-\d+)?\.jsonl")
_WORD = re.compile(r"[\w-][\w.-]{0,199}", re.ASCII)
_TRACES = b', "timed_caption":'
"""Start of the part that is not needed. It cannot be inside a text: there a quotation mark follows
a backslash."""
_NEEDED = (b'"dataset_id"', b'"image_id"', b'"caption"')


def _list_photographs(layout: DatasetLayout) -> Iterator[Listed]:
    files: dict[str, list[Path]] = {}
    for path in layout.find_manifests((".jsonl",)):
        match = _FILE.fullmatch(path.name)
        collection = match[1] if match else path.stem
        files.setdefault(collection, []).append(path)
    captions: dict[tuple[str, str], list[str]] = {}
    for split in layout.choose_splits(list(files)):
        for path in files[split]:
            yield from _gather_captions(path, captions)
    folders: dict[str, list[str]] = {}
    # In the order in which the files first name them.
    for (dataset, image), texts in captions.items():
        if dataset not in folders:
            folders[dataset] = _image_folders(layout, dataset)
        entry = partial(_entry, layout, folders[dataset], image, texts)
        yield f"{dataset}/{image}", entry, ""


def _gather_captions(path: Path, captions: dict[tuple[str, str], list[str]]) -> Iterator[Listed]:
    """Add the captions of a file by dataset and image; yield its refused lines."""
    has_narrative = False
    for number, line in stream_lines(path):
        try:
            dataset, image, caption = _narrative(line)
        except RefusedEntryError as refused:
            yield f"{path.name} line {number}", refused, ""
        else:
            has_narrative = True
            texts = captions.setdefault((dataset, image), [])
            texts.append(caption)
    if not has_narrative:
        raise SourceError(
            f"{path}: no line has dataset_id, image_id and caption; "
            "give files of Localized Narratives"
        )


def _image_folders(layout: DatasetLayout, dataset: str) -> list[str]:
    """Return the existing folders of a dataset's images, and the root."""
    last = dataset.rpartition("_")[2]
    names = (dataset, last, f"images/{dataset}", f"images/{last}", "images")
    folders = [layout.find_folder(name) for name in names]
    return [*filter(None, folders), ""]


def _narrative(line: bytes | None) -> tuple[str, str, str]:
    """Return dataset, image and caption of a line; traces are parsed only if needed."""
    head, traces, rest = (line or b"").partition(_TRACES)
    if traces and all(name in head for name in _NEEDED):
        if not rest.rstrip().endswith(b"}"):
            raise RefusedEntryError("damaged line", "it is cut off")
        line = head + b"}"
    record = parse_record(line)
    dataset = str(record.get("dataset_id", ""))
    image = str(record.get("image_id", ""))
    if not _WORD.fullmatch(dataset) or not _WORD.fullmatch(image):
        raise RefusedEntryError("no dataset_id or image_id", f"{dataset[:50]} {image[:50]}")
    return dataset, image, " ".join(check_texts(record.get("caption")))


def _entry(
    layout: DatasetLayout,
    folders: list[str],
    image: str,
    captions: list[str],
) -> AnnotatedItem:
    files = [f"{image}.jpg"]
    if image.isdecimal() and len(image) < 12:
        files.append(f"{int(image):012d}.jpg")
    paths: list[str] = []
    for folder in folders:
        paths += [f"{folder}{file}" for file in files]
    image_path = layout.find_image(*paths)
    return AnnotatedItem(images=(image_path,), captions=(check_texts(captions),))


def _recognise(path: str) -> bool:
    if "://" in path:
        return False
    return _FILE.fullmatch(Path(path).name) is not None


READER = layout_reader(
    _list_photographs,
    kind="localized-narratives",
    about="Localized Narratives: photographs with long captions by annotators",
    example="localized-narratives:ANNOTATIONS --set reading.images=IMAGES",
    details=__doc__ or "",
    recognises=_recognise,
)
