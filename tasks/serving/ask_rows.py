"""Let rows ask a served model, many of them at once.

A stage writes one coroutine for a row; here they run on the background loop, a bounded number at a time, and what they
give is yielded as it comes. Rows are taken from their iterable when there is room for them, in the caller's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from pairwright.schemas.rows import Dropped, Failed, Row
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.chat import Chat, RefusedQuestionError, UnansweredError
from pairwright.tasks.serving.client import client_of
from pairwright.tasks.serving.connection import PACE, Pace
from pairwright.tasks.serving.loop import background, is_background, run
from pairwright.tasks.store.answers import Answers

R = TypeVar("R", bound=Row)
Result = Row | Dropped | Failed
Work = Callable[[R, Chat], Awaitable[Result | Sequence[Result]]]
AHEAD = 16
"""Rows in hand beside two for each request that may be under way: some are between two requests."""
_END = object()


def ask_rows(
    rows: Iterable[R], work: Work[R], model: ChatConfig, *, answers: Answers | None = None, pace: Pace = PACE
) -> Iterator[Result]:
    """Yield what the work gives for each row, in the order in which it ends.

    A refused question drops its row, an unanswered one fails it. Anything else that the work raises ends the whole, as
    does closing the iterator: whatever is under way is cancelled first. The same row and answers must give the same
    questions: what was answered before is looked up in ``answers``, and new answers are kept there. Raises
    ``ConfigError`` where no server is named, ``ServerError`` where none answers, takes the key or knows the model.
    """
    client = client_of(model, pace)
    chat = Chat(partial(client.ask, answers=answers))
    running = _Running()
    try:
        source = iter(rows)
        row: Any = next(source, _END)
        while running.count or row is not _END:
            while row is not _END and running.count < 2 * client.endpoints.room + AHEAD:
                running.start(partial(_one, work, row, chat))
                row = next(source, _END)
            yield from running.next()
    finally:
        running.stop()


async def _one(work: Work[R], row: R, chat: Chat) -> Sequence[Result]:
    """Return the results of one row; the boundary at which what went wrong with it becomes a result."""
    try:
        results = await work(row, chat)
    except RefusedQuestionError as refused:
        return (Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail),)
    except UnansweredError as unanswered:
        return (Failed(source_key=row.key, reason=unanswered.reason, detail=unanswered.detail),)
    return results if isinstance(results, Sequence) else (results,)


class _Running:
    """Tasks of one call, on the background loop."""

    def __init__(self) -> None:
        self.count = 0
        """Tasks whose results were not taken yet."""
        self._loop = background()
        self._tasks: set[asyncio.Task[Sequence[Result]]] = set()
        self._ended: SimpleQueue[asyncio.Task[Sequence[Result]]] = SimpleQueue()

    def start(self, work: Callable[[], Any]) -> None:
        self.count += 1
        self._loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Callable[[], Any]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Sequence[Result]]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise one that nobody waits for any more is complained of
        self._ended.put(task)

    def next(self) -> Sequence[Result]:
        """Wait for one that ends."""
        task = self._ended.get()
        self.count -= 1
        return task.result()

    def stop(self) -> None:
        """Cancel what is under way, and wait until it is gone."""
        if not self.count:
            return
        if is_background():  # an abandoned iterator was collected there: waiting would be for ever
            self._loop.create_task(self._cancel())
        else:
            run(self._cancel())

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
