"""Descriptions against annotated objects: AMBER (Wang et al. 2023) and Object HalBench (RLHF-V), without a judge.

AMBER also asks yes-or-no questions. The benchmarks' own programs tag and lemmatise with NLTK and
its data, which must be fetched; Object HalBench's published numbers use GPT-3.5, no longer served.
Here a word counts if it, or its singular by spelling rules, is listed; Object HalBench is scored by
CHAIR's rules (Rohrbach et al. 2018), so that objects said to be absent also count, with COCO's 2014
annotations.
"""

import base64
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, RootModel

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.measured import Floats, Measured, measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_json import (
    Given,
    check_record,
    parse_json,
    read_records,
    read_text,
)
from pairwright.tasks.models.nouns import WordPipeline, find_word_pipeline

WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "feet": "foot", "teeth": "tooth", "geese": "goose",
    "mice": "mouse", "oxen": "ox", "calves": "calf", "knives": "knife", "leaves": "leaf", "shelves": "shelf",
    "loaves": "loaf", "wolves": "wolf", "scarves": "scarf", "halves": "half", "wives": "wife",
}  # fmt: skip
PLURALS = (("ies", "y"), ("es", ""), ("s", ""))  # endings of plurals and their singulars


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


def singular_in(word: str, known: Container[str]) -> str | None:
    """Return the word or its singular, whichever is known, or ``None``."""
    forms = [word, IRREGULAR.get(word) or (f"{word[:-3]}man" if word.endswith("men") else word)]
    forms += [
        word.removesuffix(s) + instead
        for s, instead in PLURALS
        if word.endswith(s) and len(word) > len(s) + 1
    ]
    return next((one for one in forms if one in known), None)


# --- AMBER
# ------------------------------------------------------------------------------------------------------------

VECTORS = "en_core_web_lg"
GENERATIVE = "generative"
ALIKE = 0.8
NO_NOUNS = frozenset(("can", "file", "hot", "leave", "sound", "support", "watch"))
"""Words of the lists that are rarely nouns in descriptions, ignored without a tagger (ours)."""
AMBER_RULE = (
    "The first word of the answer must be yes or no, in any case (AMBER's own program accepts the answers Yes and No "
    'alone); anything else is wrong. Positive for precision, recall and F1 is "no", as in AMBER.'
)
EXACT = (
    f"CHAIR, Cover, Hal, Cog: without {VECTORS}, all words are matched literally with AMBER's lists; its own program "
    "has NLTK find the nouns, and also accepts similar words (cosine above 0.8): it finds fewer hallucinations, and "
    "more coverage"
)
OWN_NOUNS = f"nouns are found by {VECTORS}; AMBER's own program has NLTK find them"


class _Query(Given):
    id: int
    image: str
    query: str


class _Annotation(Given):
    """Truth about an image: objects, or yes or no; and objects that models often hallucinate."""

    id: int
    type: str
    truth: list[str] | str
    hallu: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmberQuestion(benchmark.ExamQuestion):
    """Question with its truth."""

    truth: str = ""  # yes or no; empty: a description
    category: str = GENERATIVE
    truths: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()  # objects in the image, and those often hallucinated


@dataclass(frozen=True)
class Lists:
    """AMBER's word lists."""

    associated: dict[str, list[str]]  # per object, associated words
    safe: frozenset[str]  # words that never count as hallucinated
    pipeline: WordPipeline | None  # finds nouns and similar words; ``None``: not installed

    def mentions(self, text: str) -> list[str]:
        """Return the listed words in a text."""
        words = (
            self.pipeline.nouns(text)
            if self.pipeline
            else [w for w in words_in(text) if w not in NO_NOUNS]
        )
        return [known for word in words if (known := singular_in(word, self._things))]

    @cached_property
    def _things(self) -> frozenset[str]:
        return frozenset(self.associated) | {
            word for words in self.associated.values() for word in words
        }

    def find(self, word: str, things: Sequence[str], *, alike: bool = False) -> int | None:
        """Return which of some objects a word stands for, by the lists or by similarity; associated words first."""
        words = [
            (word, place) for place, thing in enumerate(things) for word in self.associated[thing]
        ]
        words += [(thing, place) for place, thing in enumerate(things)]
        if not alike:
            return next((place for known, place in words if known == word), None)
        like = self.pipeline.likeness if self.pipeline else lambda *_: 0.0
        return next((place for known, place in words if like(word, known) > ALIKE), None)


