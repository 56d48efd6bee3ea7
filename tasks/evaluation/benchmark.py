"""Interface of a benchmark: questions to a model, and a rule that scores its answers.

A benchmark reads published annotations into questions and truths, and marks answers; an invalid
file raises ``ConfigError`` with file and line.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.measured import Measured
from pairwright.tasks.serving.chat import IMAGE
from pairwright.tasks.serving.untrusted import as_data

SHORT, LONG = 16, 512  # maximum tokens of an answer: a choice, and a description


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
    reword: Callable[[Sequence[str]], str] | None = (
        None  # text with other captions; ``None``: nothing to perturb
    )


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
    notes: tuple[str, ...] = ()  # caveats of the scores, beside the exam's


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
    """Rating scale of a judge, from 0 (worst) to ``best``, with its prompt; ``reasoned``: it gives a reason first."""

    prompt: str
    best: int
    reasoned: bool = False
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
    name: str, text: str, images: tuple[Path | bytes, ...], prompt: str, **more: Any
) -> ExamQuestion:
    """Return a question that is its own item, answered in sentences."""
    return ExamQuestion(
        name=name, item=name, text=text, images=images, prompt=prompt, max_tokens=LONG, **more
    )


def as_written(text: str) -> str:
    """Return a benchmark's text unchanged unless it has control tokens or forged headers, which are removed."""
    clean = as_data(text)
    return text if clean == " ".join(text.split()) else clean


def first_items(asked: Sequence[ExamQuestion], limit: int | None) -> list[ExamQuestion]:
    """Return the questions of the first ``limit`` items; ``None``: all."""
    wanted = set(list(dict.fromkeys(one.item for one in asked))[:limit])
    return [one for one in asked if one.item in wanted]


def check_questions(asked: Sequence[ExamQuestion]) -> None:
    """Refuse duplicate names, and image placeholders in untrusted text."""
    for name, count in Counter(one.name for one in asked).items():
        if count > 1:
            raise ConfigError(f"question {name!r}: duplicate name")
    for one in asked:
        if one.text.count(IMAGE) != len(one.images):
            raise ConfigError(
                f"question {one.name!r}: has {len(one.images)} images, and {IMAGE} in its own text"
            )


def find_file(folder: Path, *names: str) -> Path:
    """Return the first existing file of these names."""
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise ConfigError(f"--data {folder}: holds no {' and no '.join(names)}")
    return found


def find_image(folder: Path, *names: str, where: str) -> Path:
    """Return the path of an image of one of these names, below ``images`` or the folder, existing or not."""
    for name in names:
        path = Path(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"{where}: {name!r} is not a path inside the folder")
    places = [place / name for name in names for place in (folder / "images", folder)]
    return next((place for place in places if place.is_file()), places[0])
