"""NLVR2 (Suhr et al. 2019): is a statement about two photographs true?"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import (
    Asked,
    Benchmark,
    Data,
    Exam,
    Marked,
    Replies,
    find_file,
    find_image,
    mark_mean,
)
from pairwright.tasks.evaluation.benchmarks.choices import RULE, Choice, grade
from pairwright.tasks.evaluation.benchmarks.published import STATEMENT, read_published
from pairwright.tasks.evaluation.read_json import Given, read_records

PUBLISHED, OWN = "NLVR2.jsonl", ("test1.json", "test2.json", "dev.json", "balanced_test1.json", "balanced_test2.json")
PROMPT = "judge_statement"
OPTIONS = ("True", "False")


class Record(Given):
    """Be a line of NLVR2's own files."""

    sentence: str
    label: str
    identifier: str


def open_exam(data: Data) -> Exam:
    """Return the questions of paper 003's file, or of one of NLVR2's own."""
    path = find_file(data.folder, PUBLISHED, *OWN)
    choices = list(_published(path) if path.name == PUBLISHED else _read(path))

    def mark(replies: Replies) -> Marked:
        taken, right = grade(choices, replies)
        marks = [mark_mean("accuracy", list(right.values())), mark_mean("consistency", _consistent(choices, right))]
        return Marked(marks=marks, taken=taken)

    note = "consistency: share of the statements that were judged rightly of all pairs that they are made of"
    return Exam(questions=[choice.asked for choice in choices], mark=mark, notes=(note,))


def _consistent(choices: Sequence[Choice], right: dict[str, bool]) -> list[bool]:
    """Say of each statement whether all its answers are right."""
    held: dict[str, bool] = {}
    for choice in choices:
        if choice.asked.name in right:
            statement = choice.asked.words[0]
            held[statement] = held.get(statement, True) and right[choice.asked.name]
    return list(held.values())


def _published(path: Path) -> Iterator[Choice]:
    for one in read_published(path, STATEMENT, OPTIONS):
        yield _choice(one.name, one.images, one.words, answer=one.answer)


def _read(path: Path) -> Iterator[Choice]:
    for record, where in read_records(path, Record):
        parts = record.identifier.split("-")
        if len(parts) != 4 or record.label not in OPTIONS:
            raise ConfigError(f"{where}: identifier must be SPLIT-SET-PAIR-SENTENCE, and label True or False")
        stem = "-".join(parts[:3])
        first, second = (find_image(path.parent, f"{stem}-img{side}.png", where=where) for side in (0, 1))
        yield _choice(record.identifier, (first, second), record.sentence, answer=record.label)


def _choice(name: str, images: tuple[Path, Path], statement: str, *, answer: str) -> Choice:
    asked = Asked(
        name=name,
        item=name,
        text=_ask((statement,)),
        images=images,
        prompt=PROMPT,
        words=(statement,),
        reword=_ask,
    )
    return Choice(asked=asked, answer=answer, options=OPTIONS)


def _ask(words: Sequence[str]) -> str:
    return load(PROMPT).render(statement=as_written(words[0]))


BENCHMARK = Benchmark(
    name="nlvr2",
    measures="whether a statement about two photographs is true (chance: 50 %)",
    layout=f"{PUBLISHED} (paper 003: 150 questions) or one of {', '.join(OWN)}, and the images, also below images/: "
    "test1-463-0-img0.png",
    open=open_exam,
    rule=RULE,
)
