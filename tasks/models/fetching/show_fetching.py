"""Show how a download, or an upload, gets on: a bar on a terminal, a plain line now and then elsewhere."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

log = logging.getLogger("pairwright")
LINE_EVERY_S = 30.0


class Progress(Protocol):
    """Be told how a download gets on."""

    def begin(self, done: int, total: int) -> None:
        """Hear how many bytes are there already, and how many there will be; 0: that is not known."""

    def advance(self, size: int) -> None:
        """Hear that so many bytes came."""

    def say(self, text: str) -> None:
        """Hear what happened."""


@contextmanager
def showing(name: str, doing: str = "fetching") -> Generator[Progress]:
    """Yield who shows the download of a file, or what else is done with its bytes."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(name, doing)
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
        yield Bar(name, bars)


class Lines:
    """Write lines to the log."""

    def __init__(self, name: str, doing: str = "fetching") -> None:
        self._name, self._doing = name, doing
        self._done = self._total = 0
        self._next = 0.0

    def begin(self, done: int, total: int) -> None:
        """Say what is to come."""
        self._done, self._total = done, total
        self._next = time.monotonic() + LINE_EVERY_S
        there = f", {_shown(done)} of it here already" if done else ""
        log.info("%s: %s %s%s", self._name, self._doing, _shown(total) if total else "a file of unknown size", there)

    def advance(self, size: int) -> None:
        """Say how much is there, now and then, and at the end."""
        self._done += size
        if time.monotonic() >= self._next or self._done == self._total:
            self._next = time.monotonic() + LINE_EVERY_S
            log.info("%s: %s of %s", self._name, _shown(self._done), _shown(self._total) if self._total else "?")

    def say(self, text: str) -> None:
        """Say it."""
        log.warning("%s: %s", self._name, text)


class Bar:
    """Draw a bar."""

    def __init__(self, name: str, bars: "Bars") -> None:
        self._name, self._bars = name, bars
        self._task = bars.add_task(name, total=None)

    def begin(self, done: int, total: int) -> None:
        """Set the bar to what is there."""
        self._bars.update(self._task, completed=done, total=total or None)

    def advance(self, size: int) -> None:
        """Move the bar."""
        self._bars.advance(self._task, size)

    def say(self, text: str) -> None:
        """Print it above the bar."""
        self._bars.console.print(f"{self._name}: {text}", markup=False, highlight=False)


def _shown(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