def open_amber(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of AMBER's published files."""
    path = benchmark.find_file(data.folder, "relation.json")
    try:
        held = (
            RootModel[dict[str, list[str]]]
            .model_validate(parse_json(read_text(path), str(path)), strict=True)
            .root
        )
    except ValueError as error:
        raise ConfigError(f"{path}: expected an object of lists of words") from error
    safe = frozenset(
        map(str.strip, read_text(benchmark.find_file(data.folder, "safe_words.txt")).split("\n"))
    )
    associated = {thing: [word.lower() for word in words] for thing, words in held.items()}
    lists = Lists(associated, safe, find_word_pipeline(VECTORS, data.folder, "AMBER"))
    annotations = read_records(benchmark.find_file(data.folder, "annotations.json"), _Annotation)
    truths = {one.id: (one, where) for one, where in annotations}
    asked: list[AmberQuestion] = []
    path = benchmark.find_file(data.folder, "query_all.json", "query/query_all.json")
    for query, where in read_records(path, _Query):
        if query.id not in truths:
            raise ConfigError(f"{where}: id: {query.id} is not in annotations.json")
        image = benchmark.find_image(data.folder, f"image/{query.image}", query.image, where=where)
        own: dict[str, Any] = _read_truth(*truths[query.id], lists=lists)
        name, text = str(query.id), f"<image>\n{benchmark.as_written(query.query)}"
        asked.append(
            AmberQuestion(name=name, item=name, text=text, images=(image,), prompt="amber", **own)
        )

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        return _mark_amber([one for one in asked if one.item in replies.items], lists, replies)

    notes = (OWN_NOUNS if lists.pipeline else EXACT,)
    return benchmark.Exam(
        questions=asked, mark=mark, notes=notes if any(not one.truth for one in asked) else ()
    )


def _read_truth(one: _Annotation, where: str, *, lists: Lists) -> dict[str, Any]:
    own = {"max_tokens": benchmark.LONG if one.type == GENERATIVE else benchmark.SHORT}
    if one.truth in ("yes", "no"):
        category = (
            one.type.removeprefix("discriminative-")
            .replace("-", ": ")
            .replace("hallucination", "existence")
        )
        return {**own, "truth": str(one.truth), "category": category}
    if not isinstance(one.truth, list) or one.hallu is None:
        raise ConfigError(f"{where}: truth must be yes or no, or truth and hallu lists of words")
    if unknown := [word for word in (*one.truth, *one.hallu) if word not in lists.associated]:
        raise ConfigError(f"{where}: relation.json has no {unknown[0]!r}")
    return {**own, "truths": tuple(one.truth), "decoys": tuple(one.hallu)}


def _mark_amber(
    asked: Sequence[AmberQuestion], lists: Lists, replies: benchmark.Replies
) -> benchmark.Marked:
    described, doubts = [one for one in asked if not one.truth], [one for one in asked if one.truth]
    first = {one.name: " ".join(words_in(replies.texts.get(one.name, ""))[:1]) for one in doubts}
    said = {name: word for name, word in first.items() if word in ("yes", "no")}
    groups = {"discriminative": doubts} if doubts else {}
    for one in doubts:
        for name in dict.fromkeys((one.category.split(":")[0], one.category)):
            groups[name] = [*groups.get(name, ()), one]
    marks = [measure_ratios(_ratios(own, said), category=name) for name, own in groups.items()]
    if described:
        counts = np.array(
            [_count(replies.texts.get(one.name, ""), one, lists) for one in described], np.float64
        )
        mentions, absent, covered, truths, imagined, decoys = counts.T
        ratios = {
            "CHAIR": (absent, mentions),
            "Cover": (covered, truths),
            "Cog": (imagined, decoys),
        }
        hal = measure_mean("Hal", absent > 0, category=GENERATIVE)
        marks = [measure_ratios(ratios, category=GENERATIVE), hal, *marks]
        if doubts:
            marks.append(_overall((absent, mentions), _ratios(doubts, said)["F1"]))
    return benchmark.Marked(
        marks=marks, taken=said | {one.name: "" for one in described if one.name in replies.texts}
    )


def _count(text: str, asked: AmberQuestion, lists: Lists) -> tuple[int, int, int, int, int, int]:
    """Return mentions, hallucinated ones, covered truths, truths, hallucinated decoys, and decoys."""
    mentions, covered, imagined, absent = lists.mentions(text), set[int](), set[int](), 0
    for word in (word for word in mentions if word not in lists.safe):
        place = lists.find(word, asked.truths)
        if place is None:
            decoys = (lists.find(word, asked.decoys), lists.find(word, asked.decoys, alike=True))
            imagined.update(decoy for decoy in decoys if decoy is not None)
            place = lists.find(word, asked.truths, alike=True)
        if place is None:
            absent += 1
        else:
            covered.add(place)
    return len(mentions), absent, len(covered), len(asked.truths), len(imagined), len(asked.decoys)


def _ratios(
    doubts: Sequence[AmberQuestion], said: Mapping[str, str]
) -> dict[str, tuple[Floats, Floats]]:
    denied = np.array([said.get(one.name) == "no" for one in doubts], np.float64)
    false = np.array([one.truth == "no" for one in doubts], np.float64)
    right = np.array([said.get(one.name) == one.truth for one in doubts], np.float64)
    return {
        "accuracy": (right, np.ones(len(doubts))),
        "precision": (denied * false, denied),
        "recall": (denied * false, false),
        "F1": (2 * denied * false, denied + false),
    }


def _overall(chair: tuple[Floats, Floats], f1: tuple[Floats, Floats]) -> Measured:
    """Return AMBER's own score: the mean of F1 and 1 - CHAIR."""
    rows = np.zeros((len(chair[0]) + len(f1[0]), 4))
    rows[: len(chair[0]), :2], rows[len(chair[0]) :, 2:] = (
        np.stack(chair, axis=1),
        np.stack(f1, axis=1),
    )
    parts = measure_ratios({"CHAIR": (rows[:, 0], rows[:, 1]), "F1": (rows[:, 2], rows[:, 3])})

    def conclude(sums: Floats) -> Floats:
        found = parts.conclude(sums)
        return (1 - found[..., :1] + found[..., 1:]) / 2

    return replace(parts, names=("AMBER score",), conclude=conclude)


# --- Object HalBench
# --------------------------------------------------------------------------------------------------

QUESTIONS = "obj_halbench_300_with_image.jsonl"
HALBENCH_NOTES = (
    "objects are found by CHAIR's word list, not by GPT-3.5 as in published numbers: compare only with scores of this "
    "program",
    "response: answers that name an object that is not there, of those that name any; mention: such objects, of all "
    "that are named, each once per answer; recall: objects in the images that are named",
)
HALBENCH_RULE = "Each word of CHAIR's list, or its plural, is an object; answers of three words or fewer name none."
FEW = 3  # answers of so few words name nothing
ANIMALS = (
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "animal",
    "cub",
)
SPECIAL = {
    "bow tie": "tie",
    "toilet seat": "toilet",
    "home plate": "home plate",
    "train track": "train track",
}
"""Two-word names of one object, or of none of COCO's."""


class _Record(Given):
    image_id: int | str
    image: str
    question: str


class _Named(Given):
    """Image or category of COCO."""

    id: int
    name: str = ""


class _About(Given):
    """Annotation of an image: an object, or a caption."""

    image_id: int
    category_id: int = 0
    caption: str = ""


class _Coco(Given):
    images: list[_Named] = Field(default_factory=list[_Named])
    categories: list[_Named] = Field(default_factory=list[_Named])
    annotations: list[_About]


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
        if "toilet" in joined and "seat" in joined:  # a toilet's seat is not a chair
            joined = [word for word in joined if word != "seat"]
        return [(word, self.kinds[word]) for word in joined if word in self.kinds]

    @cached_property
    def _doubles(self) -> dict[str, str]:
        own = {word: word for word in self.kinds if word.count(" ") == 1}
        young = {f"{age} {animal}": animal for age in ("baby", "adult") for animal in ANIMALS}
        return (
            own
            | young
            | {f"passenger {vehicle}": vehicle for vehicle in ("jet", "train")}
            | SPECIAL
        )

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for words in (*self.kinds, *self._doubles) for part in words.split())


