"""Run the command line: ``pairwright``, ``python -m pairwright``, ``torchrun -m pairwright``.

From its first instruction on SIGINT and SIGTERM end it with one line and exit code 130, also while modules are loaded.
"""

import os
import signal
from types import FrameType

STOPPED = 130


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as shells start what is in the background
            signal.signal(number, _stop)
    from pairwright.flows.cli import main as run

    run()


def _stop(_number: int, frame: FrameType | None) -> None:
    """Raise ``KeyboardInterrupt``; while a module is loaded, which might pass that on as another error, end at once."""
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"Stopped.\n")
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
