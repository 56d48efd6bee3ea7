"""Read data sets of pairs that are folders of images with JSON lists.

CLEVR-Change, CLEVR-DC, Spot-the-Diff, Image-Editing-Request; each reader describes its files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.annotations import check_record, check_texts, load_json, load_lists
from pairwright.tasks.sources.layouts import AnnotatedItem, DatasetLayout, Listed, layout_reader
from pairwright.tasks.sources.read_entry import EntryMetadata, check_path
from pairwright.tasks.sources.reader import RefusedEntryError


def _annotated_pair(
    images: tuple[str, str],
    texts: object,
    *,
    change_types: tuple[str, ...] = (),
    may_be_identical: bool = False,
) -> AnnotatedItem:
    metadata = EntryMetadata(
        human_differences=check_texts(texts, keep_blank=True),
        change_types=change_types,
        may_be_identical=may_be_identical,
    )
    return AnnotatedItem(images=images, metadata=metadata)


def _has_files(names: Sequence[str], path: str) -> bool:
    """Return whether a folder, or ``data`` in it, holds all of these files."""
    if "://" in path:
        return False
    folders = (Path(path), Path(path, "data"))
    return any(_holds_all(folder, names) for folder in folders)


def _holds_all(folder: Path, names: Sequence[str]) -> bool:
    return all((folder / name).is_file() for name in names)


_DEFAULT_IMAGE = re.compile(r"CLEVR_default_(\d{6})\.png")


def _list_clevr_change(layout: DatasetLayout) -> Iterator[Listed]:
    inside = "data/" if (layout.root / "data").is_dir() else ""
    changes = load_json(layout.find_file(f"{inside}change_captions.json"), dict)
    distractors = load_json(layout.find_file(f"{inside}no_change_captions.json"), dict)
    splits = load_lists(layout.find_file(f"{inside}splits.json"))
    types = _load_types(layout.root / f"{inside}type_mapping.json")
    folder = layout.find_folder("data") if inside else ""
    numbers = _image_numbers(layout.images / f"{folder}images", {*changes, *distractors})
    for split in layout.choose_splits(list(splits)):
        for index in splits[split]:
            if type(index) is not int or not 0 <= index < len(numbers):
                detail = f"{split} names place {index!s:.50} of {len(numbers)}"
                refused = RefusedEntryError("split names no image", detail)
                yield f"splits.json {split}", refused, split
                continue
            name = f"{numbers[index]}.png"
            default = f"CLEVR_default_{name}"
            texts = changes.get(default, [])
            yield name, partial(_changed_pair, folder, name, texts, types), split
            texts = distractors.get(default, [])
            yield f"{name}_n", partial(_unchanged_pair, folder, name, texts), split


def _changed_pair(
    folder: str,
    name: str,
    texts: object,
    types: Mapping[str, set[str]],
) -> AnnotatedItem:
    before = f"{folder}images/CLEVR_default_{name}"
    after = f"{folder}sc_images/CLEVR_semantic_{name}"
    kinds = tuple(kind for kind, names in types.items() if name in names)
    return _annotated_pair((before, after), texts, change_types=kinds)


def _unchanged_pair(folder: str, name: str, texts: object) -> AnnotatedItem:
    before = f"{folder}images/CLEVR_default_{name}"
    after = f"{folder}nsc_images/CLEVR_nonsemantic_{name}"
    kinds = ("no_change",)
    return _annotated_pair((before, after), texts, change_types=kinds, may_be_identical=True)


def _load_types(path: Path) -> dict[str, set[str]]:
    """Return the names of the images of each type of change; empty without the file."""
    lists = load_lists(path) if path.is_file() else {}
    types: dict[str, set[str]] = {}
    for kind, names in lists.items():
        types[kind] = set(map(str, names))
    return types


def _image_numbers(folder: Path, names: set[str]) -> list[str]:
    """Return the sorted numbers of the images that are named or in the folder."""
    names = names | {path.name for path in folder.glob("*")}
    matches = map(_DEFAULT_IMAGE.fullmatch, sorted(names))
    return [match[1] for match in matches if match]


CLEVR_CHANGE = layout_reader(
    _list_clevr_change,
    kind="clevr-change",
    has_texts=lambda _: True,
    about="CLEVR-Change: rendered pairs with captions, half of them distractors",
    example="clevr-change:data",
    details="""\
