"""Questions with a few fixed answers: how they are read, and how many are right."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pairwright.tasks.evaluation.benchmark import Asked, Exam, Mark, Marked, Replies, mark_mean

LETTERS = ("A", "B")
RULE = (
    "The answer must be the option alone, in its letters' case: as it is, or in brackets, or with a full stop, bracket "
    "or colon behind it, or with the option's own words behind that. Anything else is not read, and counts as wrong."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Be a question with its right answer."""

    asked: Asked
    answer: str
    options: tuple[str, ...] = LETTERS
    words: tuple[str, ...] = ()
    """What the options say, in their order, where an option is a letter."""
    category: str = ""
    kind: str = "accuracy"
    """The name of the score that the question goes into."""


def read_choice(text: str, choice: Choice) -> str | None:
    """Return the option that an answer is, or ``None``."""
    said = text.strip()
    for number, option in enumerate(choice.options):
        words = choice.words[number] if choice.words else ""
        rest = rf"(?:[.):]?\s+{re.escape(words)}\.?|[.):]?)" if words else r"[.):]?"
        if re.fullmatch(rf"\(?{re.escape(option)}{rest}", said):
            return option
    return None


def grade(choices: Iterable[Choice], replies: Replies) -> tuple[dict[str, str], dict[str, bool]]:
    """Return, by question, what its answer was taken for, and whether it is right; no answer is wrong."""
    taken: dict[str, str] = {}
    right: dict[str, bool] = {}
    for choice in choices:
        name = choice.asked.name
        if choice.asked.item not in replies.items:
            continue
        found = read_choice(replies.texts.get(name, ""), choice)
        right[name] = found == choice.answer
        if found is not None:
            taken[name] = found
    return taken, right


def exam_of(choices: Sequence[Choice], *, notes: tuple[str, ...] = ()) -> Exam:
    """Return the exam whose score is the share of right answers, over all and by category."""

    def mark(replies: Replies) -> Marked:
        taken, right = grade(choices, replies)
        return Marked(marks=list(_accuracies(choices, right)), taken=taken)

    return Exam(questions=[choice.asked for choice in choices], mark=mark, notes=notes)


def _accuracies(choices: Sequence[Choice], right: dict[str, bool]) -> Iterator[Mark]:
    yield mark_mean("accuracy", list(right.values()))
    for category in sorted({choice.category for choice in choices} - {""}):
        own = [right[one.asked.name] for one in choices if one.category == category and one.asked.name in right]
        yield mark_mean("accuracy", own, category=category)


def paired_exam_of(choices: Sequence[Choice], *, notes: tuple[str, ...] = ()) -> Exam:
    """Return the exam in which all questions of a kind must be right for an item to count, and all kinds: "group"."""

    def mark(replies: Replies) -> Marked:
        taken, right = grade(choices, replies)
        asked = [choice for choice in choices if choice.asked.name in right]
        marks = [
            mark
            for category in ["", *sorted({one.category for one in asked} - {""})]
            for mark in _groups(asked, right, category)
        ]
        return Marked(marks=marks, taken=taken)

    return Exam(questions=[choice.asked for choice in choices], mark=mark, notes=notes)


def _groups(choices: Sequence[Choice], right: dict[str, bool], category: str) -> Iterator[Mark]:
    own = [one for one in choices if category in ("", one.category)]
    kinds = list(dict.fromkeys(one.kind for one in own))
    items = list(dict.fromkeys(one.asked.item for one in own))
    held = {(item, kind): True for item in items for kind in kinds}
    for one in own:
        held[one.asked.item, one.kind] &= right[one.asked.name]
    for kind in kinds:
        yield mark_mean(kind, [held[item, kind] for item in items], category=category)
    if len(kinds) > 1:
        yield mark_mean("group", [all(held[item, kind] for kind in kinds) for item in items], category=category)
