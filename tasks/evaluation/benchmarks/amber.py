"""AMBER (Wang et al. 2023): descriptions against annotated objects, and yes-or-no questions, without a judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import RootModel

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.benchmarks.known_words import singular_in, words_in
from pairwright.tasks.evaluation.measured import Floats, Measured, measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_json import Given, parse_json, read_records, read_text
from pairwright.tasks.models.nouns import WordPipeline, find_word_pipeline

VECTORS = "en_core_web_lg"
GENERATIVE = "generative"
TYPES = {
    "discriminative-hallucination": "existence",
    "discriminative-attribute-state": "attribute: state",
    "discriminative-attribute-number": "attribute: number",
    "discriminative-attribute-action": "attribute: action",
    "discriminative-relation": "relation",
    "relation": "relation",
}
ALIKE = 0.8
NO_NOUNS = frozenset(("can", "file", "hot", "leave", "sound", "support", "watch"))
"""Words of the lists that are rarely nouns in descriptions, ignored without a tagger (ours)."""
RULE = (
    "Yes or no is the first word of the answer, in any case (AMBER's own program takes Yes and No alone, once answers "
    'are put into that form); anything else is wrong. Positive for precision, recall and F1 is "no", as in AMBER.'
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


class Annotation(Given):
    """Truth about an image: objects, or yes or no; and objects that models often hallucinate."""

    id: int
    type: str
    truth: list[str] | str
    hallu: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmberQuestion(benchmark.ExamQuestion):
    """Question with its truth."""

    truth: str = ""  # Yes or no; empty: a description
    category: str = GENERATIVE
    truths: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()  # objects in the image, and those often hallucinated


@dataclass(frozen=True)
class Lists:
    """AMBER's word lists."""

    associated: dict[str, list[str]]  # per object, associated words
    safe: frozenset[str]  # words that never count as hallucinated
    pipeline: WordPipeline | None  # finds nouns and similar words; ``None``: not installed

    @cached_property
    def things(self) -> frozenset[str]:
        """Return all words of the lists."""
        return frozenset(self.associated) | {word for words in self.associated.values() for word in words}

    def mentions(self, text: str) -> list[str]:
        """Return the listed words in a text."""
        words = self.pipeline.nouns(text) if self.pipeline else [w for w in words_in(text) if w not in NO_NOUNS]
        return [known for word in words if (known := singular_in(word, self.things))]

    def find(self, word: str, things: Sequence[str], *, alike: bool = False) -> int | None:
        """Return which of some objects a word stands for, by the lists or by similarity; associated words first."""
        words = [(word, place) for place, thing in enumerate(things) for word in self.associated[thing]]
        words += [(thing, place) for place, thing in enumerate(things)]
        if not alike:
            return next((place for known, place in words if known == word), None)
        like = self.pipeline.likeness if self.pipeline else lambda *_: 0.0
        return next((place for known, place in words if like(word, known) > ALIKE), None)


def read_lists(folder: Path) -> Lists:
    """Return the lists of AMBER's data folder."""
    path = benchmark.find_file(folder, "relation.json")
    try:
        held = RootModel[dict[str, list[str]]].model_validate(parse_json(read_text(path), str(path)), strict=True).root
    except ValueError as error:
        raise ConfigError(f"{path}: expected an object of lists of words") from error
    safe = read_text(benchmark.find_file(folder, "safe_words.txt")).split("\n")
    associated = {thing: [word.lower() for word in words] for thing, words in held.items()}
    return Lists(associated, frozenset(map(str.strip, safe)), find_word_pipeline(VECTORS, folder, "AMBER"))


def open_exam(data: benchmark.Data) -> benchmark.Exam:
    """Return the questions of the published files."""
    annotations = benchmark.find_file(data.folder, "annotations.json")
    truths = {one.id: (one, where) for one, where in read_records(annotations, Annotation)}
    path = benchmark.find_file(data.folder, "query_all.json", "query/query_all.json")
    lists = read_lists(data.folder)
    asked: list[AmberQuestion] = []
    for query, where in read_records(path, _Query):
        if query.id not in truths:
            raise ConfigError(f"{where}: id: {query.id} is not in annotations.json")
        image = benchmark.find_image(data.folder, f"image/{query.image}", query.image, where=where)
        asked.append(_question(query, image, *truths[query.id], lists=lists))

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        return _mark([one for one in asked if one.item in replies.items], lists, replies)

    notes = (OWN_NOUNS if lists.pipeline else EXACT,)
    return benchmark.Exam(questions=asked, mark=mark, notes=notes if any(not one.truth for one in asked) else ())


