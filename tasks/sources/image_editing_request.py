"""Read Image-Editing-Request: photographs before and after an edit, with the requests for it.

Layout: ``{train,valid,test}.json`` (also in ``dataset/adobe`` or ``data``), each a list of
``{"img0": ..., "img1": ..., "sents": [...], "uid": ...}``; images in ``images`` beside the lists, in ``images`` at the
root, or beside the lists. The split is named ``valid``. Images are JPEG, PNG and GIF, and the two of a pair often
differ in size.

A request is both what people wrote about the difference and the instruction of the edit: all of them are kept as the
first, and the first of them as the second. The licence is not stated.
"""

from collections.abc import Iterator
from functools import partial

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.annotations import check_record, check_texts, load_json
from pairwright.tasks.sources.layouts import Entry, Layout, Listed, layout_reader
from pairwright.tasks.sources.read_entry import About, check_path

SPLITS = ("train", "valid", "test")
FOLDERS = ("", "dataset/adobe/", "data/")


def _entries(layout: Layout) -> Iterator[Listed]:
    place, lists = layout.find_lists(FOLDERS, SPLITS)
    folder = layout.find_folder(f"{place}images", "images", place.rstrip("/"))
    for split in layout.choose_splits(list(lists)):
        for number, record in enumerate(load_json(lists[split], list), start=1):
            yield f"{split}.json record {number}", partial(_pair, folder, record)


def _pair(folder: str, found: object) -> Entry:
    record = check_record(found)
    texts = check_texts(record.get("sents", []))
    first, second = (f"{folder}{check_path(record.get(name))}" for name in ("img0", "img1"))
    about = About(origin="edit", human_differences=texts, instruction=texts[0] if texts else "")
    return Entry(name=str(record.get("uid") or f"{first} {second}")[:200], images=(first, second), about=about)


READER = layout_reader(
    _entries,
    kind="image-editing-request",
    about="Image-Editing-Request: edited photographs with the requests",
    example="image-editing-request:dataset/adobe",
    details=__doc__ or "",
    brings=(PairRow,),
)