CLEVR-Change: rendered scenes before and after a change, or after one of viewpoint and light
only.

Layout, at the root or in its folder ``data``: ``images/CLEVR_default_%06d.png`` (before),
``sc_images/CLEVR_semantic_`` (after a change) and ``nsc_images/CLEVR_nonsemantic_`` (after
none); ``change_captions.json`` and ``no_change_captions.json``, both from the name of the
default image to its captions; ``splits.json`` from a split to numbers; ``type_mapping.json``
(may be missing) from a type of change to names ``%06d.png``.

A number of ``splits.json`` is an index into the sorted list of all names in the captions and on
disk. Each index gives two pairs, named as in evaluation: ``000000.png`` and, for the
distractor, ``000000.png_n``, which may have equal images. Images in no split are not read. The
licence is not stated.""",
    brings=(PairRow,),
    recognises=partial(
        _has_files, ("change_captions.json", "no_change_captions.json", "splits.json")
    ),
)


NOTHING_CHANGED = {
    *(
        "no change has occurred",
        "no change has occured",
        "no change was made",
        "nothing has changed",
    ),
    *("nothing was modified", "the scene is the same as before", "the scene remains the same"),
    *("the two scenes seem identical", "there is no change", "there is no difference"),
}
_LEADING_NUMBER = re.compile(r"(\d{1,9})(\.|$)")


def _list_clevr_dc(layout: DatasetLayout) -> Iterator[Listed]:
    captions: dict[int, object] = {}
    path = layout.find_file("captions.json", "change_captions.json")
    for name, texts in load_json(path, dict).items():
        match = _LEADING_NUMBER.match(name)
        if match:
            captions[int(match[1])] = texts
    splits = load_lists(layout.find_file("split.json", "splits.json"))
    folders = ("bef/", "aft/") if layout.find_folder("bef") else ("images/", "sc_images/")
    for split in layout.choose_splits(list(splits)):
        for number in splits[split]:
            if type(number) is not int or not 0 <= number < 10**9:
                refused = RefusedEntryError("split names no image", f"{split} names {number!s:.50}")
                yield f"split.json {split}", refused, split
                continue
            texts = captions.get(number, [])
            pair = partial(_clevr_dc_pair, layout, number, folders, texts)
            yield f"{number:06d}.png", pair, split


def _clevr_dc_pair(
    layout: DatasetLayout,
    number: int,
    folders: tuple[str, str],
    captions: object,
) -> AnnotatedItem:
    texts = check_texts(captions, keep_blank=True)
    sentences = [text for text in texts if text]
    is_unchanged = bool(sentences) and all(map(_denies_change, sentences))
    before, after = (
        layout.find_image(f"{folder}{number}.png", f"{folder}{number:06d}.png")
        for folder in folders
    )
    metadata = EntryMetadata(
        human_differences=texts,
        change_types=("no_change",) if is_unchanged else (),
        may_be_identical=is_unchanged,
    )
    return AnnotatedItem(images=(before, after), metadata=metadata)


def _denies_change(text: str) -> bool:
    return text.lower().rstrip(" .") in NOTHING_CHANGED


CLEVR_DC = layout_reader(
    _list_clevr_dc,
    kind="clevr-dc",
    has_texts=lambda _: True,
    about="CLEVR-DC: rendered pairs from distant viewpoints with captions",
    example="clevr-dc:clevr-dc",
    details="""\
CLEVR-DC: rendered scenes before and after a change, seen from very different viewpoints.

Layout: ``bef/{i}.png`` (before) and ``aft/{i}.png``, ``captions.json`` from "i" or "i.png" to
captions, ``split.json`` from a split to numbers. The output of DIRL's scripts is read too
(``images``, ``sc_images``, ``change_captions.json``).

