"""Multiple-choice questions: asking, reading, scoring."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.prompts import load
from pairwright.tasks.evaluation.benchmark import Exam, ExamQuestion, Marked, Replies, as_written
from pairwright.tasks.evaluation.measured import Measured, measure_mean

LETTERS = ("A", "B")
TRUTHS = ("True", "False")
TEXT = "text"  # kind of questions with captions as options
RULE = (
    "The answer must be the option alone, in its letters' case: as it is, or in brackets, or with a full stop, bracket "
    "or colon behind it, or with the option's own words behind that. Anything else is not read, and counts as wrong."
)
EXACT_NOTE = "(exact): by string equality with the truth, as in paper 003's released script"
Right = Mapping[str, bool]  # by question name, for questions that count


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(ExamQuestion):
    """Question with its right answer."""

    answer: str
    options: tuple[str, ...] = LETTERS
    labels: tuple[str, ...] = ()  # texts of lettered options
    category: str = ""
    kind: str = "accuracy"  # name of the question's score


def choose_image(name: str, images: tuple[Path, Path], caption: str, *, item: str = "", **own: str) -> Choice:
    """Return the question which of two images fits a caption (paper 003); ``own``: answer, category."""
    kind, labels = "image" if item else "accuracy", ("Image 1", "Image 2")
    return _ask("choose_image", {"caption": caption}, name, images, item=item or name, kind=kind, labels=labels, **own)


def choose_caption(name: str, image: Path, captions: tuple[str, str], **own: str) -> Choice:
    """Return the question which of two captions fits an image (ours); ``own``: answer, category, item."""
    words = {"first": captions[0], "second": captions[1]}
    return _ask("choose_caption", words, name, (image,), kind=TEXT, labels=captions, **own)


def judge_statement(
    name: str, images: tuple[Path | bytes, ...], statement: str, *, answer: str, prompt: str, item: str = ""
) -> Choice:
    """Return the question whether a statement about two images is true."""
    return _ask(prompt, {"statement": statement}, name, images, item=item or name, answer=answer, options=TRUTHS)


def _ask(prompt: str, fields: Mapping[str, str], name: str, images: tuple[Path | bytes, ...], **own: Any) -> Choice:
    def reword(words: Sequence[str]) -> str:
        return load(prompt).render(**dict(zip(fields, map(as_written, words), strict=True)))

    words = tuple(fields.values())
    return Choice(name=name, images=images, text=reword(words), prompt=prompt, words=words, reword=reword, **own)


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
    score: Callable[[Sequence[Choice], Right], Iterable[Measured]],
    *,
    notes: tuple[str, ...] = (),
    exact: bool = False,
) -> Exam:
    """Return the exam scored by right answers; missing answers are wrong.

    ``exact``: paper 003's questions are also scored by its own matching of answers.
    """

    def mark(replies: Replies) -> Marked:
        counted = [choice for choice in choices if choice.item in replies.items]
        found = {choice.name: read_choice(replies.texts.get(choice.name, ""), choice) for choice in counted}
        right = {choice.name: found[choice.name] == choice.answer for choice in counted}
        taken = {name: option for name, option in found.items() if option is not None}
        marks = list(score(counted, right))
        if exact:
            asked = [choice for choice in counted if choice.kind != TEXT]
            same = {choice.name: replies.texts.get(choice.name) == choice.answer for choice in asked}
            marks += [name_exact(one) for one in score(asked, same)]
        return Marked(marks=marks, taken=taken)

    return Exam(questions=choices, mark=mark, notes=notes)


def name_exact(measured: Measured) -> Measured:
    """Return a measurement by paper 003's exact matching, renamed accordingly."""
    return replace(measured, names=tuple(f"{name} (exact)" for name in measured.names))


def score_accuracy(choices: Sequence[Choice], right: Right) -> Iterator[Measured]:
    """Yield the share of right answers, over all and by category."""
    yield measure_mean("accuracy", list(right.values()))
    for category in sorted({choice.category for choice in choices} - {""}):
        own = [right[one.name] for one in choices if one.category == category]
        yield measure_mean("accuracy", own, category=category)


def score_groups(choices: Sequence[Choice], right: Right) -> Iterator[Measured]:
    """Yield the share of items with all questions of a kind right, and of all kinds ("group"), by category."""
    for category in ["", *sorted({one.category for one in choices} - {""})]:
        own = [one for one in choices if category in ("", one.category)]
        kinds = list(dict.fromkeys(one.kind for one in own))
        for kind in kinds:
            held = all_right([one for one in own if one.kind == kind], right, lambda one: one.item)
            yield measure_mean(kind, held, category=category)
        if len(kinds) > 1:
            yield measure_mean("group", all_right(own, right, lambda one: one.item), category=category)


def all_right(choices: Iterable[Choice], right: Right, group: Callable[[Choice], Hashable]) -> list[bool]:
    """Return for each group of questions whether all answers are right."""
    held: dict[Hashable, bool] = {}
    for one in choices:
        held[group(one)] = held.get(group(one), True) and right[one.name]
    return list(held.values())
