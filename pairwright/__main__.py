"""Run the command line: ``pairwright``, ``python -m pairwright``, ``torchrun -m pairwright``.

SIGINT and SIGTERM end it with one line and exit code 130, from the first instruction on, also while
modules load.
"""

import os
import signal
import time
from types import FrameType
from typing import NoReturn

STOPPED = 130
asked = False
"""Whether a signal has come."""
asked_at = 0.0
AT_ONCE_S = 0.5
"""Seconds in which a second signal is ignored: it would interrupt the end that the first began."""


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if (
            signal.getsignal(number) is not signal.SIG_IGN
        ):  # shells ignore signals for background jobs
            signal.signal(number, _stop)
    from pairwright.flows.cli import main as run

    try:
        run()
    except Exception:
        if asked:  # Python wrapped the interrupt in another error, as in __set_name__
            _end()
        raise


def _stop(_number: int, frame: FrameType | None) -> None:
    """Raise ``KeyboardInterrupt``, or exit at once while a module loads.

    A loading module could turn the interrupt into another error.
    """
    global asked, asked_at
    now = time.monotonic()
    if asked and now - asked_at < AT_ONCE_S:
        return
    asked = True
    asked_at = now
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end() -> NoReturn:
    os.write(2, b"Stopped.\n")
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
