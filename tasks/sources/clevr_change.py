"""Read CLEVR-Change: rendered scenes before and after a change, and after none but another viewpoint and light.

Layout, at the root or in its folder ``data``: ``images/CLEVR_default_%06d.png`` (before), ``sc_images/CLEVR_semantic_``
(after a change) and ``nsc_images/CLEVR_nonsemantic_`` (after none); ``change_captions.json`` and
``no_change_captions.json``, both from the name of the default image to its captions; ``splits.json`` from a split to
numbers; ``type_mapping.json`` (may be missing) from a type of change to names ``%06d.png``.

A number of ``splits.json`` is a place in the sorted list of default images, which is not the number in the name where
one is missing. The list is of all names in the captions and on disk, so that it is whole where only some of the images
were copied. Each place gives two pairs, named as in evaluation: ``000000.png`` and, for the distractor,
``000000.png_n``, whose images may be alike. What is in no split is not read. The images' licence is not stated.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.annotations import check_texts, load_json, load_lists
from pairwright.tasks.sources.layouts import Entry, Layout, Listed, has_files, layout_reader
from pairwright.tasks.sources.read_entry import About, RefusedEntryError

log = logging.getLogger(__name__)

_DEFAULT = re.compile(r"CLEVR_default_(\d{6})\.png")


def _entries(layout: Layout) -> Iterator[Listed]:
    inside = "data/" if (layout.root / "data").is_dir() else ""
    changes, distractors = (
        load_json(layout.find_file(f"{inside}{name}.json"), dict) for name in ("change_captions", "no_change_captions")
    )
    splits = load_lists(layout.find_file(f"{inside}splits.json"))
    mapping = layout.root / f"{inside}type_mapping.json"
    lists = load_lists(mapping) if mapping.is_file() else {}
    types = {kind: set(map(str, names)) for kind, names in lists.items()}
    folder = layout.find_folder("data") if inside else ""
    numbers = _numbers(layout, folder, changes | distractors)
    for split in layout.choose_splits(list(splits)):
        for place in splits[split]:
            if type(place) is not int or not 0 <= place < len(numbers):
                detail = f"{split} names place {place!s:.50} of {len(numbers)}"
                yield f"splits.json {split}", RefusedEntryError("split names no image", detail)
                continue
            name = f"{numbers[place]}.png"
            kinds = tuple(kind for kind, members in types.items() if name in members)
            yield name, partial(_pair, folder, name, changes, About(change_types=kinds))
            nothing = About(change_types=("no_change",), may_be_identical=True)
            yield f"{name}_n", partial(_pair, folder, name, distractors, nothing)


def _pair(folder: str, name: str, captions: Mapping[str, object], about: About) -> Entry:
    default = f"CLEVR_default_{name}"
    other = "nsc_images/CLEVR_nonsemantic_" if about.may_be_identical else "sc_images/CLEVR_semantic_"
    texts = check_texts(captions.get(default, []))
    images = (f"{folder}images/{default}", f"{folder}{other}{name}")
    return Entry(images=images, about=replace(about, human_differences=texts))


def _numbers(layout: Layout, folder: str, captions: Mapping[str, object]) -> list[str]:
    names = {*captions, *(path.name for path in (layout.images / f"{folder}images").glob("*"))}
    found = [match[1] for name in sorted(names) if (match := _DEFAULT.fullmatch(name))]
    if len(found) < len(names):
        log.warning("%s: %d names are none of CLEVR-Change and are left out", layout.root, len(names) - len(found))
    return found


READER = layout_reader(
    _entries,
    kind="clevr-change",
    about="CLEVR-Change: rendered pairs with captions, half of them distractors",
    example="clevr-change:data",
    details=__doc__ or "",
    brings=(PairRow,),
    recognises=partial(has_files, ("change_captions.json", "no_change_captions.json", "splits.json")),
)