def read_coco_words(path: Path) -> CocoWords:
    """Return the words of a file: a line per object, its own name first."""
    lines = [
        [word.strip() for word in line.split(",")]
        for line in read_text(path).split("\n")
        if line.strip()
    ]
    return CocoWords({word: line[0] for line in lines for word in line if word})


def open_halbench(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of Object HalBench's published file."""
    words = read_coco_words(benchmark.find_file(data.folder, "synonyms_refine.txt", "synonyms.txt"))
    asked, numbers = list[benchmark.ExamQuestion](), dict[str, int]()
    for number, (record, where) in enumerate(
        read_records(benchmark.find_file(data.folder, QUESTIONS), _Record)
    ):
        name = str(number)
        try:
            numbers[name], image = (
                int(record.image_id),
                base64.b64decode(record.image, validate=True),
            )
        except ValueError as error:
            raise ConfigError(
                f"{where}: image_id must be a number, and image base64: {error}"
            ) from error
        text = f"<image>\n{benchmark.as_written(record.question)}"
        asked.append(benchmark.ask_at_length(name, text, (image,), "object-halbench"))
    truths = _read_truths(data.folder, frozenset(numbers.values()), words)

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        names = [one.name for one in asked if one.item in replies.items]
        return _mark_halbench(
            [(replies.texts.get(name, ""), truths[numbers[name]]) for name in names], words
        )

    return benchmark.Exam(questions=asked, mark=mark, read_answers=False, notes=HALBENCH_NOTES)


def _read_truths(folder: Path, wanted: frozenset[int], words: CocoWords) -> dict[int, set[str]]:
    """Return the objects in each image: those annotated, and those that its captions name."""
    truths: dict[int, set[str]] = {number: set() for number in wanted}
    missing = set(wanted)
    for split in ("val", "train"):
        path = folder / "annotations" / f"instances_{split}2014.json"
        if not path.is_file():
            continue
        held = check_record(parse_json(read_text(path), str(path)), _Coco, str(path))
        missing -= {image.id for image in held.images}
        kinds = {kind.id: words.kinds.get(kind.name) for kind in held.categories}
        for one in held.annotations:
            if one.image_id in wanted and (kind := kinds.get(one.category_id)):
                truths[one.image_id].add(kind)
        captions = benchmark.find_file(folder, f"annotations/captions_{split}2014.json")
        for said in check_record(
            parse_json(read_text(captions), str(captions)), _Coco, str(captions)
        ).annotations:
            if said.image_id in wanted:
                truths[said.image_id] |= {kind for _, kind in words.find(said.caption)}
    if missing:
        raise ConfigError(
            f"--data {folder}: instances_val2014.json and _train2014.json lack image {min(missing)}"
        )
    return truths


def _mark_halbench(answers: list[tuple[str, set[str]]], words: CocoWords) -> benchmark.Marked:
    """Score answers by the objects in their images; a word counts once per answer."""
    rows = [
        ({*words.find(text)} if len(text.split()) > FEW else set[tuple[str, str]](), there)
        for text, there in answers
    ]
    absent = [sum(kind not in there for _, kind in own) for own, there in rows]
    found = [len(there & {kind for _, kind in own}) for own, there in rows]
    named = [bool(own) for own, _ in rows]
    ratios: Mapping[str, tuple[list[float], list[float]]] = {
        "response (CHAIR_s)": ([count > 0 for count in absent], [*named]),
        "mention (CHAIR_i)": ([*absent], [len(own) for own, _ in rows]),
        "recall": ([*found], [len(there) for _, there in rows]),
    }
    return benchmark.Marked(
        marks=[measure_ratios(ratios), measure_mean("answers that name objects", named)]
    )
