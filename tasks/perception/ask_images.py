"""Ask a served model about many images at once, for stages that run a model on groups of images."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.serving.chat import Chat, RefusedQuestionError, UnansweredError
from pairwright.tasks.serving.client import client_of
from pairwright.tasks.serving.loop import run_coroutine
from pairwright.tasks.store.answers import Answers

T = TypeVar("T")
U = TypeVar("U")
Ask = Callable[[T, Chat], Awaitable[U]]


def ask_images(
    ask: Ask[T, U],
    items: Sequence[T],
    model: ChatConfig,
    *,
    answers: Answers | None = None,
) -> list[U | ImageFault]:
    """Return the result of ``ask`` for each item, in order, or why the server gave none.

    Raises ``ConfigError`` where no server is named, ``ServerError`` where none answers.
    """
    client = client_of(model)
    chat = Chat(partial(client.ask, answers=answers))
    return run_coroutine(_ask_all(ask, items, chat))


async def _ask_all(ask: Ask[T, U], items: Sequence[T], chat: Chat) -> list[U | ImageFault]:
    tasks = [asyncio.ensure_future(_ask_one(ask, item, chat)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _ask_one(ask: Ask[T, U], item: T, chat: Chat) -> U | ImageFault:
    try:
        return await ask(item, chat)
    except RefusedQuestionError as refused:
        return ImageFault(reason=refused.reason, detail=refused.detail)
    except UnansweredError as unanswered:
        return ImageFault(reason=unanswered.reason, detail=unanswered.detail, is_final=False)
