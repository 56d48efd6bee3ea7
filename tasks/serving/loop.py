"""Run coroutines from ordinary functions: one event loop in a thread of its own, for the process's life."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")


@lru_cache(maxsize=1)
def background() -> asyncio.AbstractEventLoop:
    """Return the running loop; it is started at the first call and ends with the process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="serving", daemon=True)
    thread.start()

    def stop() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    atexit.register(stop)
    return loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and wait for what it returns."""
    return asyncio.run_coroutine_threadsafe(coroutine, background()).result()
