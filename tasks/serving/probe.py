"""Find out, when a build starts, which model a server serves and whether it holds answers to a grammar.

What is found is written into the configuration, so that it is on record and the same until the build's end. Needs the
network, and ``openai``.
"""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pairwright.schemas.differential import SIZES
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.served import ChatConfig, Structured
from pairwright.tasks.serving.chat import REFUSED, RefusedQuestionError
from pairwright.tasks.serving.connection import Connection
from pairwright.tasks.serving.faults import FaultError
from pairwright.tasks.serving.keys import load_key
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.serving.loop import run
from pairwright.tasks.serving.pace import PACE, Pace
from pairwright.tasks.store.images import encode_png

T = TypeVar("T")
SHOWN = 20
"""Models that a message lists."""
MOST_TRIES = {"no connection": 1, "broken answer": 2}
"""For faults that hardly pass: a wrong address is told at once."""
LOOK = "What do you see?"
FINISHED = "checkpoint"
"""The folder of a training run that holds its model."""
WORD = "zq7"
"""What no model says unless it is held to it."""
FORMS: Mapping[Structured, dict[str, Any]] = {
    "vllm": {"structured_outputs": {"choice": [WORD]}},
    "json": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"word": {"type": "string", "enum": [WORD]}},
                    "required": ["word"],
                    "additionalProperties": False,
                },
            },
        }
    },
}
"""How each kind of structured output is asked for, best first."""


def find_model(chat: ChatConfig, *, field: str = "models.chat", images: int = 0, pace: Pace = PACE) -> ChatConfig:
    """Return the configuration with the model's name and the kind of structured output filled in.

    With ``launch: local`` nothing is asked: the build starts vLLM itself, and knows what it can.

    Args:
        chat: what the profile says.
        field: what the profile calls it, for messages.
        images: how many images the model is going to be shown at once; it is shown as many small ones.
        pace: how a busy server is waited for.

    Raises:
        ConfigError: no server is named, it does not serve this model, or the model sees no images; or vLLM is to be
            started, and is not here; or the model is on this machine, and no server has all of it.
        ServerError: it cannot be reached, takes no such key, or is no OpenAI-compatible server.
    """
    _check_whole(chat.model, field)
    if chat.launch.enabled:
        check_launch(chat, field)
        return chat.model_copy(update={"structured_output": "vllm"}) if chat.structured_output == "auto" else chat
    if not chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint: name an OpenAI-compatible server (--set {field}.endpoint=http://HOST:PORT/v1), "
            "or stop before captions are written (--until mining)"
        )
    found = run(_find(chat, field, images=images, pace=pace))
    _check_whole(found.model, field)
    return found


def _check_whole(model: str, field: str) -> None:
    """Refuse a model of this machine a part of which no server knows: it would answer, but as another model.

    Raises:
        ConfigError: it has a module of differential perception.
    """
    folders = [Path(model), Path(model, FINISHED)] if model else []
    if place := next((folder for folder in folders if (folder / SIZES).is_file()), None):
        raise ConfigError(
            f"{field}.model: {place} has a module of differential perception, which vLLM does not know: it would serve "
            "the model without it. Load it here instead: pairwright evaluate model, without --server"
        )


async def _find(chat: ChatConfig, field: str, *, images: int, pace: Pace) -> ChatConfig:
    key = load_key(chat.key, field=field)
    timeout_s = min(chat.timeout_seconds, chat.patience_seconds)
    servers = [_Server(Connection(url, key, timeout_s=timeout_s, pace=pace), chat, pace) for url in chat.endpoint]
    try:
        model = await _model(servers, chat, field)
        for server in servers:
            await server.show(images, model, field)
        structured = await _structured(servers, model) if chat.structured_output == "auto" else chat.structured_output
    finally:
        for server in servers:
            await server.connection.close()
    return chat.model_copy(update={"model": model, "structured_output": structured})


