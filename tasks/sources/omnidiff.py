"""Read pairs with change types and scenes in a neutral form of our own, for OmniDiff and sets like it.

The form in which OmniDiff itself is published was not known when this was written; this one is ours, and a few lines of
script turn any such set into it. A folder holds JSON Lines files, each one split, named after it (``train.jsonl``); or
the path is one such file. A line is one pair::

    {"id": "real-17", "image1": "real/17_a.jpg", "image2": "real/17_b.jpg", "caption": "A chair was ...",
     "source": "real", "change_types": ["addition", "viewpoint"], "scene": "office-3"}

Needed are ``image1`` and ``image2`` (before, after): paths below ``reading.images`` or, without it, the folder.
``captions`` holds several captions. ``change_types`` may be one text; of the type ``no_change`` alone, the images may
be alike. Pairs of one ``source`` and ``scene`` stay in one split.
"""

from collections.abc import Iterator
from functools import partial

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.annotations import check_texts, check_word, parse_record, read_lines
from pairwright.tasks.sources.layouts import Entry, Layout, checked, layout_reader
from pairwright.tasks.sources.read_entry import check_path


def _entries(layout: Layout) -> Iterator[Entry]:
    files = {path.stem: path for path in layout.find_lines()}
    for split in layout.choose_splits(list(files)):
        good = False
        for number, line in read_lines(files[split]):
            entry = checked(f"{files[split].name} line {number}", partial(_pair, line))
            good = good or not entry.refused
            yield entry
        if not good:
            raise SourceError(f"{files[split]}: no line is a pair; see the form in tasks/sources/omnidiff.py")


def _pair(line: bytes | None) -> Entry:
    record = parse_record(line)
    first, second = (check_path(record.get(name)) for name in ("image1", "image2"))
    types = check_texts(record.get("change_types") or [])
    name, *place = (check_word(record, name) for name in ("id", "source", "scene"))
    return Entry(
        name=name or f"{first} {second}",
        images=(first, second),
        texts=check_texts(record.get("captions") or record.get("caption") or []),
        change_types=types,
        group="/".join(filter(None, place)) if place[1] else "",
        no_change=types == ("no_change",),
    )


READER = layout_reader(
    "omnidiff",
    _entries,
    about="pairs with captions, change types and scenes, as JSON Lines of our own form",
    example="omnidiff:omnidiff",
    details=__doc__,
    rows_per_shard=64,
)
