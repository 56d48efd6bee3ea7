"""Faults of the medium, given to the store at a chosen system call."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairwright.tasks.store import answers, files

WRITES = ("write", "pwrite")
CALLS = ("open", *WRITES, "ftruncate", "fsync", "replace", "link")


class Killed(BaseException):
    """Imitate the end of the process: nothing that it does afterwards reaches the disk."""


class FaultyOs:
    """The ``os`` module, in which the ``at``-th writing call fails.

    Faults: the name of an errno; "short" (a write that takes half of the bytes); "full" (the same,
    and then ENOSPC); "kill" (before the call takes effect) and "late kill" (after it).
    """

    def __init__(self, fault: str, at: int) -> None:
        self.fault, self.at = fault, at
        self.count = 0
        self.last = ""
        self.triggered = False
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._wrap(name, real) if name in CALLS else real

    def _wrap(self, name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.check()
            self.count += 1
            if self.count - 1 < self.at or self.triggered:
                return real(*args, **options)
            return self._fail(name, lambda *other: real(*(other or args), **options), args)

        return call

    def _fail(self, name: str, real: Any, args: tuple[Any, ...]) -> Any:
        if self.fault in ("short", "full") and name not in WRITES:
            return real()
        self.triggered = self.fault != "full" or self.last == "half"
        self.last = "half" if self.fault == "full" and not self.triggered else name
        if self.fault in ("short", "full") and not (self.fault == "full" and self.triggered):
            return real(args[0], memoryview(args[1])[: max(1, len(args[1]) // 2)], *args[2:])
        if self.fault == "late kill":
            real()
        self.dead = "kill" in self.fault
        self.check()
        number = getattr(errno, "ENOSPC" if self.fault == "full" else self.fault)
        raise OSError(number, os.strerror(number))

    def check(self) -> None:
        """Do nothing any more once the process is "dead"."""
        if self.dead:
            raise Killed


@contextmanager
def faulty(monkeypatch: pytest.MonkeyPatch, fault: str, at: int) -> Iterator[FaultyOs]:
    """Let the ``at``-th writing system call of the store fail."""
    system = FaultyOs(fault, at)
    unlink = Path.unlink

    def unlink_if_alive(path: Path, missing_ok: bool = False) -> None:
        system.check()
        unlink(path, missing_ok)

    with monkeypatch.context() as patches:
        patches.setattr(files, "os", system)
        patches.setattr(answers, "os", system)
        patches.setattr(Path, "unlink", unlink_if_alive)
        yield system