No file marks the pairs with the action "do nothing": they are recognised by their captions, the
few sentences of CLEVR-Change's generator for it. Their images may be equal. The licence is not
stated.""",
    brings=(PairRow,),
    recognises=partial(_has_files, ("captions.json", "split.json")),
)


_SPOT_ID = re.compile(r"[\w-]{1,200}", re.ASCII)


def _list_spot_the_diff(layout: DatasetLayout) -> Iterator[Listed]:
    folders = ("annotations/", "data/annotations/", "")
    _, lists = layout.find_lists(folders, ("train", "val", "test"))
    folder = layout.find_folder("resized_images", "data/resized_images", "images")
    for split in layout.choose_splits(list(lists)):
        sentences: dict[str, list[object]] = {}
        records = load_json(lists[split], list)
        for number, value in enumerate(records, start=1):
            try:
                name, texts = _read_sentences(value)
            except RefusedEntryError as refused:
                yield f"{split}.json record {number}", refused, split
            else:
                sentences.setdefault(name, []).extend(texts)
        for name, texts in sentences.items():
            images = (f"{folder}{name}.png", f"{folder}{name}_2.png")
            yield name, partial(_annotated_pair, images, texts), split


def _read_sentences(value: object) -> tuple[str, list[object]]:
    """Return the id and the sentences of a record."""
    record = check_record(value)
    name = str(record.get("img_id", ""))
    if not _SPOT_ID.fullmatch(name):
        raise RefusedEntryError("no img_id", name[:100])
    sentences = record.get("sentences", [])
    return name, sentences if isinstance(sentences, list) else [sentences]


SPOT_THE_DIFF = layout_reader(
    _list_spot_the_diff,
    kind="spot-the-diff",
    has_texts=lambda _: True,
    about="Spot-the-Diff: surveillance frames with sentences about their differences",
    example="spot-the-diff:spot-the-diff/data",
    details="""\
Spot-the-Diff: frames of surveillance cameras some time apart, with sentences about their
differences.

Layout: ``annotations/{train,val,test}.json`` (also below ``data``, or beside the images), each
a list of ``{"img_id": ..., "sentences": [...]}``; images ``<img_id>.png`` and
``<img_id>_2.png`` in ``resized_images``, in ``images`` or at the root. ``<img_id>_diff.jpg`` is
not read.

Records with the same img_id become one pair with all sentences in order, without blank ones. No
file states which pairs are from one camera. The licence is not stated.""",
    brings=(PairRow,),
)


def _list_image_editing(layout: DatasetLayout) -> Iterator[Listed]:
    bases = ("", "dataset/adobe/", "data/")
    base, lists = layout.find_lists(bases, ("train", "valid", "test"))
    folder = layout.find_folder(f"{base}images", "images", base.rstrip("/"))
    for split in layout.choose_splits(list(lists)):
        records = load_json(lists[split], list)
        for number, value in enumerate(records, start=1):
            yield f"{split}.json record {number}", partial(_edit_pair, folder, value), split


def _edit_pair(folder: str, value: object) -> AnnotatedItem:
    record = check_record(value)
    texts = check_texts(record.get("sents", []), keep_blank=True)
    first = f"{folder}{check_path(record.get('img0'))}"
    second = f"{folder}{check_path(record.get('img1'))}"
    instruction = next(filter(None, texts), "")
    metadata = EntryMetadata(origin="edit", human_differences=texts, instruction=instruction)
    name = str(record.get("uid") or f"{first} {second}")[:200]
    return AnnotatedItem(name=name, images=(first, second), metadata=metadata)


IMAGE_EDITING_REQUEST = layout_reader(
    _list_image_editing,
    kind="image-editing-request",
    has_texts=lambda _: True,
    about="Image-Editing-Request: edited photographs with the requests",
    example="image-editing-request:dataset/adobe",
    details="""\
Image-Editing-Request: photographs before and after an edit, with the requests for it.

Layout: ``{train,valid,test}.json`` (also in ``dataset/adobe`` or ``data``), each a list of
``{"img0": ..., "img1": ..., "sents": [...], "uid": ...}``; images in ``images`` beside the
lists, in ``images`` at the root, or beside the lists. The split is named ``valid``. Images are
JPEG, PNG and GIF, and the two of a pair often differ in size.

A request is both a person's text about the difference and an edit instruction: all requests are
kept as texts, the first one also as the instruction. The licence is not stated.""",
    brings=(PairRow,),
)
