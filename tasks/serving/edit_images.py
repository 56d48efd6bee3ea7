"""Ask a server to edit images: ``POST /v1/images/edits``, as OpenAI's API and vLLM-Omni have it.

An image goes out as a form with the instruction, and comes back in base64. Answers are untrusted:
addresses in them are not followed. A fault is tried again; an edit that the server refuses for good
is an ``ImageFault`` of its own kind in the caller.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from pairwright.schemas.errors import ModelError, ServerError
from pairwright.schemas.removing import EditorConfig
from pairwright.tasks.serving.chat import RefusedQuestionError, RowError, UnansweredError
from pairwright.tasks.serving.connection import PACE, Connection, Pace
from pairwright.tasks.serving.faults import FaultError, StatusError
from pairwright.tasks.serving.loop import run_coroutine

PATH = "images/edits"
DATA_URL = "data:image/"
FIELD = "removals.editor"


@dataclass(frozen=True, slots=True)
class ImageEdit:
    """Edit of one image."""

    image: bytes
    """PNG."""
    instruction: str


def edit_images(
    edits: Sequence[ImageEdit], config: EditorConfig, pace: Pace = PACE
) -> list[bytes | RowError]:
    """Return the file of each edited image, in order, or why there is none.

    Raises ``ServerError`` where the server rejects the key or knows no such address.
    """
    return run_coroutine(_edit_all(edits, config, pace))


async def _edit_all(
    edits: Sequence[ImageEdit], config: EditorConfig, pace: Pace
) -> list[bytes | RowError]:
    connections = _connect(config, pace)
    limit = asyncio.Semaphore(config.max_concurrency)
    pairs = zip(edits, cycle(connections), strict=False)
    tasks = [
        asyncio.ensure_future(_edit_one(edit, connection, limit, config=config, pace=pace))
        for edit, connection in pairs
    ]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        for connection in connections:
            await connection.http.aclose()


def _connect(config: EditorConfig, pace: Pace) -> list[Connection]:
    """Return a connection to each address."""
    return [
        Connection(url, config.key, timeout_s=config.timeout_seconds, pace=pace)
        for url in config.endpoint
    ]


async def _edit_one(
    edit: ImageEdit,
    connection: Connection,
    limit: asyncio.Semaphore,
    *,
    config: EditorConfig,
    pace: Pace,
) -> bytes | RowError:
    form: dict[str, Any] = {
        "data": {
            "model": config.model,
            "prompt": edit.instruction,
            "n": "1",
            "response_format": "b64_json",
        },
        "files": {"image": ("image.png", edit.image, "image/png")},
    }
    attempt = 0
    while True:
        attempt += 1
        try:
            async with limit:
                return read_edited(await connection.post_form(PATH, form))
        except RefusedQuestionError as refused:
            return refused
        except (FaultError, StatusError) as error:
            is_retried = isinstance(error, FaultError) or error.is_retried
            if not is_retried or attempt >= config.max_attempts:
                reason = error.reason if isinstance(error, FaultError) else f"HTTP {error.status}"
                return UnansweredError(reason, error.detail)
        await asyncio.sleep(min(pace.backoff_s * 2**attempt, pace.backoff_most_s))


def read_edited(content: bytes) -> bytes:
    """Return the file of the first image in an answer; ``FaultError``: it holds none."""
    try:
        entry = json.loads(content)["data"][0]
        text = entry.get("b64_json") or entry.get("url") or ""
        if text.startswith(DATA_URL):
            text = text.partition(";base64,")[2]
        data = base64.b64decode(text, validate=True)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise FaultError("broken answer", "no image in base64 in it") from None
    if not data:
        raise FaultError("broken answer", "an empty image")
    return data


def find_editor(config: EditorConfig) -> EditorConfig:
    """Return the configuration with the server's only model, if none is named.

    ``ModelError``: no server is named, or none answers.
    """
    if not config.endpoint:
        raise ModelError(
            f"{FIELD}.endpoint: name a server that edits images (--set {FIELD}.endpoint="
            "http://HOST:PORT/v1), or fill holes by LaMa (--set removals.inpainter=lama)"
        )
    try:
        names = run_coroutine(_list_models(config))
    except (FaultError, StatusError, RefusedQuestionError, ServerError) as error:
        raise ModelError(f"{FIELD}.endpoint: {config.endpoint[0]}: {error}") from error
    if config.model:
        return config
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise ModelError(f"{FIELD}.model: name one of those that it serves: {listed}")
    return config.model_copy(update={"model": names[0]})


async def _list_models(config: EditorConfig) -> tuple[str, ...]:
    connections = _connect(config, PACE)
    try:
        return (await asyncio.gather(*(each.models() for each in connections)))[0]
    finally:
        for connection in connections:
            await connection.http.aclose()
