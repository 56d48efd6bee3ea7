"""What a benchmark is: questions to a model, and a rule that makes scores of its answers.

A benchmark reads the published annotations into questions and truths, and marks answers; a file that is wrong raises
``ConfigError``, which names it and the line. Who is asked, and how answers are kept, is said elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.measured import Measured
from pairwright.tasks.serving.chat import IMAGE
from pairwright.tasks.serving.untrusted import as_data

SHORT, LONG = 16, 512
"""Maximum tokens of an answer: of a choice, and of a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamQuestion:
    """Question of a benchmark."""

    name: str
    """Tells it from the others."""
    item: str
    """What is scored as a whole; an item may have several questions."""
    text: str
    """``<image>`` stands where the next image goes."""
    images: tuple[Path | bytes, ...]
    prompt: str
    """Name of the prompt file, or of the benchmark where the words are its own."""
    max_tokens: int = SHORT
    judged: Mapping[str, str] | None = None
    """What a judge is told beside the answer; ``None``: there is nothing to judge."""
    words: tuple[str, ...] = ()
    """Parts of the text that may be perturbed: captions, not instructions."""
    reword: Callable[[Sequence[str]], str] | None = None
    """Makes the text of other such parts; ``None``: nothing in it may be perturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What came of the questions, by their names."""

    texts: Mapping[str, str]
    """What the model said; questions that it did not answer are not in here."""
    ratings: Mapping[str, int]
    """What the judge gave; answers without a rating are not in here."""
    items: frozenset[str]
    """Items that count; the others lack an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """What a benchmark makes of the replies."""

    marks: Sequence[Measured]
    taken: Mapping[str, str] = field(default_factory=dict[str, str])
    """By question, what its answer was taken for; answers that are not in here could not be read."""
    notes: tuple[str, ...] = ()
    """What has to be known of the scores, beside the exam's notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Questions of a benchmark with what marks the answers."""

    questions: Sequence[ExamQuestion]
    mark: Callable[[Replies], Marked]
    read_answers: bool = True
    """Whether an answer must have a certain form, so that there may be some that cannot be read."""
    notes: tuple[str, ...] = ()
    """What has to be known of the scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where a benchmark's data are."""

    folder: Path
    rows: Callable[..., Iterator[Any]]
    """Gives the rows of a named table, where the folder is a dataset of Pairwright; ``without`` some columns."""
    entries: Callable[[str, str], Iterator[tuple[str, Mapping[str, Any]]]]
    """Gives names and locators of what a source of a named kind lists in a split, where the folder is one."""
    blank: str = "keep"
    """What becomes of blank references (``BLANK`` of ``read_captions``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """How a judge rates, from 0 (worst) to ``best``, by a prompt file; ``reasoned``: it says why first."""

    prompt: str
    best: int
    reasoned: bool = False
    required: bool = True
    """Whether there are no scores without a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Declaration of a benchmark."""

    name: str
    measures: str
    """What it measures, in a line."""
    layout: str
    """What its folder must hold."""
    open: Callable[[Data], Exam]
    rule: str
    """How an answer is read."""
    rubric: Rubric | None = None
    """How answers are judged; ``None``: no judge is needed."""


def ask_at_length(name: str, text: str, images: tuple[Path | bytes, ...], prompt: str, **more: Any) -> ExamQuestion:
    """Return a question that is an item of its own, and is answered in sentences."""
    return ExamQuestion(name=name, item=name, text=text, images=images, prompt=prompt, max_tokens=LONG, **more)


def as_written(text: str) -> str:
    """Return a benchmark's words as they are; with control tokens or forged headers, cleaned of them on one line."""
    clean = as_data(text)
    return text if clean == " ".join(text.split()) else clean


def first_items(asked: Sequence[ExamQuestion], limit: int | None) -> list[ExamQuestion]:
    """Return the questions of the first so many items; ``None``: of all."""
    wanted = set(list(dict.fromkeys(one.item for one in asked))[:limit])
    return [one for one in asked if one.item in wanted]


def check_questions(asked: Sequence[ExamQuestion]) -> None:
    """Refuse questions that cannot be told apart, or whose words, which others wrote, hold places of images."""
    names: set[str] = set()
    for one in asked:
        if one.name in names:
            raise ConfigError(f"question {one.name!r}: there are two of this name")
        if one.text.count(IMAGE) != len(one.images):
            raise ConfigError(f"question {one.name!r}: has {len(one.images)} images, and {IMAGE} in its words besides")
        try:
            (one.name + one.text).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"question {one.name!r}: holds half a character (a lone surrogate)") from error
        names.add(one.name)


def find_file(folder: Path, *names: str) -> Path:
    """Return the first file of a folder that has one of these names."""
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise ConfigError(f"--data {folder}: holds no {' and no '.join(names)}")
    return found


def find_image(folder: Path, *names: str, where: str) -> Path:
    """Return where an image of one of these names is, below ``images`` or the folder; it need not be there."""
    for name in names:
        path = Path(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"{where}: {name!r} is no name of an image in the folder")
    places = [place / name for name in names for place in (folder / "images", folder)]
    return next((place for place in places if place.is_file()), places[0])
