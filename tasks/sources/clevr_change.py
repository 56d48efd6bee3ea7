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
from functools import partial

from pairwright.tasks.sources.annotations import check_texts, load_json, load_lists
from pairwright.tasks.sources.layouts import Entry, Layout, checked, has_files, layout_reader

log = logging.getLogger(__name__)

_DEFAULT = re.compile(r"CLEVR_default_(\d{6})\.png")
_NO_CHANGE = "no_change"


def _entries(layout: Layout) -> Iterator[Entry]:
    inside = "data/" if (layout.root / "data").is_dir() else ""
    changes, distractors = (
        load_json(layout.find_file(f"{inside}{name}.json"), dict) for name in ("change_captions", "no_change_captions")
    )
    splits = load_lists(layout.find_file(f"{inside}splits.json"))
    types = _types(layout, inside)
    folder = layout.find_folder("data") if inside else ""
    numbers = _numbers(layout, folder, changes | distractors)
    for split in layout.choose_splits(list(splits)):
        for place in splits[split]:
            if type(place) is not int or not 0 <= place < len(numbers):
                detail = f"{split} names place {str(place)[:50]} of {len(numbers)}"
                yield Entry(name=f"splits.json {split}", refused="split names no image", detail=detail)
                continue
            number = numbers[place]
            kinds = tuple(kind for kind, members in types.items() if number in members)
            yield _pair(folder, number, changes, change_types=kinds)
            yield _pair(folder, number, distractors, change_types=(_NO_CHANGE,))


def _pair(folder: str, number: str, captions: Mapping[str, object], *, change_types: tuple[str, ...]) -> Entry:
    no_change = change_types == (_NO_CHANGE,)
    name = f"{number}.png_n" if no_change else f"{number}.png"
    default = f"CLEVR_default_{number}.png"
    other = f"nsc_images/CLEVR_nonsemantic_{number}.png" if no_change else f"sc_images/CLEVR_semantic_{number}.png"

    def make() -> Entry:
        return Entry(
            name=name,
            images=(f"{folder}images/{default}", f"{folder}{other}"),
            texts=check_texts(captions.get(default, [])),
            change_types=change_types,
            no_change=no_change,
        )

    return checked(name, make)


def _numbers(layout: Layout, folder: str, captions: Mapping[str, object]) -> list[str]:
    """Return the numbers of all default images, in the order of their names."""
    names = {*captions, *(path.name for path in (layout.images / f"{folder}images").glob("*"))}
    found = [match[1] for name in sorted(names) if (match := _DEFAULT.fullmatch(name))]
    if len(found) < len(names):
        log.warning("%s: %d names are none of CLEVR-Change and are left out", layout.root, len(names) - len(found))
    return found


def _types(layout: Layout, inside: str) -> dict[str, set[str]]:
    """Return the numbers of the images of each type of change."""
    path = layout.root / f"{inside}type_mapping.json"
    found = load_lists(path) if path.is_file() else {}
    return {kind: {str(name).removesuffix(".png") for name in names} for kind, names in found.items()}


READER = layout_reader(
    "clevr-change",
    _entries,
    about="CLEVR-Change: rendered pairs with captions, half of them distractors",
    example="clevr-change:data",
    details=__doc__,
    recognises=partial(has_files, ("change_captions.json", "no_change_captions.json", "splits.json")),
)
