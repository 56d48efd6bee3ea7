"""Find out, at the start of a build, a server's model and its support for structured output.

The result is written into the configuration, on record and fixed for the build.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.training import SIZES
from pairwright.schemas.writing import ChatConfig, Structured
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.serving.chat import (
    REFUSED,
    Grammar,
    Question,
    RefusedQuestionError,
    UnansweredError,
)
from pairwright.tasks.serving.client import Client
from pairwright.tasks.serving.connection import PACE, FaultError, Pace
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.serving.loop import run

SHOWN = 20  # models listed in a message
TRIES, PATIENCE_S = 3, 60.0  # a slow server is reported before the build
LOOK = "What do you see?"
FINISHED = "checkpoint"  # folder of a training run's model
WORD = "zq7"  # a word that no model writes unless constrained
FORM = Grammar(
    regex=WORD,
    schema={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [WORD]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
KINDS: Mapping[Structured, Callable[[str], bool]] = {
    "vllm": lambda text: text.strip() == WORD,
    "json": lambda text: json.loads(text) == {"word": WORD},
}
"""Kinds of structured output, best first, and tests of answers to ``FORM``."""


def find_model(
    chat: ChatConfig, *, field: str = "models.chat", images: int = 0, pace: Pace = PACE
) -> ChatConfig:
    """Return the configuration with the model's name and the kind of structured output filled in.

    With ``launch`` nothing is asked: the build starts vLLM itself. ``field`` is the profile's name
    for the model; it is shown ``images`` small images, the most it will be shown at once. Raises
    ``ConfigError`` for a wrong profile, ``ServerError`` for an unreachable server.
    """
    _check_whole(chat.model, field)
    if chat.launch.enabled:
        check_launch(chat, field)
        return (
            chat.model_copy(update={"structured_output": "vllm"})
            if chat.structured_output == "auto"
            else chat
        )
    if not chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint: name an OpenAI-compatible server (--set "
            f"{field}.endpoint=http://HOST:PORT/v1), "
            "or stop before captions are written (--until mining)"
        )
    found = run(_find(chat, field, images=images, pace=pace))
    _check_whole(found.model, field)
    return found


def _check_whole(model: str, field: str) -> None:
    """Refuse models with differential perception, which servers would ignore."""
    folders = [Path(model), Path(model, FINISHED)] if model else []
    if place := next((folder for folder in folders if (folder / SIZES).is_file()), None):
        raise ConfigError(
            f"{field}.model: {place} has differential perception, which vLLM would ignore. Load "
            f"it locally instead: "
            "pairwright evaluate model, without --server"
        )


async def _find(chat: ChatConfig, field: str, *, images: int, pace: Pace) -> ChatConfig:
    model = chat.model
    for url in chat.endpoint:
        async with _open(chat, url, pace) as client:
            names = tuple(dict.fromkeys(await client.endpoints.all[0].connection.models()))
        listed = ", ".join(names[:SHOWN]) or "none"
        if not model and len(names) != 1:
            raise ConfigError(f"{field}.model: name one of those that {url} serves: {listed}")
        model = model or names[0]
        if model not in names:
            raise ConfigError(f'{field}.model: {url} does not serve "{model}"; it serves {listed}')
    chat = chat.model_copy(update={"model": model})
    for url in chat.endpoint if images else ():
        await _show(chat, url, images, field=field, pace=pace)
    if chat.structured_output != "auto":
        return chat
    for kind in KINDS:
        if all([await _obeys(chat, url, kind, pace) for url in chat.endpoint]):
            return chat.model_copy(update={"structured_output": kind})
    return chat.model_copy(update={"structured_output": "none"})


@asynccontextmanager
async def _open(
    chat: ChatConfig, url: str, pace: Pace, kind: Structured = "none"
) -> AsyncGenerator[Client]:
    """Open a client of one server with little patience; its faults become ``ServerError``."""
    waits = {
        "max_attempts": min(TRIES, chat.max_attempts),
        "timeout_seconds": min(chat.timeout_seconds, PATIENCE_S),
    }
    waits |= {"patience_seconds": min(chat.patience_seconds, PATIENCE_S)}
    client = Client(
        chat.model_copy(update={"endpoint": (url,), "structured_output": kind, **waits}), pace
    )
    try:
        yield client
    except FaultError as fault:
        raise ServerError(f"{url}: {fault}: {fault.advice}") from None
    except UnansweredError as error:
        raise ServerError(f"{url}: {error}") from None
    finally:
        await client.endpoints.close()


async def _show(chat: ChatConfig, url: str, images: int, *, field: str, pace: Pace) -> None:
    """Show the model small images; without vision, or with fewer images, it would refuse every row."""
    import numpy as np

    picture = encode_png(np.full((56, 56, 3), (180, 90, 60), np.uint8))
    question = Question(
        prompt="probe", text=LOOK, images=(picture,) * images, max_tokens=8, temperature=0
    )
    try:
        async with _open(chat, url, pace) as client:
            await client.ask(question)
    except RefusedQuestionError as refused:
        if refused.reason == REFUSED:  # other refusals mean that it saw them
            raise ConfigError(
                f"{field}: {chat.model} at {url} refuses {images} image{'s' * (images > 1)} at "
                f"once "
                f"({refused.detail}): serve a vision model with a sufficient limit (vLLM: "
                f"--limit-mm-per-prompt '{{\"image\": {images}}}')"
            ) from None


async def _obeys(chat: ChatConfig, url: str, kind: Structured, pace: Pace) -> bool:
    """Return whether an answer has the required form; servers ignore or refuse unknown options."""
    question = Question(
        prompt="probe", text="Say hello.", max_tokens=64, temperature=0, grammar=FORM
    )
    try:
        async with _open(chat, url, pace, kind) as client:
            return KINDS[kind]((await client.ask(question)).text)
    except (RefusedQuestionError, ValueError, RecursionError):
        return False
