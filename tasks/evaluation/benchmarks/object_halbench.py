"""Object HalBench (RLHF-V) by CHAIR's rules: do descriptions name COCO objects that are not in the image?

Published numbers use GPT-3.5, no longer served, to extract objects from answers, and a tagger. Here words are matched
as by CHAIR (Rohrbach et al. 2018), so that objects said to be absent also count. Reads COCO's 2014 annotations.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark, read_json
from pairwright.tasks.evaluation.benchmarks.known_words import singular_in, words_in
from pairwright.tasks.evaluation.measured import measure_mean, measure_ratios

FILE = "obj_halbench_300_with_image.jsonl"
SPLITS = ("val", "train")
NOTES = (
    "objects are found by CHAIR's word list, not by GPT-3.5 as in published numbers: compare only with scores of this "
    "program",
    "response: answers that name an object that is not there, of those that name any; mention: such objects, of all "
    "that are named, each once per answer; recall: objects in the images that are named",
)
RULE = "Each word of CHAIR's list, also in the plural, is an object; answers of three words or fewer name none."
FEW = 3  # answers of so few words name nothing
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub")
SPECIAL = {"bow tie": "tie", "toilet seat": "toilet", "home plate": "home plate", "train track": "train track"}
"""Two-word names of one object, or of none of COCO's."""


class _Record(read_json.Given):
    image_id: int | str
    image: str
    question: str


class _Instance(read_json.Given):
    image_id: int
    category_id: int


class _Caption(read_json.Given):
    image_id: int
    caption: str


class _Category(read_json.Given):
    id: int
    name: str


@dataclass(frozen=True)
class CocoWords:
    """Words for COCO's objects."""

    kinds: dict[str, str]  # object by word or phrase

    def find(self, text: str) -> list[tuple[str, str]]:
        """Return each word for an object in a text, with the object."""
        words = [singular_in(word, self._parts) or word for word in words_in(text)]
        joined: list[str] = []
        while words:  # join two-word names: "traffic light", "baby elephant"
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
    lines = [
        [word.strip() for word in line.split(",")] for line in read_json.read_text(path).split("\n") if line.strip()
    ]
    kinds = {word: line[0] for line in lines for word in line if word}
    if not kinds:
        raise ConfigError(f"{path}: holds no words")
    return CocoWords(kinds)


def open_exam(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of the published file."""
    words = read_coco_words(benchmark.find_file(data.folder, "synonyms_refine.txt", "synonyms.txt"))
    asked: list[benchmark.ExamQuestion] = []
    numbers: dict[str, int] = {}
    for number, (record, where) in enumerate(read_json.read_records(benchmark.find_file(data.folder, FILE), _Record)):
        name = str(number)
        try:
            numbers[name], image = int(record.image_id), base64.b64decode(record.image, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{where}: image_id must be a number, and image base64: {error}") from error
        text = f"<image>\n{benchmark.as_written(record.question)}"
        asked.append(benchmark.ask_at_length(name, text, (image,), "object-halbench"))
    truths = _read_truths(data.folder, frozenset(numbers.values()), words)

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        names = [one.name for one in asked if one.item in replies.items]
        return _mark([(replies.texts.get(name, ""), truths[numbers[name]]) for name in names], words)

    return benchmark.Exam(questions=asked, mark=mark, read_answers=False, notes=NOTES)


def _read_truths(folder: Path, wanted: frozenset[int], words: CocoWords) -> dict[int, set[str]]:
    truths: dict[int, set[str]] = {number: set() for number in wanted}
    seen: set[int] = set()
    for split in SPLITS:
        path = folder / "annotations" / f"instances_{split}2014.json"
        if not path.is_file():
            continue
        held = _read_object(path, "images", "categories", "annotations")
        kinds = [read_json.check_record(value, _Category, f"{path}: categories") for value in held["categories"]]
        names = {kind.id: words.kinds.get(kind.name) for kind in kinds}
        seen |= {image["id"] for image in held["images"] if _refers_to(image, "id", wanted)}
        for one in _annotations(held, path, _Instance, wanted):
            if name := names.get(one.category_id):
                truths[one.image_id].add(name)
        captions = benchmark.find_file(folder, f"annotations/captions_{split}2014.json")
        for one in _annotations(_read_object(captions, "annotations"), captions, _Caption, wanted):
            truths[one.image_id] |= {name for _, name in words.find(one.caption)}
    if missing := sorted(wanted - seen):
        raise ConfigError(
            f"--data {folder}: annotations/instances_val2014.json and _train2014.json say nothing of image {missing[0]}"
        )
    return truths


def _annotations(
    held: dict[str, list[Any]], path: Path, kind: type[read_json.M], wanted: frozenset[int]
) -> Iterator[read_json.M]:
    for value, where in read_json.number_records(held["annotations"], f"{path}: annotations"):
        if _refers_to(value, "image_id", wanted):
            yield read_json.check_record(value, kind, where)


def _refers_to(value: Any, field: str, wanted: frozenset[int]) -> bool:
    return isinstance(value, dict) and isinstance(value.get(field), int) and value[field] in wanted


def _read_object(path: Path, *fields: str) -> dict[str, list[Any]]:
    held = read_json.parse_json(read_json.read_text(path), str(path))
    if not isinstance(held, dict) or not all(isinstance(held.get(field), list) for field in fields):
        raise ConfigError(f"{path}: expected an object with lists: {', '.join(fields)}")
    return held


def _mark(answers: list[tuple[str, set[str]]], words: CocoWords) -> benchmark.Marked:
    """Score answers by the objects in their images; a word counts once per answer."""
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
    return benchmark.Marked(marks=[measure_ratios(ratios), measure_mean("answers that name objects", names_any)])


BENCHMARK = benchmark.Benchmark(
    name="object-halbench",
    measures="whether descriptions name COCO's objects that are not in the image (CHAIR)",
    layout=f"{FILE} (300 questions, with their images), synonyms_refine.txt of RLHF-V or CHAIR's synonyms.txt, and "
    "COCO's annotations/instances_val2014.json and captions_val2014.json, or those of train2014 for images from there",
    open=open_exam,
    rule=RULE,
)
