"""Descriptions against annotated objects, without a judge: AMBER and Object HalBench.

AMBER is by Wang et al. (2023), Object HalBench by RLHF-V. AMBER also asks yes-or-no questions. The
benchmarks' own programs tag and lemmatise with NLTK and its data, which must be fetched; Object
HalBench's published numbers use GPT-3.5, no longer served. Here a word counts if it, or its
singular by spelling rules, is listed; Object HalBench is scored by CHAIR's rules (Rohrbach et al.
2018), so that objects said to be absent also count, with COCO's 2014 annotations.
"""

import base64
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, RootModel

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.measured import Floats, Measured, measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_json import (
    ExternalRecord,
    parse_json,
    read_records,
    read_text,
    validate_record,
)
from pairwright.tasks.models.nouns import WordPipeline, find_word_pipeline

WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "feet": "foot",
    "teeth": "tooth",
    "geese": "goose",
    "mice": "mouse",
    "oxen": "ox",
    "calves": "calf",
    "knives": "knife",
    "leaves": "leaf",
    "shelves": "shelf",
    "loaves": "loaf",
    "wolves": "wolf",
    "scarves": "scarf",
    "halves": "half",
    "wives": "wife",
}
PLURALS = (("ies", "y"), ("es", ""), ("s", ""))  # endings of plurals and their singulars


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


def singular_in(word: str, vocabulary: Container[str]) -> str | None:
    """Return the word or its singular, whichever is in a vocabulary, or ``None``."""
    forms = [word]
    if word in IRREGULAR:
        forms.append(IRREGULAR[word])
    elif word.endswith("men"):
        forms.append(f"{word[:-3]}man")
    for ending, singular in PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            forms.append(word.removesuffix(ending) + singular)
    return next((form for form in forms if form in vocabulary), None)


# --- AMBER ---

VECTORS = "en_core_web_lg"
GENERATIVE = "generative"
ALIKE = 0.8
NO_NOUNS = frozenset(("can", "file", "hot", "leave", "sound", "support", "watch"))
"""Words of the lists that are rarely nouns in descriptions, ignored without a tagger (ours)."""
AMBER_RULE = (
    "The first word of the answer must be yes or no, in any case (AMBER's own program accepts the "
    "answers Yes and No alone); anything else is wrong. Positive for precision, recall and F1 is "
    '"no", as in AMBER.'
)
EXACT = (
    f"CHAIR, Cover, Hal, Cog: without {VECTORS}, all words are matched literally with AMBER's "
    "lists; its own program has NLTK find the nouns, and also accepts similar words (cosine above "
    "0.8): it finds fewer hallucinations, and more coverage"
)
OWN_NOUNS = f"nouns are found by {VECTORS}; AMBER's own program has NLTK find them"


class _Query(ExternalRecord):
    id: int
    image: str
    query: str


class _Annotation(ExternalRecord):
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
        if self.pipeline:
            words = self.pipeline.nouns(text)
        else:
            words = [word for word in words_in(text) if word not in NO_NOUNS]
        singulars = [singular_in(word, self._vocabulary) for word in words]
        return [word for word in singulars if word]

    @cached_property
    def _vocabulary(self) -> frozenset[str]:
        vocabulary = set(self.associated)
        for words in self.associated.values():
            vocabulary.update(words)
        return frozenset(vocabulary)

    def match_object(
        self,
        word: str,
        objects: Sequence[str],
        *,
        alike: bool = False,
    ) -> int | None:
        """Return the index of the object that a word stands for, by the lists or by similarity.

        Associated words come before the objects' own names.
        """
        entries: list[tuple[str, int]] = []
        for index, name in enumerate(objects):
            entries += [(associated, index) for associated in self.associated[name]]
        entries += [(name, index) for index, name in enumerate(objects)]
        for entry, index in entries:
            is_match = self._is_alike(word, entry) if alike else entry == word
            if is_match:
                return index
        return None

    def _is_alike(self, word: str, other: str) -> bool:
        return self.pipeline is not None and self.pipeline.likeness(word, other) > ALIKE


