"""Pay for questions out of one budget from many processes, so that it is never passed.

What an answer may cost is set aside before the question is asked, and settled when its cost is known. Each process
appends its payments to a file of its own in one local folder, 16 bytes each, and reads the files of the others: no
lock, and nothing lost with a process that is killed (what it had set aside stays so until the build ends).
"""

import os
import struct
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pairwright.tasks.store.files import naming

PAYMENT = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class Purse:
    """Say where payments are written and what they may come to; a few bytes that travel with a shard."""

    folder: str
    calls: int = 0
    """Most answers; 0: no limit."""
    tokens: int = 0
    """Most tokens; 0: no limit."""

    def take(self, tokens: int) -> bool:
        """Set a call and its tokens aside; ``False`` where that would be too much, and nothing is.

        It is written before the sum is taken: of two processes that want the last coin, at most one gets it.
        """
        till = _till(self.folder)
        with till.using:
            till.pay(1, tokens)
            calls, paid = till.sum()
            if (self.calls and calls > self.calls) or (self.tokens and paid > self.tokens):
                till.pay(-1, -tokens)
                return False
            till.open += 1
            return True

    def settle(self, taken: int, cost: int | None) -> None:
        """Put back what was set aside beyond the cost, in tokens; all of it where there was no answer."""
        till = _till(self.folder)
        with till.using:
            till.open -= 1
            till.pay(-1 if cost is None else 0, (cost or 0) - taken)

    def spend(self, calls: int, tokens: int) -> None:
        """Pay for what was asked before this build."""
        with _till(self.folder).using:
            _till(self.folder).pay(calls, tokens)

    @property
    def spent(self) -> tuple[int, int]:
        """Return calls and tokens that are paid or set aside, by all processes."""
        with _till(self.folder).using:
            return _till(self.folder).sum()

    @property
    def has_open(self) -> bool:
        """Say whether this process has something set aside that is to be settled."""
        return _till(self.folder).open > 0


@dataclass(slots=True)
class _Till:
    """Be one process' file of payments, and what it has read of the others'."""

    folder: Path
    own: int
    """Descriptor of the own file."""
    using: threading.Lock = field(default_factory=threading.Lock)
    open: int = 0
    read: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of each file that are in ``total``."""
    total: tuple[int, int] = (0, 0)

    def pay(self, calls: int, tokens: int) -> None:
        with naming(str(self.folder), "written"):
            os.write(self.own, PAYMENT.pack(calls, tokens))

    def sum(self) -> tuple[int, int]:
        for calls, tokens in self._new():
            self.total = (self.total[0] + calls, self.total[1] + tokens)
        return self.total

    def _new(self) -> Iterator[tuple[int, int]]:
        """Yield the payments that came since the last call, of all processes."""
        with naming(str(self.folder), "read"):
            for entry in os.scandir(self.folder):
                start = self.read.get(entry.name, 0)
                with Path(entry.path).open("rb") as file:
                    file.seek(start)
                    data = file.read()
                whole = len(data) - len(data) % PAYMENT.size
                self.read[entry.name] = start + whole
                yield from PAYMENT.iter_unpack(data[:whole])


@lru_cache(maxsize=8)
def _till(folder: str) -> _Till:
    """Open this process' file in a folder; one name for each process, machine and start."""
    with naming(folder, "opened"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = Path(folder) / uuid.uuid4().hex
        return _Till(Path(folder), os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))
