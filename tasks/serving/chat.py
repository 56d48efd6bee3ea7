"""Questions to a served model, and its answers.

A stage writes one coroutine per row, which asks as often as needed; ``ask_rows`` runs many at once.
Errors of a single row are raised here as exceptions and become rows there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pairwright.prompts import Prompt
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Served, Turn, make_key

T = TypeVar("T")
# reason of a row dropped because the server rejects its request
REFUSED = "the server refused the request"
IMAGE = "<image>"  # image placeholder in a question; without any, images come first


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Grammar:
    """Required form of an answer, for servers with structured output.

    Validators run in any case.
    """

    regex: str = ""
    """For vLLM's `structured_outputs`; empty: the schema is used."""
    schema: dict[str, Any] | None = None
    """JSON schema; works on every server with structured output."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Question:
    """Request to a model: text, images and sampling."""

    prompt: str  # name of the prompt file, for the record
    text: str  # rendered prompt; each ``<image>`` stands for the next image
    images: tuple[bytes, ...] = ()  # encoded files of the sources
    before: tuple[Turn, ...] = ()  # earlier turns, without images
    seed: int = 0  # from the row's key (``seed_of``)
    max_tokens: int = 512
    temperature: float | None = None  # None: the profile's
    grammar: Grammar | None = None
    alternatives: int = 0
    """Number of the most likely first tokens whose probabilities are requested."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Answer:
    """Answer of a model, as ``read_response`` reads it."""

    text: str
    """The answer alone: thoughts, fences, roles and the like are taken off."""
    served: Served
    first_token: tuple[tuple[str, float], ...] = ()
    """First token with a letter: its most likely alternatives and their probabilities; empty: the
    server gives none."""
    refused: RefusedText | None = None
    """Why there is no whole answer: cut off, empty, thoughts alone."""

    @property
    def finish_reason(self) -> str:
        """Return "stop", "length" for a truncated answer, or "" where the server gives none."""
        return self.served.finish_reason


@dataclass(frozen=True, slots=True)
class Chat:
    """Served model for concurrent questions, with a shard's memory of answers."""

    ask: Callable[[Question], Awaitable[Answer]]
    """Raises ``RefusedQuestionError`` for a rejected request (too long, a bad image),
    ``UnansweredError`` after failed attempts, ``ServerError`` where no server answers, accepts the
    key or knows the model. """


class RowError(Exception):
    """Failure to answer a question of a row; the reason is a short constant phrase."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RefusedQuestionError(RowError):
    """Request that the server rejects for good; its row is dropped."""


class ModeratedError(RefusedQuestionError):
    """Request whose content the server's moderation rejects: it says nothing about other rows."""


class UnansweredError(RowError):
    """No good answer ("server busy", "broken answer", ...); the row fails, and is pending again."""


async def ask_until(
    chat: Chat,
    ask: Callable[[int], Question],
    read: Callable[[Answer], T | RefusedText],
    *,
    tries: int,
    first: int = 1,
) -> tuple[T | RefusedText, tuple[Served, ...]]:
    """Ask until ``read`` accepts an answer; return it as read, and the record of all tries.

    After the last try, return its refusal. ``ask`` returns the question of an attempt, numbered
    from ``first``.
    """
    served: list[Served] = []
    while True:
        question = ask(first + len(served))
        answer = await chat.ask(question)
        served.append(answer.served)
        parsed = read(answer)
        if not isinstance(parsed, RefusedText) or len(served) == tries:
            return parsed, tuple(served)


def ask_in(text: str, language: str) -> str:
    """Return a prompt that asks for an answer in a language; empty: as it is."""
    return f"{text}\n\nWrite in {language}." if language else text


def seed_of(
    key: str,
    prompt: Prompt | str,
    *,
    seed: int,
    attempt: int = 1,
) -> int:
    """Return a request's seed (31 bits), from row, prompt, the section's seed and the attempt."""
    name = prompt if isinstance(prompt, str) else prompt.sha256
    return int(make_key("request", key, name, seed, attempt)[:8], 16) >> 1
