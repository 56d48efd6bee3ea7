"""Record what a program does to the files below a folder, and lay down what a loss of power may
leave of it.

What holds is what POSIX promises, and no more: what was written to a file is on the disk once the
file was flushed, and a name is there, or gone, once its folder was flushed. Of everything since,
any part may be there, in any order; of a rename, both names or neither.
"""

import os
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Rng = random.Random


@dataclass(eq=False)
class File:
    """Bytes of a file: the time of each write and flush."""

    writes: list[tuple[int, int, bytes | None]] = field(
        default_factory=list[tuple[int, int, bytes | None]]
    )
    """Moment, place and bytes; ``None`` cuts the file off at the place."""
    flushes: list[int] = field(default_factory=list[int])

    def left(self, moment: int, rng: Rng, share: float) -> bytes:
        """Return what a loss of power at a moment leaves."""
        data, safe = bytearray(), last_before(self.flushes, moment)
        for when, place, piece in self.writes:
            if when >= moment or (when > safe and rng.random() >= share):
                continue
            if piece is None:
                del data[place:]
                continue
            if when > safe and rng.random() < 0.5:
                piece = piece[: rng.randrange(len(piece) + 1)]
            data.extend(bytes(max(0, place - len(data))))
            data[place : place + len(piece)] = piece
        return bytes(data)


@dataclass(eq=False)
class Names:
    """Names in a folder: the time at which each came and went, and of each flush."""

    now: dict[str, "File | Names"] = field(default_factory=dict[str, "File | Names"])
    changes: list[tuple[int, dict[str, "File | Names | None"]]] = field(
        default_factory=list[tuple[int, dict[str, "File | Names | None"]]]
    )
    flushes: list[int] = field(default_factory=list[int])

    def left(self, moment: int, rng: Rng, share: float) -> dict[str, "File | Names"]:
        """Return the names that a loss of power at a moment leaves."""
        found: dict[str, File | Names] = {}
        safe = last_before(self.flushes, moment)
        for when, change in self.changes:
            if when < moment and (when <= safe or rng.random() < share):
                found.update({name: node for name, node in change.items() if node})
                for name in (name for name, node in change.items() if not node):
                    found.pop(name, None)
        return found


def last_before(flushes: list[int], moment: int) -> int:
    """Return the last flush that was over by a moment; -1: none was."""
    return max((flush for flush in flushes if flush < moment), default=-1)


