"""What a benchmark is: questions to a model, and a rule that makes scores of its answers.

A benchmark is one file in ``tasks/evaluation/benchmarks``: it reads the published annotations into questions and
truths, and marks answers. Who is asked, and how answers are kept, is said elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Row
from pairwright.tasks.evaluation.corpus import Measured, measure_mean
from pairwright.tasks.evaluation.resample import resample
from pairwright.tasks.serving.chat import IMAGE

SHORT, LONG = 16, 512
"""Tokens of an answer at the most: of a choice, and of a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Be a question of a benchmark."""

    name: str
    """Tells it from the others."""
    item: str
    """What is scored as a whole; an item may have several questions."""
    text: str
    """``<image>`` stands where the next image goes."""
    images: tuple[Path | bytes, ...]
    prompt: str
    """Name of the prompt file, or of the benchmark where the words are its own."""
    most_tokens: int = SHORT
    judged: Mapping[str, str] | None = None
    """What a judge is told beside the answer; ``None``: there is nothing to judge."""
    words: tuple[str, ...] = ()
    """Parts of the text that may be perturbed: captions, not instructions."""
    reword: Callable[[Sequence[str]], str] | None = None
    """Makes the text of other such parts; ``None``: nothing in it may be perturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Be what came of the questions, by their names."""

    texts: Mapping[str, str]
    """What the model said; questions that it did not answer are not in here."""
    ratings: Mapping[str, int]
    """What the judge gave; answers without a rating are not in here."""
    items: frozenset[str]
    """Items that count; the others lack an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Be one measure, over all items or those of a category."""

    category: str
    """Empty: all."""
    measured: Measured
    percent: bool = True
    """Whether it is a share; else it is on a scale of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Be what a benchmark makes of the replies."""

    marks: Sequence[Mark]
    taken: Mapping[str, str] = field(default_factory=dict[str, str])
    """By question, what its answer was taken for; answers that are not in here could not be read."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Be a benchmark's questions with what marks the answers."""

    questions: Sequence[Asked]
    mark: Callable[[Replies], Marked]
    read_answers: bool = True
    """Whether an answer must have a certain form, so that there may be some that cannot be read."""
    notes: tuple[str, ...] = ()
    """What has to be known of the scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Say where a benchmark's data are."""

    folder: Path
    rows: Callable[..., Iterator[Row]]
    """Gives the rows of a named table, where the folder is a dataset of Pairwright; ``without`` some columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Say how a judge rates."""

    prompt: str
    """Name of the prompt file."""
    most: int
    """The best rating; 0 is the worst."""
    reasoned: bool = False
    """Whether the judge says why before it rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Be a benchmark."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Be a score with the ends of its interval."""

    category: str
    name: str
    value: float | None
    """``None``: there is nothing that it could be made of."""
    low: float | None
    high: float | None
    items: int
    percent: bool


def conclude(marks: Sequence[Mark], *, resamples: int, seed: int) -> Iterator[Score]:
    """Yield the scores, in the order of the marks; a share is a fraction."""
    for mark in marks:
        measured, items = mark.measured, len(mark.measured.statistics)
        values = _finite(measured.conclude(measured.statistics.sum(axis=0))) if items else [None] * len(measured.names)
        ends = _ends(measured, resamples, seed) if items and resamples else [(None, None)] * len(values)
        for name, value, (low, high) in zip(measured.names, values, ends, strict=True):
            known = {"low": low, "high": high} if value is not None else {"low": None, "high": None}
            yield Score(category=mark.category, name=name, value=value, items=items, percent=mark.percent, **known)


def _ends(measured: Measured, resamples: int, seed: int) -> list[tuple[float | None, float | None]]:
    with np.errstate(invalid="ignore"):
        found = resample([measured], resamples=resamples, seed=seed)
    return [(low, high) for low, high in map(_finite, found)]


def _finite(values: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def mark_mean(name: str, scores: Sequence[float], *, category: str = "", percent: bool = True) -> Mark:
    """Return a mark that is the mean of the items' scores."""
    measured = measure_mean(name, np.array(scores, np.float64).reshape(-1))
    return Mark(category=category, measured=measured, percent=percent)


def mark_ratios(
    ratios: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, category: str = "", percent: bool = True
) -> Mark:
    """Return a mark of ratios of sums: by name, what is above and what is below the line, per item; x / 0 is none."""
    columns = [np.array(side, np.float64).reshape(-1) for pair in ratios.values() for side in pair]
    return Mark(
        category=category, measured=Measured(tuple(ratios), np.stack(columns, axis=1), _divide), percent=percent
    )


def _divide(
    sums: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    above, below = sums[..., ::2], sums[..., 1::2]
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def first_items(asked: Sequence[Asked], limit: int | None) -> list[Asked]:
    """Return the questions of the first so many items; ``None``: of all."""
    wanted = set(list(dict.fromkeys(one.item for one in asked))[:limit])
    return [one for one in asked if one.item in wanted]


def check_questions(asked: Sequence[Asked]) -> None:
    """Refuse questions that cannot be told apart, or whose words, which others wrote, hold places of images.

    Raises:
        ConfigError: names the question.
    """
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
    """Return the first file of a folder that has one of these names.

    Raises:
        ConfigError: it has none of them.
    """
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise ConfigError(f"--data {folder}: holds no {' and no '.join(names)}")
    return found


def find_image(folder: Path, *names: str, where: str) -> Path:
    """Return where an image is, below ``images`` or the folder itself; it need not be there.

    Args:
        folder: the benchmark's.
        names: what it may be called, as somebody else's file says.
        where: in which file, for messages.

    Raises:
        ConfigError: a name leads out of the folder.
    """
    for name in names:
        path = Path(name)
        if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"{where}: {name!r} is no name of an image in the folder")
    places = [place / name for name in names for place in (folder / "images", folder)]
    return next((place for place in places if place.is_file()), places[0])
