"""AMBER (Wang et al. 2023): descriptions against what annotators saw, and yes-or-no questions, without any judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import (
    LONG,
    SHORT,
    Asked,
    Benchmark,
    Data,
    Exam,
    Mark,
    Marked,
    Replies,
    find_file,
    find_image,
    mark_mean,
    mark_ratios,
)
from pairwright.tasks.evaluation.benchmarks.amber_words import Lists, Scene, Tally, read_lists, tally_answer
from pairwright.tasks.evaluation.corpus import Floats, Measured
from pairwright.tasks.evaluation.known_words import words_in
from pairwright.tasks.evaluation.read_json import Given, read_records

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
RULE = (
    "Yes or no is the first word of the answer, in any case (AMBER's own program takes Yes and No alone, once answers "
    'are put into that form); anything else is wrong. Positive for precision, recall and F1 is "no", as in AMBER.'
)
EXACT = (
    f"CHAIR, Cover, Hal, Cog: {VECTORS} is not on this machine, so that words match AMBER's lists as they are, and "
    "count wherever they stand; its own program has NLTK find the nouns, and also takes words that are alike (cosine "
    "above 0.8): it finds less made up, and more covered"
)
OWN_NOUNS = f"nouns are found by {VECTORS}; AMBER's own program has NLTK find them"


class Query(Given):
    """Be a question of the published file."""

    id: int
    image: str
    query: str


class Annotation(Given):
    """Be what is true of a question's image."""

    id: int
    type: str
    truth: list[str] | str
    hallu: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Be a yes-or-no question with its answer."""

    asked: Asked
    answer: str
    category: str


def open_exam(data: Data) -> Exam:
    """Return the questions of the published files."""
    truths = {
        one.id: (one, where) for one, where in read_records(find_file(data.folder, "annotations.json"), Annotation)
    }
    path = find_file(data.folder, "query_all.json", "query/query_all.json")
    lists = read_lists(data.folder, VECTORS)
    scenes: dict[str, Scene] = {}
    doubts: list[Doubt] = []
    asked: list[Asked] = []
    for query, where in read_records(path, Query):
        if query.id not in truths:
            raise ConfigError(f"{where}: id: annotations.json says nothing of {query.id}")
        one, whence = truths[query.id]
        generative = one.type == GENERATIVE
        asked.append(
            Asked(
                name=str(query.id),
                item=str(query.id),
                text=f"<image>\n{as_written(query.query)}",
                images=(find_image(data.folder, f"image/{query.image}", query.image, where=where),),
                prompt="amber",
                most_tokens=LONG if generative else SHORT,
            )
        )
        if generative:
            scenes[str(query.id)] = lists.check_scene(one.truth, one.hallu, whence)
        else:
            doubts.append(_doubt(one, asked[-1], whence))

    def mark(replies: Replies) -> Marked:
        return _mark(scenes, doubts, lists, replies)

    notes = (OWN_NOUNS if lists.pipeline else EXACT,)
    return Exam(questions=asked, mark=mark, notes=notes if scenes else ())


def _doubt(one: Annotation, asked: Asked, where: str) -> Doubt:
    if one.type not in TYPES or one.truth not in ("yes", "no"):
        raise ConfigError(f"{where}: type must be {GENERATIVE} or one of {', '.join(TYPES)}; truth of those: yes or no")
    return Doubt(asked=asked, answer=str(one.truth), category=TYPES[one.type])


def _mark(scenes: Mapping[str, Scene], doubts: Sequence[Doubt], lists: Lists, replies: Replies) -> Marked:
    described = [name for name in scenes if name in replies.items]
    tallies = [tally_answer(replies.texts.get(name, ""), scenes[name], lists) for name in described]
    counted = [one for one in doubts if one.asked.name in replies.items]
    said = {one.asked.name: answer for one in counted if (answer := read_doubt(replies.texts.get(one.asked.name, "")))}
    marks = [*_describe(tallies), *_answer(counted, said)]
    if tallies and counted:
        marks.append(_overall(tallies, counted, said))
    return Marked(marks=marks, taken=said | {name: "" for name in described if name in replies.texts})


def read_doubt(text: str) -> str | None:
    """Return yes or no where that is the first word of an answer."""
    first = next(iter(words_in(text)), "")
    return first if first in ("yes", "no") else None


def _describe(tallies: Sequence[Tally]) -> Iterator[Mark]:
    if not tallies:
        return
    ratios = {
        "CHAIR": ([one.absent for one in tallies], [one.mentions for one in tallies]),
        "Cover": ([one.covered for one in tallies], [one.truths for one in tallies]),
        "Cog": ([one.imagined for one in tallies], [one.decoys for one in tallies]),
    }
    yield mark_ratios(ratios, category="generative")
    yield mark_mean("Hal", [one.absent > 0 for one in tallies], category="generative")


def _answer(doubts: Sequence[Doubt], said: Mapping[str, str]) -> Iterator[Mark]:
    groups = {"discriminative": list(doubts)}
    for one in doubts:
        for name in dict.fromkeys((one.category.split(":")[0], one.category)):
            groups.setdefault(name, []).append(one)
    for name, own in groups.items():
        if own:
            yield mark_ratios(_ratios(own, said), category=name)


def _ratios(doubts: Sequence[Doubt], said: Mapping[str, str]) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    answers = [said.get(one.asked.name, "") for one in doubts]
    denied = [float(answer == "no") for answer in answers]
    false = [float(one.answer == "no") for one in doubts]
    both = [one * other for one, other in zip(denied, false, strict=True)]
    right = [float(answer == one.answer) for answer, one in zip(answers, doubts, strict=True)]
    return {
        "accuracy": (right, [1.0] * len(doubts)),
        "precision": (both, denied),
        "recall": (both, false),
        "F1": ([2 * one for one in both], [one + other for one, other in zip(denied, false, strict=True)]),
    }


def _overall(tallies: Sequence[Tally], doubts: Sequence[Doubt], said: Mapping[str, str]) -> Mark:
    """Return AMBER's own score: the mean of F1 and of what of CHAIR is left to 1."""
    above, below = _ratios(doubts, said)["F1"]
    rows = [(one.absent, one.mentions, 0, 0) for one in tallies]
    rows += [(0, 0, one, other) for one, other in zip(above, below, strict=True)]

    def conclude(sums: Floats) -> Floats:
        parts = np.divide(
            sums[..., ::2], sums[..., 1::2], out=np.full_like(sums[..., ::2], np.nan), where=sums[..., 1::2] > 0
        )
        return (1 - parts[..., :1] + parts[..., 1:]) / 2

    return Mark(category="", measured=Measured(("AMBER score",), np.array(rows, np.float64), conclude))


BENCHMARK = Benchmark(
    name="amber",
    measures="what descriptions make up (CHAIR, Cover, Hal, Cog), and yes-or-no questions about things, attributes, "
    "relations",
    layout="annotations.json, query_all.json (also below query/; the questions in it are asked), relation.json, "
    f"safe_words.txt of AMBER's data folder, and the images below image/ or images/: AMBER_1.jpg; {VECTORS} of spaCy, "
    "installed or as a folder here, for words that are alike",
    open=open_exam,
    rule=RULE,
)