class Disk:
    """Know all that happens below a folder while ``recording``; each change and each flush is a
    moment."""

    def __init__(self, root: Path) -> None:
        """Begin with an empty folder that is on the disk."""
        self.root, self.top, self.moment = root, Names(), 0
        self._open: dict[
            int, tuple[File | Names, int]
        ] = {}  # node and place of each open file, by its number

    def tick(self) -> int:
        """Return the present moment, and go on to the next."""
        self.moment += 1
        return self.moment - 1

    def find(self, path: Any, dir_fd: int | None = None) -> "tuple[Names, str] | None":
        """Return the folder and the name of a path; ``None`` for one that is elsewhere, or in an
        unknown folder."""
        if dir_fd is not None:
            node = self._open[dir_fd][0] if dir_fd in self._open else None
            return (node, os.fspath(path)) if isinstance(node, Names) else None
        place = Path(os.path.abspath(os.fspath(path)))  # noqa: PTH100  (``resolve`` would follow links)
        if not place.is_relative_to(self.root) or place == self.root:
            return None
        node: File | Names | None = self.top
        for part in place.relative_to(self.root).parts[:-1]:
            node = node.now.get(part) if isinstance(node, Names) else None
        return (node, place.name) if isinstance(node, Names) else None

    def node(self, path: Any) -> "File | Names | None":
        """Return what a path names."""
        if Path(os.path.abspath(os.fspath(path))) == self.root:  # noqa: PTH100
            return self.top
        place = self.find(path)
        return place[0].now.get(place[1]) if place else None

    def change(self, folder: Names, names: dict[str, "File | Names | None"]) -> None:
        """Give names to nodes, or take them away, all at once."""
        folder.changes.append((self.tick(), names))
        for name, node in names.items():
            if node:
                folder.now[name] = node
            else:
                folder.now.pop(name, None)

    @contextmanager
    def recording(self) -> Generator[None]:
        """See what this process does."""
        with pytest.MonkeyPatch.context() as patches:
            for name, seen in self._watched():
                patches.setattr(os, name, _after(getattr(os, name), seen))
            yield

    def _watched(self) -> Iterator[tuple[str, Callable[..., None]]]:
        yield from (("open", self._opened), ("close", self._closed), ("fsync", self._flushed))
        yield from (("write", self._written), ("pwrite", self._written), ("ftruncate", self._cut))
        yield from (("mkdir", self._made), ("link", self._linked))
        yield from ((name, self._renamed) for name in ("rename", "replace"))
        yield from ((name, self._removed) for name in ("unlink", "remove", "rmdir"))

    def _opened(
        self, number: int, path: Any, flags: int, *_: Any, dir_fd: int | None = None, **__: Any
    ) -> None:
        place = self.find(path, dir_fd)
        node = (
            self.node(path) if dir_fd is None else (place[0].now.get(place[1]) if place else None)
        )
        if node is None and place and flags & os.O_CREAT:
            node = File()
            self.change(place[0], {place[1]: node})
        if isinstance(node, File) and flags & os.O_TRUNC:
            node.writes.append((self.tick(), 0, None))
        if node is not None:
            self._open[number] = (node, 0)

    def _closed(self, _: None, number: int) -> None:
        self._open.pop(number, None)

    def _flushed(self, _: None, number: int) -> None:
        if number in self._open:
            self._open[number][0].flushes.append(self.tick())

    def _written(self, count: int, number: int, data: Any, place: int | None = None) -> None:
        node, here = self._open.get(number, (None, 0))
        if not isinstance(node, File):
            return
        node.writes.append(
            (self.tick(), here if place is None else place, bytes(memoryview(data)[:count]))
        )
        if place is None:
            self._open[number] = (node, here + count)

    def _cut(self, _: None, number: int, size: int) -> None:
        if number in self._open and isinstance(node := self._open[number][0], File):
            node.writes.append((self.tick(), size, None))

    def _made(self, _: None, path: Any, *__: Any, **___: Any) -> None:
        if place := self.find(path):
            self.change(place[0], {place[1]: Names()})

    def _linked(self, _: None, path: Any, new: Any) -> None:
        node, place = self.node(path), self.find(new)
        if node and place:
            self.change(place[0], {place[1]: node})

    def _renamed(self, _: None, path: Any, new: Any) -> None:
        place, target = self.find(path), self.find(new)
        if place and target and place[1] in place[0].now:
            assert place[0] is target[0], "a rename within one folder"
            self.change(place[0], {place[1]: None, target[1]: place[0].now[place[1]]})

    def _removed(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.find(path, dir_fd)
        if place and place[1] in place[0].now:
            self.change(place[0], {place[1]: None})

    def lay_down(self, root: Path, moment: int, rng: Rng, share: float) -> None:
        """Write what is left by a loss of power before a moment; of what was not flushed, about a
        share."""
        _write(self.top, root, moment, rng, share)


def _write(node: File | Names, path: Path, moment: int, rng: Rng, share: float) -> None:
    if isinstance(node, File):
        path.write_bytes(node.left(moment, rng, share))
        return
    path.mkdir()
    for name, inner in node.left(moment, rng, share).items():
        _write(inner, path / name, moment, rng, share)


def _after(real: Callable[..., Any], seen: Callable[..., None]) -> Callable[..., Any]:
    """Let a call be seen once it has taken effect."""

    def call(*words: Any, **named: Any) -> Any:
        result = real(*words, **named)
        seen(result, *words, **named)
        return result

    return call