def open_amber(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of AMBER's published files."""
    lists = _read_lists(data.folder)
    path = benchmark.find_file(data.folder, "annotations.json")
    annotations: dict[int, tuple[_Annotation, str]] = {}
    for annotation, where in read_records(path, _Annotation):
        annotations[annotation.id] = (annotation, where)
    questions: list[AmberQuestion] = []
    path = benchmark.find_file(data.folder, "query_all.json", "query/query_all.json")
    for query, where in read_records(path, _Query):
        if query.id not in annotations:
            raise ConfigError(f"{where}: id: {query.id} is not in annotations.json")
        image = benchmark.find_image(data.folder, f"image/{query.image}", query.image, where=where)
        annotation, annotation_where = annotations[query.id]
        name = str(query.id)
        question = AmberQuestion(
            name=name,
            item=name,
            text=f"<image>\n{benchmark.as_written(query.query)}",
            images=(image,),
            prompt="amber",
            **_read_truth(annotation, annotation_where, lists=lists),
        )
        questions.append(question)

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        counted = [question for question in questions if question.item in replies.items]
        return _mark_amber(counted, lists, replies)

    notes: tuple[str, ...] = ()
    if any(not question.truth for question in questions):
        notes = (OWN_NOUNS if lists.pipeline else EXACT,)
    return benchmark.Exam(questions=questions, mark=mark, notes=notes)


def _read_lists(folder: Path) -> Lists:
    path = benchmark.find_file(folder, "relation.json")
    content = parse_json(read_text(path), str(path))
    try:
        relations = RootModel[dict[str, list[str]]].model_validate(content, strict=True).root
    except ValueError as error:
        raise ConfigError(f"{path}: expected an object of lists of words") from error
    associated: dict[str, list[str]] = {}
    for name, words in relations.items():
        associated[name] = [word.lower() for word in words]
    lines = read_text(benchmark.find_file(folder, "safe_words.txt")).split("\n")
    safe = frozenset(line.strip() for line in lines)
    return Lists(associated, safe, find_word_pipeline(VECTORS, folder, "AMBER"))


def _read_truth(
    annotation: _Annotation,
    where: str,
    *,
    lists: Lists,
) -> dict[str, Any]:
    """Return the fields of a question that its annotation determines."""
    is_description = annotation.type == GENERATIVE
    fields: dict[str, Any] = {
        "max_tokens": benchmark.LONG if is_description else benchmark.SHORT,
    }
    truth = annotation.truth
    if truth in ("yes", "no"):
        category = annotation.type.removeprefix("discriminative-").replace("-", ": ")
        category = category.replace("hallucination", "existence")
        return {**fields, "truth": str(truth), "category": category}
    if not isinstance(truth, list) or annotation.hallu is None:
        raise ConfigError(f"{where}: truth must be yes or no, or truth and hallu lists of words")
    for word in (*truth, *annotation.hallu):
        if word not in lists.associated:
            raise ConfigError(f"{where}: relation.json has no {word!r}")
    return {**fields, "truths": tuple(truth), "decoys": tuple(annotation.hallu)}


def _mark_amber(
    questions: Sequence[AmberQuestion], lists: Lists, replies: benchmark.Replies
) -> benchmark.Marked:
    described = [question for question in questions if not question.truth]
    doubts = [question for question in questions if question.truth]
    answers = _read_verdicts(doubts, replies)
    marks: list[Measured] = []
    chair: tuple[Floats, Floats] | None = None
    if described:
        counts = _count_all(described, lists, replies)
        chair = (counts.absent, counts.mentions)
        marks += _mark_descriptions(counts)
    for category, group in _group_doubts(doubts).items():
        marks.append(measure_ratios(_ratios(group, answers), category=category))
    if chair and doubts:
        marks.append(_overall(chair, _ratios(doubts, answers)["F1"]))
    read = {question.name: "" for question in described if question.name in replies.texts}
    return benchmark.Marked(marks=marks, taken=answers | read)


def _read_verdicts(doubts: Sequence[AmberQuestion], replies: benchmark.Replies) -> dict[str, str]:
    """Return the readable answers to yes-or-no questions."""
    verdicts: dict[str, str] = {}
    for question in doubts:
        words = words_in(replies.texts.get(question.name, ""))
        if words and words[0] in ("yes", "no"):
            verdicts[question.name] = words[0]
    return verdicts


def _group_doubts(doubts: Sequence[AmberQuestion]) -> dict[str, list[AmberQuestion]]:
    """Return the yes-or-no questions of all, of each category, and of its part."""
    groups: dict[str, list[AmberQuestion]] = {}
    if doubts:
        groups["discriminative"] = list(doubts)
    for question in doubts:
        category = question.category
        for name in dict.fromkeys((category.split(":")[0], category)):
            groups.setdefault(name, []).append(question)
    return groups


class DescriptionCounts(NamedTuple):
    """Counts per description, each ``(descriptions,)``."""

    mentions: Floats
    absent: Floats  # hallucinated mentions
    covered: Floats  # covered truths
    truths: Floats
    imagined: Floats  # hallucinated decoys
    decoys: Floats


def _count_all(
    described: Sequence[AmberQuestion], lists: Lists, replies: benchmark.Replies
) -> DescriptionCounts:
    rows = [_count(replies.texts.get(question.name, ""), question, lists) for question in described]
    return DescriptionCounts(*np.array(rows, np.float64).T)


def _mark_descriptions(counts: DescriptionCounts) -> list[Measured]:
    ratios = {
        "CHAIR": (counts.absent, counts.mentions),
        "Cover": (counts.covered, counts.truths),
        "Cog": (counts.imagined, counts.decoys),
    }
    hallucinates = np.array(counts.absent > 0, np.float64)
    return [
        measure_ratios(ratios, category=GENERATIVE),
        measure_mean("Hal", hallucinates, category=GENERATIVE),
    ]


def _count(
    text: str,
    question: AmberQuestion,
    lists: Lists,
) -> tuple[int, int, int, int, int, int]:
    """Count the mentions of a description in the order of ``DescriptionCounts``."""
    mentions = lists.mentions(text)
    covered: set[int] = set()
    imagined: set[int] = set()
    absent = 0
    for word in mentions:
        if word in lists.safe:
            continue
        truth = lists.match_object(word, question.truths)
        if truth is None:
            imagined |= _match_decoys(word, question, lists)
            truth = lists.match_object(word, question.truths, alike=True)
        if truth is None:
            absent += 1
        else:
            covered.add(truth)
    return (
        len(mentions),
        absent,
        len(covered),
        len(question.truths),
        len(imagined),
        len(question.decoys),
    )


def _match_decoys(
    word: str,
    question: AmberQuestion,
    lists: Lists,
) -> set[int]:
    literal = lists.match_object(word, question.decoys)
    similar = lists.match_object(word, question.decoys, alike=True)
    return {decoy for decoy in (literal, similar) if decoy is not None}


def _ratios(
    doubts: Sequence[AmberQuestion], answers: Mapping[str, str]
) -> dict[str, tuple[Floats, Floats]]:
    given_answers = [answers.get(question.name) for question in doubts]
    truths = [question.truth for question in doubts]
    pairs = zip(given_answers, truths, strict=True)
    denied = np.array([answer == "no" for answer in given_answers], np.float64)
    false = np.array([truth == "no" for truth in truths], np.float64)
    right = np.array([answer == truth for answer, truth in pairs], np.float64)
    return {
        "accuracy": (right, np.ones(len(doubts))),
        "precision": (denied * false, denied),
        "recall": (denied * false, false),
        "F1": (2 * denied * false, denied + false),
    }


def _overall(chair: tuple[Floats, Floats], f1: tuple[Floats, Floats]) -> Measured:
    """Return AMBER's own score: the mean of F1 and 1 - CHAIR."""
    split = len(chair[0])
    rows = np.zeros((split + len(f1[0]), 4))
    rows[:split, :2] = np.stack(chair, axis=1)
    rows[split:, 2:] = np.stack(f1, axis=1)
    parts = measure_ratios({"CHAIR": (rows[:, 0], rows[:, 1]), "F1": (rows[:, 2], rows[:, 3])})

    def average(sums: Floats) -> Floats:
        scores = parts.conclude(sums)
        return (1 - scores[..., :1] + scores[..., 1:]) / 2

    return replace(parts, names=("AMBER score",), conclude=average)


# --- Object HalBench ---

QUESTIONS = "obj_halbench_300_with_image.jsonl"
HALBENCH_NOTES = (
    "objects are found by CHAIR's word list, not by GPT-3.5 as in published numbers: compare only "
    "with scores of this program",
    "response: answers that name an object that is not there, of those that name any; mention: "
    "such objects, of all that are named, each once per answer; recall: objects in the images that "
    "are named",
)
HALBENCH_RULE = (
    "Each word of CHAIR's list, or its plural, is an object; "
    "answers of three words or fewer name none."
)
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


class _Record(ExternalRecord):
    image_id: int | str
    image: str
    question: str


class _Named(ExternalRecord):
    """Image or category of COCO."""

    id: int
    name: str = ""


class _About(ExternalRecord):
    """Annotation of an image: an object, or a caption."""

    image_id: int
    category_id: int = 0
    caption: str = ""


class _Coco(ExternalRecord):
    images: list[_Named] = Field(default_factory=list[_Named])
    categories: list[_Named] = Field(default_factory=list[_Named])
    annotations: list[_About]


@dataclass(frozen=True)
class CocoWords:
    """Words for COCO's objects."""

    kinds: dict[str, str]  # object by word or phrase

    def find_objects(self, text: str) -> list[tuple[str, str]]:
        """Return each word for an object in a text, with the object."""
        words = [singular_in(word, self._parts) or word for word in words_in(text)]
        names = self._join_doubles(words)
        if "toilet" in names and "seat" in names:  # a toilet's seat is not a chair
            names = [name for name in names if name != "seat"]
        return [(name, self.kinds[name]) for name in names if name in self.kinds]

    def _join_doubles(self, words: Sequence[str]) -> list[str]:
        """Join two-word names: "traffic light", "baby elephant"."""
        names: list[str] = []
        position = 0
        while position < len(words):
            double = self._doubles.get(" ".join(words[position : position + 2]))
            names.append(double or words[position])
            position += 2 if double else 1
        return names

    @cached_property
    def _doubles(self) -> dict[str, str]:
        doubles = {word: word for word in self.kinds if word.count(" ") == 1}
        for animal in ANIMALS:
            doubles[f"baby {animal}"] = animal
            doubles[f"adult {animal}"] = animal
        for vehicle in ("jet", "train"):
            doubles[f"passenger {vehicle}"] = vehicle
        return doubles | SPECIAL

    @cached_property
    def _parts(self) -> frozenset[str]:
        parts: set[str] = set()
        for name in (*self.kinds, *self._doubles):
            parts.update(name.split())
        return frozenset(parts)


def read_coco_words(path: Path) -> CocoWords:
    """Return the words of a file: a line per object, its own name first."""
    kinds: dict[str, str] = {}
    for line in read_text(path).split("\n"):
        words = [word.strip() for word in line.split(",")]
        kinds |= {word: words[0] for word in words if word}
    return CocoWords(kinds)


def open_halbench(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of Object HalBench's published file."""
    path = benchmark.find_file(data.folder, "synonyms_refine.txt", "synonyms.txt")
    vocabulary = read_coco_words(path)
    questions: list[benchmark.ExamQuestion] = []
    image_ids: dict[str, int] = {}
    records = read_records(benchmark.find_file(data.folder, QUESTIONS), _Record)
    for number, (record, where) in enumerate(records):
        name = str(number)
        try:
            image_ids[name] = int(record.image_id)
            image = base64.b64decode(record.image, validate=True)
        except ValueError as error:
            raise ConfigError(
                f"{where}: image_id must be a number, and image base64: {error}"
            ) from error
        text = f"<image>\n{benchmark.as_written(record.question)}"
        questions.append(benchmark.ask_at_length(name, text, (image,), "object-halbench"))
    truths = _read_truths(data.folder, frozenset(image_ids.values()), vocabulary)

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        answers: list[tuple[str, set[str]]] = []
        for question in questions:
            if question.item in replies.items:
                text = replies.texts.get(question.name, "")
                answers.append((text, truths[image_ids[question.name]]))
        return _mark_halbench(answers, vocabulary)

    return benchmark.Exam(questions=questions, mark=mark, read_answers=False, notes=HALBENCH_NOTES)


Truths = dict[int, set[str]]
"""Objects by image."""


def _read_truths(
    folder: Path,
    image_ids: frozenset[int],
    vocabulary: CocoWords,
) -> Truths:
    """Return the objects in each image: those annotated, and those that its captions name."""
    truths: Truths = {image_id: set() for image_id in image_ids}
    missing = set(image_ids)
    for split in ("val", "train"):
        path = folder / "annotations" / f"instances_{split}2014.json"
        if not path.is_file():
            continue
        instances = _read_coco(path)
        missing -= {image.id for image in instances.images}
        _add_annotated(truths, instances, vocabulary)
        captions = benchmark.find_file(folder, f"annotations/captions_{split}2014.json")
        _add_captioned(truths, _read_coco(captions), vocabulary)
    if missing:
        raise ConfigError(
            f"--data {folder}: instances_val2014.json and _train2014.json lack image {min(missing)}"
        )
    return truths


def _add_annotated(truths: Truths, instances: _Coco, vocabulary: CocoWords) -> None:
    """Add the annotated objects to the truths of their images."""
    kinds = {category.id: vocabulary.kinds.get(category.name) for category in instances.categories}
    for annotation in instances.annotations:
        kind = kinds.get(annotation.category_id)
        if kind and annotation.image_id in truths:
            truths[annotation.image_id].add(kind)


def _add_captioned(truths: Truths, captions: _Coco, vocabulary: CocoWords) -> None:
    """Add the objects that captions name to the truths of their images."""
    for annotation in captions.annotations:
        if annotation.image_id in truths:
            objects = vocabulary.find_objects(annotation.caption)
            truths[annotation.image_id].update(kind for _, kind in objects)


def _read_coco(path: Path) -> _Coco:
    return validate_record(parse_json(read_text(path), str(path)), _Coco, str(path))


def _mark_halbench(
    answers: Sequence[tuple[str, set[str]]], vocabulary: CocoWords
) -> benchmark.Marked:
    """Score answers by the objects in their images; a word counts once per answer."""
    mentions: list[int] = []
    absent: list[int] = []
    recalled: list[int] = []
    present: list[int] = []
    for text, objects in answers:
        mentioned: set[tuple[str, str]] = set()
        if len(text.split()) > FEW:
            mentioned.update(vocabulary.find_objects(text))
        kinds = {kind for _, kind in mentioned}
        mentions.append(len(mentioned))
        absent.append(sum(kind not in objects for _, kind in mentioned))
        recalled.append(len(objects & kinds))
        present.append(len(objects))
    named = [count > 0 for count in mentions]
    ratios: Mapping[str, tuple[list[float], list[float]]] = {
        "response (CHAIR_s)": ([count > 0 for count in absent], [*named]),
        "mention (CHAIR_i)": ([*absent], [*mentions]),
        "recall": ([*recalled], [*present]),
    }
    return benchmark.Marked(
        marks=[measure_ratios(ratios), measure_mean("answers that name objects", named)]
    )
