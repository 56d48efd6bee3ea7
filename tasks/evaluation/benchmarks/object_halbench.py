"""Object HalBench (RLHF-V) by CHAIR's own rules: do descriptions name COCO's objects that are not in the image?

Published numbers are made with GPT-3.5, which lists the objects of an answer first, and with a tagger; that needs a
paid model that is no longer served. Here words are looked for as CHAIR (Rohrbach et al. 2018) does, so that a thing
also counts where the answer does not say that it can be seen. Reads COCO's 2014 annotations.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import (
    Benchmark,
    Data,
    Exam,
    ExamQuestion,
    Marked,
    Replies,
    as_written,
    ask_at_length,
    find_file,
)
from pairwright.tasks.evaluation.benchmarks.known_words import singular_in, words_in
from pairwright.tasks.evaluation.measured import measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_json import (
    Given,
    M,
    check_record,
    number_records,
    parse_json,
    read_records,
    read_text,
)

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
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub")
SPECIAL = {"bow tie": "tie", "toilet seat": "toilet", "home plate": "home plate", "train track": "train track"}
"""Two words that are one thing, or none of COCO's."""


class _Record(Given):
    image_id: int | str
    image: str
    question: str


class _Instance(Given):
    image_id: int
    category_id: int


class _Caption(Given):
    image_id: int
    caption: str


class _Category(Given):
    id: int
    name: str


@dataclass(frozen=True)
class CocoWords:
    """Words for COCO's objects."""

    kinds: dict[str, str]
    """By word, or words with spaces between them, the object."""

    def find(self, text: str) -> list[tuple[str, str]]:
        """Return each word for an object in a text, with the object."""
        words = [singular_in(word, self._parts) or word for word in words_in(text)]
        joined: list[str] = []
        while words:  # put words together that are one thing: "traffic light", "baby elephant"
            both = self._doubles.get(" ".join(words[:2]))
            joined.append(both or words[0])
            words = words[2 if both else 1 :]
        if "toilet" in joined and "seat" in joined:  # the seat of the toilet is no chair
            joined = [word for word in joined if word != "seat"]
        return [(word, self.kinds[word]) for word in joined if word in self.kinds]

    @cached_property
    def _doubles(self) -> dict[str, str]:
        own = {word: word for word in self.kinds if word.count(" ") == 1}
        young = {f"{age} {animal}": animal for age in ("baby", "adult") for animal in ANIMALS}
        return own | young | {f"passenger {vehicle}": vehicle for vehicle in ("jet", "train")} | SPECIAL

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for words in (*self.kinds, *self._doubles) for part in words.split())


def read_coco_words(path: Path) -> CocoWords:
    """Return the words of a file: a line per object, its own name first."""
    lines = [[word.strip() for word in line.split(",")] for line in read_text(path).split("\n") if line.strip()]
    kinds = {word: line[0] for line in lines for word in line if word}
    if not kinds:
        raise ConfigError(f"{path}: holds no words")
    return CocoWords(kinds)


def open_exam(data: Data) -> Exam:
    """Return the questions of the published file."""
    words = read_coco_words(find_file(data.folder, "synonyms_refine.txt", "synonyms.txt"))
    asked: list[ExamQuestion] = []
    numbers: dict[str, int] = {}
    for number, (record, where) in enumerate(read_records(find_file(data.folder, FILE), _Record)):
        name = str(number)
        try:
            numbers[name], image = int(record.image_id), base64.b64decode(record.image, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{where}: image_id must be a number, and image base64: {error}") from error
        text = f"<image>\n{as_written(record.question)}"
        asked.append(ask_at_length(name, text, (image,), "object-halbench"))
    truths = _read_truths(data.folder, frozenset(numbers.values()), words)

    def mark(replies: Replies) -> Marked:
        names = [one.name for one in asked if one.item in replies.items]
        return _mark([(replies.texts.get(name, ""), truths[numbers[name]]) for name in names], words)

    return Exam(questions=asked, mark=mark, read_answers=False, notes=NOTES)


def _read_truths(folder: Path, wanted: frozenset[int], words: CocoWords) -> dict[int, set[str]]:
    truths: dict[int, set[str]] = {number: set() for number in wanted}
    seen: set[int] = set()
    for split in SPLITS:
        path = folder / "annotations" / f"instances_{split}2014.json"
        if not path.is_file():
            continue
        held = _object(path, "images", "categories", "annotations")
        kinds = [check_record(value, _Category, f"{path}: categories") for value in held["categories"]]
        names = {kind.id: words.kinds.get(kind.name) for kind in kinds}
        seen |= {image["id"] for image in held["images"] if _is_of(image, "id", wanted)}
        for one in _annotations(held, path, _Instance, wanted):
            if name := names.get(one.category_id):
                truths[one.image_id].add(name)
        captions = find_file(folder, f"annotations/captions_{split}2014.json")
        for one in _annotations(_object(captions, "annotations"), captions, _Caption, wanted):
            truths[one.image_id] |= {name for _, name in words.find(one.caption)}
    if missing := sorted(wanted - seen):
        raise ConfigError(
            f"--data {folder}: annotations/instances_val2014.json and _train2014.json say nothing of image {missing[0]}"
        )
    return truths


def _annotations(held: dict[str, list[Any]], path: Path, kind: type[M], wanted: frozenset[int]) -> Iterator[M]:
    for value, where in number_records(held["annotations"], f"{path}: annotations"):
        if _is_of(value, "image_id", wanted):
            yield check_record(value, kind, where)


def _is_of(value: Any, field: str, wanted: frozenset[int]) -> bool:
    return isinstance(value, dict) and isinstance(value.get(field), int) and value[field] in wanted


def _object(path: Path, *fields: str) -> dict[str, list[Any]]:
    held = parse_json(read_text(path), str(path))
    if not isinstance(held, dict) or not all(isinstance(held.get(field), list) for field in fields):
        raise ConfigError(f"{path}: must be an object with lists: {', '.join(fields)}")
    return held


def _mark(answers: list[tuple[str, set[str]]], words: CocoWords) -> Marked:
    """Score answers, each with the objects that are in its image; a word counts once per answer."""
    named = [{*words.find(text)} if len(text.split()) > FEW else set[tuple[str, str]]() for text, _ in answers]
    rows = [(own, there) for own, (_, there) in zip(named, answers, strict=True)]
    absent = [sum(kind not in there for _, kind in own) for own, there in rows]
    found = [len(there & {kind for _, kind in own}) for own, there in rows]
    names_any = [bool(own) for own in named]
    ratios: Mapping[str, tuple[list[float], list[float]]] = {
        "response (CHAIR_s)": ([count > 0 for count in absent], [*names_any]),
        "mention (CHAIR_i)": ([*absent], [len(own) for own in named]),
        "recall": ([*found], [len(there) for _, there in rows]),
    }
    return Marked(marks=[measure_ratios(ratios), measure_mean("answers that name objects", names_any)])


BENCHMARK = Benchmark(
    name="object-halbench",
    measures="whether descriptions name COCO's objects that are not in the image (CHAIR)",
    layout=f"{FILE} (300 questions, with their images), synonyms_refine.txt of RLHF-V or CHAIR's synonyms.txt, and "
    "COCO's annotations/instances_val2014.json and captions_val2014.json, or those of train2014 for images from there",
    open=open_exam,
    rule=RULE,
)
