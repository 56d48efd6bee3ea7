"""Read Spot-the-Diff: frames of surveillance cameras some time apart, with sentences about what differs.

Layout: ``annotations/{train,val,test}.json`` (also below ``data``, or beside the images), each a list of
``{"img_id": ..., "sentences": [...]}``; images ``<img_id>.png`` and ``<img_id>_2.png`` in ``resized_images``, in
``images`` or at the root. ``<img_id>_diff.jpg`` is not read.

Several records may share an img_id: they become one pair with all sentences in their order. Blank sentences are left
out. No file says which pairs are of one camera. The licence is not stated.
"""

import re
from collections.abc import Iterator
from functools import partial

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.annotations import check_record, check_texts, load_json
from pairwright.tasks.sources.layouts import Entry, Layout, Listed, layout_reader
from pairwright.tasks.sources.read_entry import About, RefusedEntryError

SPLITS = ("train", "val", "test")
FOLDERS = ("annotations/", "data/annotations/", "")
_ID = re.compile(r"[\w-]{1,200}", re.ASCII)


def _entries(layout: Layout) -> Iterator[Listed]:
    _, lists = layout.find_lists(FOLDERS, SPLITS)
    folder = layout.find_folder("resized_images", "data/resized_images", "images")
    for split in layout.choose_splits(list(lists)):
        found: dict[str, list[object]] = {}
        for number, record in enumerate(load_json(lists[split], list), start=1):
            try:
                found.setdefault(_id(check_record(record)), []).append(record.get("sentences", []))
            except RefusedEntryError as refused:
                yield f"{split}.json record {number}", refused
        for name, sentences in found.items():
            yield name, partial(_pair, folder, name, sentences)


def _id(record: dict[str, object]) -> str:
    name = str(record.get("img_id", ""))
    if not _ID.fullmatch(name):
        raise RefusedEntryError("no img_id", name[:100])
    return name


def _pair(folder: str, name: str, sentences: list[object]) -> Entry:
    texts = check_texts([text for each in sentences for text in (each if isinstance(each, list) else [each])])
    return Entry(images=(f"{folder}{name}.png", f"{folder}{name}_2.png"), about=About(human_differences=texts))


READER = layout_reader(
    _entries,
    kind="spot-the-diff",
    about="Spot-the-Diff: surveillance frames with sentences about their differences",
    example="spot-the-diff:spot-the-diff/data",
    details=__doc__ or "",
    brings=(PairRow,),
)
