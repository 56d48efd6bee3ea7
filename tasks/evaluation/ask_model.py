"""Ask a model a benchmark's questions, with perturbed images or captions on demand.

Perturbations are those of paper 001 (A.3): noise or fog in images, wrong words in captions. Only
perturbed images are decoded here. ``ask_served`` needs an OpenAI-compatible server.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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


def find_change(perturb: str, asked: Sequence[ExamQuestion], *, seed: int) -> Change:
    """Return the change that ``perturb`` names: "noise:1" to "noise:5", "fog:1" to "fog:5", "words:SHARE"; "": none."""
    name, _, strength = perturb.partition(":")

    def perturb_images(question: Question, _one: ExamQuestion) -> Question:
        kind, severity = KINDS[name], int(strength)
        keyed = [(decode_rgb(image), make_key(seed, image)) for image in question.images]
        changed = (
            encode_png(perturb_image(one, kind, severity=severity, key=key)) for one, key in keyed
        )
        return replace(question, images=tuple(changed))

    def replace_some(question: Question, one: ExamQuestion) -> Question:
        if one.reword is None:
            return question
        keyed = [(text, make_key(seed, one.name, number)) for number, text in enumerate(one.words)]
        words = [replace_words(text, float(strength), key=key) for text, key in keyed]
        return replace(question, text=one.reword(words))

    if not perturb:
        return lambda question, _one: question
    if name in KINDS and strength in SEVERITIES:
        return perturb_images
    if name == "words" and SHARE.fullmatch(strength):
        if not any(one.reword for one in asked):
            raise ConfigError(f"--perturb {perturb}: this benchmark has no captions or statements")
        return replace_some
    raise ConfigError(
        f"--perturb {perturb}: must be noise:1 to noise:5, fog:1 to fog:5, or words:0.1 to words:1"
    )


def prepare_questions(
    asked: Iterable[ExamQuestion], change: Change
) -> Iterator[tuple[str, Question] | Reply]:
    """Yield each question under its name, changed, or the reply that an image is missing."""
    for one in asked:
        try:
            for path in (image for image in one.images if isinstance(image, Path)):
                if (size := path.stat().st_size) > IMAGE_BYTES:
                    raise RefusedImageError("too many pixels", f"{path}: {size:,} bytes")
            images = tuple(
                image if isinstance(image, bytes) else image.read_bytes() for image in one.images
            )
            question = Question(
                prompt=one.prompt,
                text=one.text,
                images=images,
                max_tokens=one.max_tokens,
                temperature=0.0,
            )
            yield one.name, change(question, one)
        except (OSError, RefusedImageError) as error:
            yield Reply(name=one.name, state="no image", detail=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRow(Row):
    """Question under its name (``key``), or its answer."""

    question: Question
    text: str = ""
    cut: bool = False


def ask_served(
    questions: Iterable[tuple[str, Question]], answers: Answers, *, model: ChatConfig
) -> Iterator[Reply]:
    """Yield a reply to each question, in the order of completion; earlier answers are reused."""
    rows = (
        AskedRow(key=name, source_key=name, subject=name, question=question)
        for name, question in questions
    )
    for result in ask_rows(rows, _ask, model, answers=answers):
        name = result.source_key
        if isinstance(result, AskedRow):
            yield Reply(name=name, text=result.text, cut=result.cut)
        elif isinstance(result, Failed):
            yield Reply(name=name, state="failed", detail=f"{result.reason}: {result.detail}")
        elif isinstance(result, Dropped):
            state = "no image" if result.reason in UNDECODED else "refused"
            yield Reply(name=name, state=state, detail=f"{result.reason}: {result.detail}")


async def _ask(row: AskedRow, chat: Chat) -> AskedRow:
    answer = await chat.ask(row.question)
    return replace(row, text=answer.text.strip(), cut=answer.finish_reason == "length")
