"""Multiple-choice questions: asking, reading, scoring."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.prompts import load_prompt
from pairwright.tasks.evaluation.benchmark import Exam, ExamQuestion, Marked, Replies, as_written
from pairwright.tasks.evaluation.measured import Measured, measure_mean

LETTERS = ("A", "B")
TRUTHS = ("True", "False")
RULE = (
    "The answer must be the option alone, in the same case: bare, in brackets, or followed by a "
    "full stop, bracket or colon, then possibly by the option's own words. Anything else is "
    "unreadable, and counts as wrong."
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
ACCURACY: Units = {"accuracy": lambda choice: choice.name}


def choose_image(
    name: str, images: tuple[Path, Path], caption: str, *, item: str = "", **kwargs: str
) -> Choice:
    """Return the question which of two images fits a caption (paper 003).

    ``kwargs``: answer, category.
    """
    return _ask(
        "choose_image",
        "caption",
        caption,
        name=name,
        images=images,
        item=item or name,
        labels=("Image 1", "Image 2"),
        **kwargs,
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
    return _ask(
        prompt,
        "statement",
        statement,
        name=name,
        images=images,
        item=item or name,
        answer=answer,
        options=TRUTHS,
    )


def _ask(prompt: str, field: str, text: str, **kwargs: Any) -> Choice:
    """Return the question of a prompt with a text in one of its fields."""

    def reword(texts: Sequence[str]) -> str:
        return load_prompt(prompt).render(**{field: as_written(texts[0])})

    words = (text,)
    return Choice(
        text=reword(words),
        prompt=prompt,
        words=words,
        reword=reword,
        **kwargs,
    )


def read_choice(text: str, choice: Choice) -> str | None:
    """Return the option chosen by an answer, or ``None``."""
    answer = text.strip()
    for number, option in enumerate(choice.options):
        label = choice.labels[number] if choice.labels else ""
        ending = r"[.):]?"
        if label:
            ending = rf"(?:[.):]?\s+{re.escape(label)}\.?|[.):]?)"
        if re.fullmatch(rf"\(?{re.escape(option)}{ending}", answer):
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
        options: dict[str, str] = {}
        right: dict[str, bool] = {}
        same: dict[str, bool] = {}
        for choice in counted:
            text = replies.texts.get(choice.name)
            option = read_choice(text or "", choice)
            if option is not None:
                options[choice.name] = option
            right[choice.name] = option == choice.answer
            same[choice.name] = text == choice.answer
        marks = list(_score(counted, right, units))
        if exact:
            marks += map(name_exact, _score(counted, same, units))
        return Marked(marks=marks, taken=options)

    return Exam(questions=choices, mark=mark, notes=notes)


def name_exact(measured: Measured) -> Measured:
    """Return a measurement by paper 003's exact matching, renamed accordingly."""
    names = [f"{name} (exact)" for name in measured.names]
    return replace(measured, names=tuple(names))


def _score(
    choices: Sequence[Choice], right: Mapping[str, bool], units: Units
) -> Iterator[Measured]:
    """Yield the share of units whose answers are all right, over all and by category."""
    categories = sorted({choice.category for choice in choices} - {""})
    for name, unit_of in units.items():
        for category in ("", *categories):
            scores: dict[Hashable, bool] = {}
            for choice in choices:
                if category in ("", choice.category):
                    unit = unit_of(choice)
                    scores[unit] = scores.get(unit, True) and right[choice.name]
            yield measure_mean(name, list(scores.values()), category=category)
