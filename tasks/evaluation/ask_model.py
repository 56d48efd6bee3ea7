"""Ask a model a benchmark's questions, with perturbed images or captions on demand.

Perturbations are those of paper 001 (A.3): noise or fog in images, wrong words in captions. Only
perturbed images are decoded here. ``ask_served`` needs an OpenAI-compatible server.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.evaluation.benchmark import ExamQuestion
from pairwright.tasks.images.decode import Reason, RefusedImageError, decode_rgb, encode_png
from pairwright.tasks.models.perturb import Kind, perturb_image, replace_words
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Question
from pairwright.tasks.store.answers import Answers

IMAGE_BYTES = 256 << 20  # larger files are refused unread
KINDS: dict[str, Kind] = {"noise": "gaussian-noise", "fog": "fog"}
SEVERITIES = tuple("12345")
SHARE = re.compile(r"0?\.\d*[1-9]\d*|1(\.0*)?")
UNDECODED: tuple[str, ...] = get_args(Reason)
Change = Callable[[Question, ExamQuestion], Question]


def find_change(
    perturb: str,
    questions: Sequence[ExamQuestion],
    *,
    seed: int,
) -> Change:
    """Return the change that ``perturb`` names.

    It is "noise:1" to "noise:5", "fog:1" to "fog:5", "words:SHARE", or empty: none.
    """
    name, _, strength = perturb.partition(":")
    if not perturb:
        return _keep_question
    if name in KINDS and strength in SEVERITIES:
        return partial(
            _perturb_images,
            kind=KINDS[name],
            severity=int(strength),
            seed=seed,
        )
    if name == "words" and SHARE.fullmatch(strength):
        if not any(question.reword for question in questions):
            raise ConfigError(f"--perturb {perturb}: this benchmark has no captions or statements")
        return partial(_replace_words, share=float(strength), seed=seed)
    raise ConfigError(
        f"--perturb {perturb}: must be noise:1 to noise:5, fog:1 to fog:5, or words:0.1 to words:1"
    )


def _keep_question(question: Question, _exam_question: ExamQuestion) -> Question:
    return question


def _perturb_images(
    question: Question,
    _exam_question: ExamQuestion,
    *,
    kind: Kind,
    severity: int,
    seed: int,
) -> Question:
    images: list[bytes] = []
    for image in question.images:
        pixels = decode_rgb(image)
        key = make_key(seed, image)
        perturbed = perturb_image(pixels, kind, severity=severity, key=key)
        images.append(encode_png(perturbed))
    return replace(question, images=tuple(images))


def _replace_words(
    question: Question, exam_question: ExamQuestion, *, share: float, seed: int
) -> Question:
    if exam_question.reword is None:
        return question
    texts: list[str] = []
    for number, text in enumerate(exam_question.words):
        key = make_key(seed, exam_question.name, number)
        texts.append(replace_words(text, share, key=key))
    return replace(question, text=exam_question.reword(texts))


def prepare_questions(
    exam_questions: Iterable[ExamQuestion], change: Change
) -> Iterator[tuple[str, Question] | Reply]:
    """Yield each question under its name, changed, or the reply that an image is missing."""
    for exam_question in exam_questions:
        name = exam_question.name
        try:
            question = _read_question(exam_question)
            yield name, change(question, exam_question)
        except (OSError, RefusedImageError) as error:
            yield Reply(name=name, state="no image", detail=str(error))


def _read_question(exam_question: ExamQuestion) -> Question:
    """Return a question with its images read."""
    for image in exam_question.images:
        if isinstance(image, Path):
            _check_size(image)
    images = [
        image if isinstance(image, bytes) else image.read_bytes() for image in exam_question.images
    ]
    return Question(
        prompt=exam_question.prompt,
        text=exam_question.text,
        images=tuple(images),
        max_tokens=exam_question.max_tokens,
        temperature=0.0,
    )


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > IMAGE_BYTES:
        raise RefusedImageError("too many pixels", f"{path}: {size:,} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRow(Row):
    """Question under its name (``key``), or its answer."""

    question: Question
    text: str = ""
    cut: bool = False


def ask_served(
    questions: Iterable[tuple[str, Question]],
    answers: Answers,
    *,
    model: ChatConfig,
) -> Iterator[Reply]:
    """Yield a reply to each question, in the order of completion; earlier answers are reused."""
    rows = (_make_row(name, question) for name, question in questions)
    for result in ask_rows(rows, _ask, model, answers=answers):
        name = result.source_key
        if isinstance(result, AskedRow):
            yield Reply(name=name, text=result.text, cut=result.cut)
        elif isinstance(result, Failed):
            yield Reply(name=name, state="failed", detail=f"{result.reason}: {result.detail}")
        elif isinstance(result, Dropped):
            state = "no image" if result.reason in UNDECODED else "refused"
            yield Reply(name=name, state=state, detail=f"{result.reason}: {result.detail}")


def _make_row(name: str, question: Question) -> AskedRow:
    return AskedRow(key=name, source_key=name, subject=name, question=question)


async def _ask(row: AskedRow, chat: Chat) -> AskedRow:
    answer = await chat.ask(row.question)
    return replace(
        row,
        text=answer.text.strip(),
        cut=answer.finish_reason == "length",
    )
