"""Multiple-choice questions: asking, reading, scoring."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.prompts import load
from pairwright.tasks.evaluation.benchmark import Exam, ExamQuestion, Marked, Replies, as_written
from pairwright.tasks.evaluation.measured import Measured, measure_mean

LETTERS = ("A", "B")
TRUTHS = ("True", "False")
RULE = (
    "The answer must be the option alone, in the same case: bare, in brackets, or followed by a full stop, bracket or "
    "colon, then possibly by the option's own words. Anything else is unreadable, and counts as wrong."
)
EXACT_NOTE = "(exact): by string equality with the truth, as in paper 003's released script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(ExamQuestion):
    """Question with its right answer."""

    answer: str
    options: tuple[str, ...] = LETTERS
    labels: tuple[str, ...] = ()  # texts of lettered options
    category: str = ""


Units = Mapping[str, Callable[[Choice], Hashable]]
"""Scores by name: the share of units (of questions with one value) whose answers are all right."""
ACCURACY: Units = {"accuracy": lambda one: one.name}


def choose_image(
    name: str, images: tuple[Path, Path], caption: str, *, item: str = "", **own: str
) -> Choice:
    """Return the question which of two images fits a caption (paper 003); ``own``: answer, category."""
    labels = ("Image 1", "Image 2")
    return _ask(
        "choose_image",
        "caption",
        caption,
        name=name,
        images=images,
        item=item or name,
        labels=labels,
        **own,
    )


def judge_statement(
    name: str,
    images: tuple[Path | bytes, ...],
    statement: str,
    *,
    answer: str,
    prompt: str,
    item: str = "",
) -> Choice:
    """Return the question whether a statement about two images is true."""
    own = {
        "name": name,
        "images": images,
        "item": item or name,
        "answer": answer,
        "options": TRUTHS,
    }
    return _ask(prompt, "statement", statement, **own)


def _ask(prompt: str, field: str, said: str, **own: Any) -> Choice:
    def reword(words: Sequence[str]) -> str:
        return load(prompt).render(**{field: as_written(words[0])})

    return Choice(text=reword((said,)), prompt=prompt, words=(said,), reword=reword, **own)


def read_choice(text: str, choice: Choice) -> str | None:
    """Return the option chosen by an answer, or ``None``."""
    said = text.strip()
    for number, option in enumerate(choice.options):
        words = choice.labels[number] if choice.labels else ""
        rest = rf"(?:[.):]?\s+{re.escape(words)}\.?|[.):]?)" if words else r"[.):]?"
        if re.fullmatch(rf"\(?{re.escape(option)}{rest}", said):
            return option
    return None


def exam_of(
    choices: Sequence[Choice],
    units: Units = ACCURACY,
    *,
    notes: tuple[str, ...] = (),
    exact: bool = False,
) -> Exam:
    """Return the exam scored by right answers; missing answers are wrong.

    ``exact``: paper 003's questions are also scored by its own matching of answers.
    """

    def mark(replies: Replies) -> Marked:
        counted = [choice for choice in choices if choice.item in replies.items]
        found = {
            choice.name: read_choice(replies.texts.get(choice.name, ""), choice)
            for choice in counted
        }
        right = {choice.name: found[choice.name] == choice.answer for choice in counted}
        marks = list(_score(counted, right, units))
        if exact:
            same = {
                choice.name: replies.texts.get(choice.name) == choice.answer for choice in counted
            }
            marks += map(name_exact, _score(counted, same, units))
        return Marked(
            marks=marks,
            taken={name: option for name, option in found.items() if option is not None},
        )

    return Exam(questions=choices, mark=mark, notes=notes)


def name_exact(measured: Measured) -> Measured:
    """Return a measurement by paper 003's exact matching, renamed accordingly."""
    return replace(measured, names=tuple(f"{name} (exact)" for name in measured.names))


def _score(
    choices: Sequence[Choice], right: Mapping[str, bool], units: Units
) -> Iterator[Measured]:
    """Yield the share of units whose answers are all right, over all and by category."""
    for name, unit in units.items():
        for category in ("", *sorted({one.category for one in choices} - {""})):
            held: dict[Hashable, bool] = {}
            for one in choices:
                if category in ("", one.category):
                    held[unit(one)] = held.get(unit(one), True) and right[one.name]
            yield measure_mean(name, list(held.values()), category=category)
