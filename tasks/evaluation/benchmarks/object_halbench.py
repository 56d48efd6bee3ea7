"""Object HalBench (RLHF-V) by CHAIR's own rules: do descriptions name COCO's objects that are not in the image?

Published numbers are made with GPT-3.5, which lists the objects of an answer first, and with a tagger; that needs a
paid model that is no longer served. Here words are looked for as CHAIR (Rohrbach et al. 2018) does, so that a thing
also counts where the answer does not say that it can be seen. Reads COCO's 2014 annotations.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import (
    LONG,
    Asked,
    Benchmark,
    Data,
    Exam,
    Mark,
    Marked,
    Replies,
    find_file,
    mark_mean,
    mark_ratios,
)
from pairwright.tasks.evaluation.benchmarks.coco_words import CocoWords, read_coco_words
from pairwright.tasks.evaluation.read_json import Given, check_record, parse_json, read_records, read_text

FILE = "obj_halbench_300_with_image.jsonl"
SPLITS = ("val", "train")
NOTES = (
    "objects are found by CHAIR's list of words, and not listed by GPT-3.5 first, as published numbers are: these are "
    "comparable with each other only",
    "response: answers that name an object that is not there, of those that name any; mention: such objects, of all "
    "that are named, each once per answer; recall: objects in the images that are named",
)
RULE = "Each word of CHAIR's list, also in the plural, is an object; answers of three words or fewer name none."
FEW = 3
"""Words of an answer that is too short to name anything."""


class Record(Given):
    """Be a question with its image in base64."""

    image_id: int | str
    image: str
    question: str


class Instance(Given):
    """Be an annotated object."""

    image_id: int
    category_id: int


class Caption(Given):
    """Be a caption."""

    image_id: int
    caption: str


class Category(Given):
    """Be a kind of objects."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Count what an answer names."""

    named: int
    absent: int
    found: int
    there: int


def open_exam(data: Data) -> Exam:
    """Return the questions of the published file."""
    words = read_coco_words(find_file(data.folder, "synonyms_refine.txt", "synonyms.txt"))
    asked: list[Asked] = []
    numbers: dict[str, int] = {}
    for number, (record, where) in enumerate(read_records(find_file(data.folder, FILE), Record)):
        name = str(number)
        numbers[name] = _number(record.image_id, where)
        asked.append(
            Asked(
                name=name,
                item=name,
                text=f"<image>\n{as_written(record.question)}",
                images=(_image(record.image, where),),
                prompt="object-halbench",
                most_tokens=LONG,
            )
        )
    truths = _read_truths(data.folder, frozenset(numbers.values()), words)

    def mark(replies: Replies) -> Marked:
        names = [one.name for one in asked if one.item in replies.items]
        counts = [_count(replies.texts.get(name, ""), truths[numbers[name]], words) for name in names]
        return Marked(marks=_marks(counts))

    return Exam(questions=asked, mark=mark, read_answers=False, notes=NOTES)


def _number(image_id: int | str, where: str) -> int:
    try:
        return int(image_id)
    except ValueError as error:
        raise ConfigError(f"{where}: image_id: must be a number") from error


def _image(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{where}: image: is no base64") from error


def _read_truths(folder: Path, wanted: frozenset[int], words: CocoWords) -> dict[int, set[str]]:
    """Return which objects are in each image, by COCO's objects and by its captions."""
    truths: dict[int, set[str]] = {number: set() for number in wanted}
    seen: set[int] = set()
    for split in SPLITS:
        path = folder / "annotations" / f"instances_{split}2014.json"
        if not path.is_file():
            continue
        held = _object(path, "images", "categories", "annotations")
        kinds = [check_record(value, Category, f"{path}: categories") for value in held["categories"]]
        names = {kind.id: words.kinds.get(kind.name) for kind in kinds}
        seen |= {image["id"] for image in held["images"] if _is_of(image, "id", wanted)}
        for number, value in enumerate(held["annotations"], start=1):
            if _is_of(value, "image_id", wanted):
                one = check_record(value, Instance, f"{path}: annotations record {number}")
                if name := names.get(one.category_id):
                    truths[one.image_id].add(name)
        captions = find_file(folder, f"annotations/captions_{split}2014.json")
        for number, value in enumerate(_object(captions, "annotations")["annotations"], start=1):
            if _is_of(value, "image_id", wanted):
                one = check_record(value, Caption, f"{captions}: annotations record {number}")
                truths[one.image_id] |= {name for _, name in words.find(one.caption)}
    if missing := sorted(wanted - seen):
        raise ConfigError(
            f"--data {folder}: annotations/instances_val2014.json and _train2014.json say nothing of image {missing[0]}"
        )
    return truths


def _is_of(value: Any, field: str, wanted: frozenset[int]) -> bool:
    """Say whether a record is of a wanted image; records of others are not looked at."""
    return isinstance(value, dict) and isinstance(value.get(field), int) and value[field] in wanted


def _object(path: Path, *fields: str) -> dict[str, list[Any]]:
    held = parse_json(read_text(path), str(path))
    if not isinstance(held, dict) or not all(isinstance(held.get(field), list) for field in fields):
        raise ConfigError(f"{path}: must be an object with lists: {', '.join(fields)}")
    return held


def _count(text: str, truths: set[str], words: CocoWords) -> Counted:
    named = dict.fromkeys(words.find(text)) if len(text.split()) > FEW else {}
    return Counted(
        named=len(named),
        absent=sum(kind not in truths for _, kind in named),
        found=len(truths & {kind for _, kind in named}),
        there=len(truths),
    )


def _marks(counts: Sequence[Counted]) -> list[Mark]:
    ratios: Mapping[str, tuple[list[float], list[float]]] = {
        "response (CHAIR_s)": ([one.absent > 0 for one in counts], [one.named > 0 for one in counts]),
        "mention (CHAIR_i)": ([one.absent for one in counts], [one.named for one in counts]),
        "recall": ([one.found for one in counts], [one.there for one in counts]),
    }
    return [mark_ratios(ratios), mark_mean("answers that name objects", [one.named > 0 for one in counts])]


BENCHMARK = Benchmark(
    name="object-halbench",
    measures="whether descriptions name COCO's objects that are not in the image (CHAIR)",
    layout=f"{FILE} (300 questions, with their images), synonyms_refine.txt of RLHF-V or CHAIR's synonyms.txt, and "
    "COCO's annotations/instances_val2014.json and captions_val2014.json, or those of train2014 for images from there",
    open=open_exam,
    rule=RULE,
)
