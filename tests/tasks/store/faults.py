"""Faults of the medium, given to the store at a chosen call, and damage of what it wrote.

``faulty``: the ``at``-th system call of a build fails, or its process ends there. ``tiny_disk``:
so many bytes fit. ``dying``: the process ends at a change of the folder. ``flipped``: bytes with
one changed. Processes that are really killed are in ``forge``, a loss of power is in ``power``.
"""

import errno
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from pairwright.tasks.store import answers, files
from pairwright.tasks.store.files import Folder

WRITES = ("write", "pwrite")
CALLS = ("open", *WRITES, "ftruncate", "fsync", "replace", "link")


class Killed(BaseException):
    """Imitate the end of the process: nothing that it does afterwards reaches the disk."""


class FaultySystem:
    """The ``os`` module, in which the ``at``-th writing call fails; or the ``at``-th read of files.

    Faults: the name of an errno; "short" (a write that takes half of the bytes); "full" (the same,
    and then ENOSPC); "kill" (before the call takes effect) and "late kill" (after it); "unreadable"
    (EIO when reading).
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
            if self.fault == "unreadable" or not self.due():
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
        raise fault_of("ENOSPC" if self.fault == "full" else self.fault)

    def due(self) -> bool:
        """Count a call; return whether it is the one that fails, or a later one before it did."""
        self.count += 1
        return self.count > self.at and not self.triggered

    def read(self) -> None:
        """Let a read fail when it is due."""
        if self.fault == "unreadable" and self.due():
            self.triggered = True
            raise fault_of("EIO")

    def check(self) -> None:
        """Do nothing any more once the process is "dead"."""
        if self.dead:
            raise Killed


class FaultyFile:
    """An open file of a faulty system."""

    def __init__(self, file: Any, system: FaultySystem) -> None:
        self._file, self._system = file, system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._file.close()

    def read(self, *args: Any) -> Any:
        self._system.read()
        return self._file.read(*args)

    def readinto(self, *args: Any) -> Any:
        self._system.read()
        return self._file.readinto(*args)


def fault_of(name: str) -> OSError:
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


def fail(name: str) -> Callable[..., Any]:
    """Return a call that always fails with an errno."""

    def call(*_: Any, **__: Any) -> Any:
        raise fault_of(name)

    return call


@contextmanager
def faulty(monkeypatch: pytest.MonkeyPatch, fault: str, at: int) -> Generator[FaultySystem]:
    """Let the ``at``-th system call of the store fail."""
    system = FaultySystem(fault, at)
    unlink, opened = Path.unlink, Folder.open_for_reading

    def unlink_if_alive(path: Path, missing_ok: bool = False) -> None:
        system.check()
        unlink(path, missing_ok)

    with monkeypatch.context() as patches:
        patches.setattr(files, "os", system)
        patches.setattr(answers, "os", system)
        patches.setattr(Path, "unlink", unlink_if_alive)
        patches.setattr(Folder, "open_for_reading", lambda *name: FaultyFile(opened(*name), system))
        yield system


class TinyDisk:
    """The ``os`` module with short writes, on a disk that is full after so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, file: int, data: Any, place: int) -> int:
        if not self.room:
            raise fault_of("ENOSPC")
        taken = min(3, self.room, len(data))
        self.room -= taken
        return os.pwrite(file, data[:taken], place)


@contextmanager
def tiny_disk(monkeypatch: pytest.MonkeyPatch, room: int) -> Generator[None]:
    with monkeypatch.context() as patches:
        patches.setattr(answers, "os", TinyDisk(room))
        yield


@contextmanager
def dying(at: int, *, late: bool) -> Generator[None]:
    """Let the process die at the ``at``-th change of a folder, before or after it takes effect."""
    steps = iter(range(1, 1_000))

    def mortal(real: Callable[..., Any]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            step = next(steps)
            if step == at and not late:
                raise Killed
            real(*args, **options)
            if step == at:
                raise Killed

        return call

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Folder, "write", mortal(Folder.write))
        patches.setattr(Folder, "delete", mortal(Folder.delete))
        patches.setattr(shutil, "rmtree", mortal(shutil.rmtree))
        yield


def flipped(data: bytes, place: int, bits: int) -> bytes:
    """Return bytes of which some bits of one are changed."""
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]
