"""Interface of a benchmark: questions to a model, and a rule that scores its answers.

A benchmark reads published annotations into questions and truths, and marks answers; an invalid
file raises ``ConfigError`` with file and line.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.measured import Measured
from pairwright.tasks.serving.chat import IMAGE
from pairwright.tasks.serving.untrusted import as_data

SHORT = 16  # maximum tokens of an answer that is a choice
LONG = 512  # and of a description


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamQuestion:
    """Question of a benchmark."""

    name: str  # unique
    item: str  # unit of scoring; may have several questions
    text: str  # each ``<image>`` stands for the next image
    images: tuple[Path | bytes, ...]
    prompt: str  # prompt file; for a benchmark's own words, its name
    max_tokens: int = SHORT
    judged: Mapping[str, str] | None = None  # context for a judge; ``None``: not judged
    words: tuple[str, ...] = ()  # captions in the text, which may be perturbed
    # text with other captions; ``None``: nothing to perturb
    reword: Callable[[Sequence[str]], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Answers and ratings by question."""

    texts: Mapping[str, str]  # answers of the model; unanswered questions are missing
    ratings: Mapping[str, int]  # ratings of the judge; unrated answers are missing
    items: frozenset[str]  # items that count; the others lack an image


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Scores of replies."""

    marks: Sequence[Measured]
    taken: Mapping[str, str] = field(default_factory=dict[str, str])
    """Interpretation of each answer; unreadable ones are missing."""
    notes: tuple[str, ...] = ()  # caveats of the scores, in addition to the exam's


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Questions of a benchmark, and its marking."""

    questions: Sequence[ExamQuestion]
    mark: Callable[[Replies], Marked]
    read_answers: bool = True  # whether answers have a required form, and so can be unreadable
    notes: tuple[str, ...] = ()  # caveats of the scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Location of a benchmark's data."""

    folder: Path
    rows: Callable[..., Iterator[Any]]
    """Returns the rows of a named table of a Pairwright dataset, ``without`` some columns."""
    entries: Callable[[str, str], Iterator[tuple[str, Mapping[str, Any]]]]
    """Returns names and locators of a source of a named kind in a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Rating scale of a judge, from 0 (worst) to ``best``, with its prompt."""

    prompt: str
    best: int
    reasoned: bool = False  # whether it gives a reason first
    required: bool = True  # whether scores need a judge


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Declaration of a benchmark."""

    name: str
    measures: str  # in one line
    layout: str  # files of its folder
    open: Callable[[Data], Exam]
    rule: str  # interpretation of answers
    rubric: Rubric | None = None  # ``None``: no judge


def ask_at_length(
    name: str, text: str, images: tuple[Path | bytes, ...], prompt: str, **kwargs: Any
) -> ExamQuestion:
    """Return a question that is its own item, answered in sentences."""
    return ExamQuestion(
        name=name,
        item=name,
        text=text,
        images=images,
        prompt=prompt,
        max_tokens=LONG,
        **kwargs,
    )


def as_written(text: str) -> str:
    """Return a benchmark's text without control tokens and forged headers.

    A text that has none is unchanged.
    """
    clean = as_data(text)
    return text if clean == " ".join(text.split()) else clean


def first_items(questions: Sequence[ExamQuestion], limit: int | None) -> list[ExamQuestion]:
    """Return the questions of the first ``limit`` items; ``None``: all."""
    items = list(dict.fromkeys(question.item for question in questions))
    first = set(items[:limit])
    return [question for question in questions if question.item in first]


def place_images(question: ExamQuestion) -> ExamQuestion:
    """Return a question with its images first where its prompt, a user's, names none."""
    if IMAGE in question.text:
        return question
    return replace(question, text=IMAGE * len(question.images) + question.text)


def check_questions(questions: Sequence[ExamQuestion]) -> None:
    """Refuse duplicate names, and image placeholders in untrusted text."""
    names = Counter(question.name for question in questions)
    for name, count in names.items():
        if count > 1:
            raise ConfigError(f"question {name!r}: duplicate name")
    for question in questions:
        images = len(question.images)
        if question.text.count(IMAGE) != images:
            raise ConfigError(
                f"question {question.name!r}: has {images} images, and {IMAGE} in its own text"
            )


def find_file(folder: Path, *names: str) -> Path:
    """Return the first existing file of these names."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"--data {folder}: holds no {' and no '.join(names)}")


def find_image(folder: Path, *names: str, where: str) -> Path:
    """Return the path of an image of one of these names, existing or not.

    It is below ``images`` or the folder.
    """
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"{where}: {name!r} is not a path inside the folder")
        paths += (folder / "images" / name, folder / name)
    return next((path for path in paths if path.is_file()), paths[0])