def _question(query: _Query, image: Path, one: Annotation, where: str, *, lists: Lists) -> AmberQuestion:
    name, text = str(query.id), f"<image>\n{benchmark.as_written(query.query)}"
    tokens = benchmark.LONG if one.type == GENERATIVE else benchmark.SHORT
    asked = AmberQuestion(name=name, item=name, text=text, images=(image,), prompt="amber", max_tokens=tokens)
    if one.type != GENERATIVE:
        if one.type not in TYPES or one.truth not in ("yes", "no"):
            known = ", ".join(TYPES)
            raise ConfigError(f"{where}: type must be {GENERATIVE} or one of {known}; truth of those: yes or no")
        return replace(asked, truth=str(one.truth), category=TYPES[one.type])
    if not isinstance(one.truth, list) or one.hallu is None:
        raise ConfigError(f"{where}: truth and hallu must be lists of words")
    if unknown := [word for word in (*one.truth, *one.hallu) if word not in lists.associated]:
        raise ConfigError(f"{where}: relation.json has no {unknown[0]!r}")
    return replace(asked, truths=tuple(one.truth), decoys=tuple(one.hallu))


def _mark(asked: Sequence[AmberQuestion], lists: Lists, replies: benchmark.Replies) -> benchmark.Marked:
    described, doubts = [one for one in asked if not one.truth], [one for one in asked if one.truth]
    first = {one.name: words_in(replies.texts.get(one.name, ""))[:1] for one in doubts}
    said = {name: words[0] for name, words in first.items() if words and words[0] in ("yes", "no")}
    marks = list(_score_doubts(doubts, said))
    if described:
        counts = np.array([_count(replies.texts.get(one.name, ""), one, lists) for one in described], np.float64)
        mentions, absent, covered, truths, imagined, decoys = counts.T
        ratios = {"CHAIR": (absent, mentions), "Cover": (covered, truths), "Cog": (imagined, decoys)}
        hal = measure_mean("Hal", absent > 0, category=GENERATIVE)
        marks = [measure_ratios(ratios, category=GENERATIVE), hal, *marks]
        if doubts:
            marks.append(_overall((absent, mentions), _ratios(doubts, said)["F1"]))
    return benchmark.Marked(marks=marks, taken=said | {one.name: "" for one in described if one.name in replies.texts})


def _count(text: str, asked: AmberQuestion, lists: Lists) -> tuple[int, int, int, int, int, int]:
    """Return mentions, hallucinated ones, covered truths, truths, hallucinated decoys, and decoys."""
    mentions = lists.mentions(text)
    covered: set[int] = set()
    imagined: set[int] = set()
    absent = 0
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


def _score_doubts(doubts: Sequence[AmberQuestion], said: Mapping[str, str]) -> Iterator[Measured]:
    """Yield the scores of yes-or-no questions: over all, by category, and by the category's first part."""
    groups = {"discriminative": list(doubts)} if doubts else {}
    for one in doubts:
        for name in dict.fromkeys((one.category.split(":")[0], one.category)):
            groups.setdefault(name, []).append(one)
    return (measure_ratios(_ratios(own, said), category=name) for name, own in groups.items())


def _ratios(doubts: Sequence[AmberQuestion], said: Mapping[str, str]) -> dict[str, tuple[Floats, Floats]]:
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
    first, second = (np.stack(columns, axis=1) for columns in (chair, f1))
    rows = np.concatenate([np.pad(first, ((0, 0), (0, 2))), np.pad(second, ((0, 0), (2, 0)))])
    parts = measure_ratios({"CHAIR": ([], []), "F1": ([], [])}).conclude

    def conclude(sums: Floats) -> Floats:
        both = parts(sums)
        return (1 - both[..., :1] + both[..., 1:]) / 2

    return Measured(names=("AMBER score",), statistics=rows, conclude=conclude)


BENCHMARK = benchmark.Benchmark(
    name="amber",
    measures="what descriptions make up (CHAIR, Cover, Hal, Cog), and yes-or-no questions about things, attributes, "
    "relations",
    layout="annotations.json, query_all.json (also below query/; the questions in it are asked), relation.json, "
    f"safe_words.txt of AMBER's data folder, and the images below image/ or images/: AMBER_1.jpg; {VECTORS} of spaCy, "
    "installed or as a folder here, for words that are alike",
    open=open_exam,
    rule=RULE,
)
