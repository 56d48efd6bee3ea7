"""Background event loop for coroutines of synchronous functions, in a thread of its own."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")
_STARTING = threading.Lock()
_LONGEST_END_S = 5.0


@lru_cache(maxsize=1)
def _start() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # A daemon: otherwise worker processes would wait for it at exit.
    thread = threading.Thread(
        target=loop.run_forever,
        name="served models",
        daemon=True,
    )
    thread.start()

    async def cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def stop_loop() -> None:
        """Cancel running tasks, so that the interpreter exits cleanly."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(_LONGEST_END_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_LONGEST_END_S)
        loop.close()

    atexit.register(stop_loop)
    return loop


def background() -> asyncio.AbstractEventLoop:
    """Return the running loop, started at the first call and stopped with the process."""
    with _STARTING:
        return _start()


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and return its result; must not be called on the loop itself."""
    return asyncio.run_coroutine_threadsafe(coroutine, background()).result()
