"""Read CLEVR-DC: rendered scenes before and after a change, seen from quite another side.

Layout: ``bef/{i}.png`` (before) and ``aft/{i}.png``, ``captions.json`` from "i" or "i.png" to captions, ``split.json``
from a split to numbers. Also read is what DIRL's scripts make of it: ``images`` and ``sc_images`` with six digits, and
``change_captions.json``, where "i.png" has become "00000i.png.png". So of a name only the digits before the first dot
count.

No file says which pairs are those whose action was "do nothing": they are told by their captions, all of which are of
the few sentences that CLEVR-Change's generator has for it. Their images may be alike. The licence is not stated.
"""

import re
from collections.abc import Iterator
from functools import partial

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.annotations import check_texts, load_json, load_lists
from pairwright.tasks.sources.layouts import Entry, Layout, Listed, has_files, layout_reader
from pairwright.tasks.sources.read_entry import About, RefusedEntryError

NOTHING_CHANGED = {
    "no change has occurred",
    "no change has occured",
    "no change was made",
    "nothing has changed",
    "nothing was modified",
    "the scene is the same as before",
    "the scene remains the same",
    "the two scenes seem identical",
    "there is no change",
    "there is no difference",
}
_NUMBER = re.compile(r"(\d{1,9})(\.|$)")


def _entries(layout: Layout) -> Iterator[Listed]:
    named = load_json(layout.find_file("captions.json", "change_captions.json"), dict)
    captions = {int(match[1]): texts for name, texts in named.items() if (match := _NUMBER.match(name))}
    splits = load_lists(layout.find_file("split.json", "splits.json"))
    folders = ("bef/", "aft/") if layout.find_folder("bef") else ("images/", "sc_images/")
    for split in layout.choose_splits(list(splits)):
        for number in splits[split]:
            if type(number) is not int or not 0 <= number < 10**9:
                yield f"split.json {split}", RefusedEntryError("split names no image", f"{split} names {number!s:.50}")
            else:
                yield f"{number:06d}.png", partial(_pair, layout, number, folders, captions.get(number, []))


def _pair(layout: Layout, number: int, folders: tuple[str, str], captions: object) -> Entry:
    texts = check_texts(captions)
    same = bool(texts) and all(text.lower().rstrip(" .") in NOTHING_CHANGED for text in texts)
    before, after = (layout.find_image(f"{folder}{number}.png", f"{folder}{number:06d}.png") for folder in folders)
    types = ("no_change",) if same else ()
    about = About(human_differences=texts, change_types=types, may_be_identical=same)
    return Entry(images=(before, after), about=about)


READER = layout_reader(
    _entries,
    kind="clevr-dc",
    about="CLEVR-DC: rendered pairs from far viewpoints with captions",
    example="clevr-dc:clevr-dc",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=partial(has_files, ("captions.json", "split.json")),
)
