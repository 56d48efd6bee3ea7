"""Run a stage's coroutine for many rows at once against a served model.

Coroutines run on the background loop, a bounded number at a time; results are yielded as they come.
Rows are taken from their iterable on demand, in the caller's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, TypeVar

from pairwright.schemas.rows import Dropped, Failed, Row
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.chat import Chat, RefusedQuestionError, UnansweredError
from pairwright.tasks.serving.client import client_of
from pairwright.tasks.serving.connection import PACE, Pace
from pairwright.tasks.serving.loop import background
from pairwright.tasks.store.answers import Answers

R = TypeVar("R", bound=Row)
Result = Row | Dropped | Failed
Work = Callable[[R, Chat], Awaitable[Result | Sequence[Result]]]
AHEAD = 16  # rows in progress besides two per possible request: some are between requests
_END = object()


def ask_rows(
    rows: Iterable[R],
    work: Work[R],
    model: ChatConfig,
    *,
    answers: Answers | None = None,
    pace: Pace = PACE,
) -> Iterator[Result]:
    """Yield the results of ``work`` for each row, in the order of completion.

    A refused question drops its row, an unanswered one fails it. Other errors of ``work`` end the
    iteration, as does closing it: pending work is cancelled. Answers are looked up in ``answers``
    and stored there, so the same row must ask the same questions. Raises ``ConfigError`` where no
    server is named, ``ServerError`` where none answers, accepts the key or knows the model.
    """
    client = client_of(model, pace)
    chat = Chat(partial(client.ask, answers=answers))
    running = set[Future[Sequence[Result]]]()
    finished = SimpleQueue[Future[Sequence[Result]]]()
    try:
        source = iter(rows)
        row: Any = next(source, _END)
        while running or row is not _END:
            while row is not _END and len(running) < 2 * client.endpoints.room + AHEAD:
                coroutine = _process_row(work, row, chat)
                future = asyncio.run_coroutine_threadsafe(coroutine, background())
                running.add(future)
                future.add_done_callback(finished.put)
                row = next(source, _END)
            future = finished.get()
            running.remove(future)
            yield from future.result()
    finally:
        for future in running:
            future.cancel()


def asking(
    work: Callable[..., Awaitable[Result | Sequence[Result]]],
    compose: Callable[..., Row | Dropped] | None = None,
) -> Callable[..., Iterator[Result]]:
    """Return a stage's function from a coroutine of row, chat, config and tables.

    ``compose`` writes the rows of a configuration that asks no model, from the same arguments but
    the chat.
    """

    @wraps(work)
    def run_served_stage(
        rows: Iterable[Row],
        config: Any,
        *,
        answers: Answers | None = None,
        **tables: Any,
    ) -> Iterator[Result]:
        if compose and not config.is_served:
            return (compose(row, config=config, **tables) for row in rows)
        process = partial(work, config=config, **tables)
        return ask_rows(rows, process, config.served, answers=answers)

    return run_served_stage


async def _process_row(
    work: Work[R],
    row: R,
    chat: Chat,
) -> Sequence[Result]:
    try:
        results = await work(row, chat)
    except RefusedQuestionError as refused:
        return (
            Dropped(
                source_key=row.key,
                reason=refused.reason,
                detail=refused.detail,
            ),
        )
    except UnansweredError as unanswered:
        return (
            Failed(
                source_key=row.key,
                reason=unanswered.reason,
                detail=unanswered.detail,
            ),
        )
    return results if isinstance(results, Sequence) else (results,)
