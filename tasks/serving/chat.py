"""What stages ask of a served model, and what they get: one question, one answer.

A stage writes one coroutine for a row, which asks as often as it has to, and hands it to ``ask_rows``, which runs many
of them at once. What may go wrong with a single row is raised here as an exception and becomes a row there.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pairwright.prompts import Prompt
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Served, Turn, make_key

T = TypeVar("T")
REFUSED = "the server refused the request"
"""Why a row is dropped whose question the server says is wrong."""
IMAGE = "<image>"
"""Where an image stands in a question; without it the images come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Form that an answer must have, for servers that hold to one. Validators run in any case."""

    regex: str = ""
    """For vLLM's `structured_outputs`; empty: the schema is used."""
    schema: dict[str, Any] | None = None
    """JSON schema, for answers that are JSON; such a grammar works on every server with structured output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Request: what is said, what is shown, and how the answer is drawn."""

    prompt: str
    """Name of the prompt file, for the record."""
    text: str
    """The rendered prompt; ``<image>`` in it stands for the next image."""
    images: tuple[bytes, ...] = ()
    """Encoded files as sources gave them."""
    before: tuple[Turn, ...] = ()
    """Earlier turns of the conversation, without images."""
    seed: int = 0
    """From the row's key (``seed_of``)."""
    max_tokens: int = 512
    temperature: float | None = None
    """None: the model's own in the profile."""
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a model."""

    text: str
    served: Served

    @property
    def finish_reason(self) -> str:
        """Return why it ended: "stop", or "length" where it was cut off."""
        return self.served.finish_reason


@dataclass(frozen=True, slots=True)
class Chat:
    """Served model that can be asked many times at once, with a shard's memory of answers."""

    ask: Callable[[Question], Awaitable[Answer]]
    """Raises ``RefusedQuestionError`` where the server says that the request is wrong (too long, a bad image),
    ``UnansweredError`` where no good answer came in all attempts, ``ServerError`` where no server answers at all, or
    none takes the key or knows the model."""


class RowError(Exception):
    """Say that a row's question has no answer; the reason is a short constant phrase."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RefusedQuestionError(RowError):
    """Say that the server refuses this request for good; its row is dropped."""


class UnansweredError(RowError):
    """Say that no good answer came ("server busy", "broken answer", ...); the row fails, and is owed again."""


async def ask_until(
    chat: Chat, ask: Callable[[int], Question], read: Callable[[Answer], T | RefusedText], *, tries: int, first: int = 1
) -> tuple[T | RefusedText, tuple[Served, ...]]:
    """Ask until an answer will do; return it as it was read, or the last that will not do, and the record of all tries.

    ``ask`` returns the question of an attempt, numbered from ``first``.
    """
    served: list[Served] = []
    while True:
        answer = await chat.ask(ask(first + len(served)))
        served.append(answer.served)
        found = read(answer)
        if not isinstance(found, RefusedText) or len(served) == tries:
            return found, tuple(served)


def seed_of(key: str, prompt: Prompt | str, *, seed: int, attempt: int = 1) -> int:
    """Return a request's seed (31 bits), from its row, what is asked, the section's seed and the attempt."""
    name = prompt if isinstance(prompt, str) else prompt.sha256
    return int(make_key("request", key, name, seed, attempt)[:8], 16) >> 1