async def _model(servers: "Sequence[_Server]", chat: ChatConfig, field: str) -> str:
    """Return the name of the model that every server serves."""
    served = {server.connection.url: await server.models() for server in servers}
    for url, names in served.items():
        if chat.model and chat.model not in names:
            raise ConfigError(f'{field}.model: {url} does not serve "{chat.model}"; it serves {_listed(names)}')
        if not chat.model and len(names) != 1:
            raise ConfigError(f"{field}.model: name one of those that {url} serves: {_listed(names)}")
    if chat.model:
        return chat.model
    first, *others = dict.fromkeys(name for names in served.values() for name in names)
    if others:
        each = "; ".join(f"{url} serves {_listed(names)}" for url, names in served.items())
        raise ConfigError(f"{field}.endpoint: the servers must serve the same model, but {each}")
    return first


async def _structured(servers: "Sequence[_Server]", model: str) -> Structured:
    """Return the best kind of structured output to which every server holds."""
    for kind in FORMS:
        if all([await server.obeys(kind, model) for server in servers]):
            return kind
    return "none"


class _Server:
    """Be one server that is asked what it can."""

    def __init__(self, connection: Connection, chat: ChatConfig, pace: Pace) -> None:
        self.connection = connection
        self._chat = chat
        self._pace = pace

    async def models(self) -> tuple[str, ...]:
        """Return the names of what it serves, each once."""
        return tuple(dict.fromkeys(await self._ask(self.connection.models)))

    async def show(self, images: int, model: str, field: str) -> None:
        """Show the model some small images; one that sees none, or fewer, would refuse every row."""
        if not images:
            return
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_picture()}"}}
        words = {"type": "text", "text": LOOK}
        asked = [{"role": "user", "content": [picture] * images + [words]}]
        body = {"model": model, "messages": asked, "max_tokens": 8, "temperature": 0, "seed": 0}
        try:
            await self._ask(lambda: self.connection.post(body))
        except RefusedQuestionError as refused:
            if refused.reason != REFUSED:  # it has looked at them
                return
            raise ConfigError(
                f"{field}: {model} at {self.connection.url} refuses to look at {images} image{'s' * (images > 1)} at "
                f"once ({refused.detail}): serve a model that sees images, and so many of them (vLLM: "
                f"--limit-mm-per-prompt '{{\"image\": {images}}}')"
            ) from None

    async def obeys(self, kind: Structured, model: str) -> bool:
        """Say whether an answer has the form that is asked for; servers ignore what they do not know, or refuse it."""
        asked = [{"role": "user", "content": "Say hello."}]
        body = {"model": model, "messages": asked, "max_tokens": 64, "temperature": 0, **FORMS[kind]}
        try:
            said = await self._ask(lambda: self.connection.post(body))
            return said.text.strip() == WORD if kind == "vllm" else json.loads(said.text) == {"word": WORD}
        except (RefusedQuestionError, ValueError, RecursionError):
            return False

    async def _ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; a server that is busy may be so for a while."""
        until, tries = time.monotonic() + self._chat.patience_seconds, 0
        while True:
            try:
                return await request()
            except FaultError as fault:
                tries += 1
                pause = self._pace.backoff_s * 2**tries if fault.retry_after is None else fault.retry_after
                most = min(MOST_TRIES.get(fault.reason, self._chat.max_attempts), self._chat.max_attempts)
                if tries >= most or time.monotonic() + pause > until:
                    raise ServerError(f"{self.connection.url}: {fault}: {_what_to_do(fault)}") from None
            await asyncio.sleep(pause)


def _picture() -> str:
    """Return a small PNG in base64."""
    import numpy as np

    return base64.b64encode(encode_png(np.full((56, 56, 3), (180, 90, 60), np.uint8))).decode()


def _what_to_do(fault: FaultError) -> str:
    if fault.reason == "broken answer":
        return "is this the address of an OpenAI-compatible server? They often end in /v1; correct models.chat.endpoint"
    return "is the server running, and is this its address?"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "none"
