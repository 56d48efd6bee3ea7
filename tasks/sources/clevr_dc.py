"""Read CLEVR-DC: rendered scenes before and after a change, seen from quite another side.

Layout: ``bef/{i}.png`` (before) and ``aft/{i}.png``, ``captions.json`` from "i" or "i.png" to captions, ``split.json``
from a split to numbers. Also read is what DIRL's scripts make of it: ``images`` and ``sc_images`` with six digits, and
``change_captions.json``, where "i.png" has become "00000i.png.png". So of a name only the digits before the first dot
count.

No file says which pairs are those whose action was "do nothing": they are told by their captions, all of which are of
the few sentences that CLEVR-Change's generator has for it. Their images may be alike. The licence is not stated.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from pairwright.tasks.sources.annotations import check_texts, load_json, load_lists
from pairwright.tasks.sources.layouts import Entry, Layout, checked, has_files, layout_reader

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


def _entries(layout: Layout) -> Iterator[Entry]:
    captions = _by_number(load_json(layout.find_file("captions.json", "change_captions.json"), dict))
    splits = load_lists(layout.find_file("split.json", "splits.json"))
    folders = ("bef/", "aft/") if layout.find_folder("bef") else ("images/", "sc_images/")
    for split in layout.choose_splits(list(splits)):
        for number in splits[split]:
            if type(number) is not int or not 0 <= number < 10**9:
                detail = f"{split} names {str(number)[:50]}"
                yield Entry(name=f"split.json {split}", refused="split names no image", detail=detail)
            else:
                yield _pair(layout, number, folders, captions=captions)


def _by_number(captions: Mapping[str, object]) -> dict[int, object]:
    return {int(match[1]): texts for name, texts in captions.items() if (match := _NUMBER.match(name))}


def _pair(layout: Layout, number: int, folders: tuple[str, str], *, captions: Mapping[int, object]) -> Entry:
    name = f"{number:06d}.png"

    def make() -> Entry:
        texts = check_texts(captions.get(number, []))
        same = bool(texts) and all(text.lower().rstrip(" .") in NOTHING_CHANGED for text in texts)
        before, after = (layout.find_image(f"{folder}{number}.png", f"{folder}{name}") for folder in folders)
        types = ("no_change",) if same else ()
        return Entry(name=name, images=(before, after), texts=texts, change_types=types, no_change=same)

    return checked(name, make)


READER = layout_reader(
    "clevr-dc",
    _entries,
    about="CLEVR-DC: rendered pairs from far viewpoints with captions",
    example="clevr-dc:clevr-dc",
    details=__doc__,
    recognises=partial(has_files, ("captions.json", "split.json")),
)
