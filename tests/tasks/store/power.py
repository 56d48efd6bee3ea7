"""Record changes to the files below a folder, and write what a loss of power may leave.

What holds is what POSIX promises, and no more: what was written to a file is on the disk once the
file was flushed, and a name is there, or gone, once its folder was flushed. Of everything since,
any part may be there, in any order; of a rename, both names or neither.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest


class Node:
    """A file or a folder: the moment of each flush."""

    def __init__(self) -> None:
        self.flushes: list[int] = []

    def last_flush(self, moment: int) -> int:
        """Return the last flush that was over by a moment; -1: none was."""
        return max((flush for flush in self.flushes if flush < moment), default=-1)


class File(Node):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, int, bytes | None]] = []
        """Moment, place and bytes; ``None`` cuts the file off at the place."""

    def lay_down(self, path: Path, moment: int, rng: Random, share: float) -> None:
        data, safe = bytearray(), self.last_flush(moment)
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
        path.write_bytes(data)


class Names(Node):
    """A folder: the names that it has now, and the moment at which each came (or went: None)."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[str, Node] = {}
        self.changes: list[tuple[int, dict[str, Node | None]]] = []

    def lay_down(self, path: Path, moment: int, rng: Random, share: float) -> None:
        path.mkdir()
        left: dict[str, Node | None] = {}
        safe = self.last_flush(moment)
        for when, change in self.changes:
            if when < moment and (when <= safe or rng.random() < share):
                left |= change
        for name, node in left.items():
            if isinstance(node, File | Names):
                node.lay_down(path / name, moment, rng, share)


Place = tuple[Names, str]


class Disk:
    """A folder while ``recording``: every change and every flush is a moment."""

    def __init__(self, root: Path) -> None:
        """Begin with an empty folder that is on the disk."""
        self.root, self.top, self.moment = root, Names(), 0
        self._open: dict[int, tuple[Node, int]] = {}
        """Node and place in it of each open file, by its number."""

    def tick(self) -> int:
        """Return the present moment, and go on to the next."""
        self.moment += 1
        return self.moment - 1

    @contextmanager
    def recording(self) -> Generator[None]:
        """See what this process does."""
        seen: dict[str, Callable[..., None]] = {
            "open": self._opened,
            "close": self._closed,
            "fsync": self._flushed,
            "ftruncate": self._cut,
            "mkdir": self._made,
            "link": self._linked,
            **dict.fromkeys(("write", "pwrite"), self._written),
            **dict.fromkeys(("rename", "replace"), self._renamed),
            **dict.fromkeys(("unlink", "remove", "rmdir"), self._removed),
        }
        with pytest.MonkeyPatch.context() as patches:
            for name, see in seen.items():
                patches.setattr(os, name, _after(getattr(os, name), see))
            yield

    def lay_down(self, root: Path, moment: int, rng: Random, share: float) -> None:
        """Write what a loss of power leaves; of what was not flushed, about a share."""
        self.top.lay_down(root, moment, rng, share)

    def _place(self, path: Any, dir_fd: int | None = None) -> Place | None:
        """Return folder and name of a path; ``None`` if the folder is unknown."""
        if dir_fd is not None:
            folder, _ = self._open.get(dir_fd, (None, 0))
            return (folder, os.fspath(path)) if isinstance(folder, Names) else None
        full = _absolute(path)
        if not full.is_relative_to(self.root) or full == self.root:
            return None
        node: Node | None = self.top
        for part in full.relative_to(self.root).parts[:-1]:
            node = node.now.get(part) if isinstance(node, Names) else None
        return (node, full.name) if isinstance(node, Names) else None

    def _node(self, path: Any, dir_fd: int | None = None) -> Node | None:
        """Return what a path names."""
        if dir_fd is None and _absolute(path) == self.root:
            return self.top
        place = self._place(path, dir_fd)
        return place[0].now.get(place[1]) if place else None

    def _change(self, folder: Names, names: dict[str, Node | None]) -> None:
        """Give names to nodes, or take them away, all at once."""
        folder.changes.append((self.tick(), names))
        now = folder.now | names
        folder.now = {name: node for name, node in now.items() if node}

    def _opened(
        self, number: int, path: Any, flags: int, *_: Any, dir_fd: int | None = None, **__: Any
    ) -> None:
        place, node = self._place(path, dir_fd), self._node(path, dir_fd)
        if node is None and place and flags & os.O_CREAT:
            node = File()
            self._change(place[0], {place[1]: node})
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
        if isinstance(node, File):
            start = here if place is None else place
            node.writes.append((self.tick(), start, bytes(memoryview(data)[:count])))
            self._open[number] = (node, here + count if place is None else here)

    def _cut(self, _: None, number: int, size: int) -> None:
        node, _place = self._open.get(number, (None, 0))
        if isinstance(node, File):
            node.writes.append((self.tick(), size, None))

    def _made(self, _: None, path: Any, *__: Any, **___: Any) -> None:
        if place := self._place(path):
            self._change(place[0], {place[1]: Names()})

    def _linked(self, _: None, path: Any, new: Any) -> None:
        node, place = self._node(path), self._place(new)
        if node and place:
            self._change(place[0], {place[1]: node})

    def _renamed(self, _: None, path: Any, new: Any) -> None:
        node, place, target = self._node(path), self._place(path), self._place(new)
        if node and place and target:
            assert place[0] is target[0], "a rename within one folder"
            self._change(place[0], {place[1]: None, target[1]: node})

    def _removed(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        if place and self._node(path, dir_fd):
            self._change(place[0], {place[1]: None})


def _absolute(path: Any) -> Path:
    return Path(os.path.abspath(os.fspath(path)))  # noqa: PTH100  (``resolve`` would follow links)


def _after(real: Callable[..., Any], see: Callable[..., None]) -> Callable[..., Any]:
    """Let a call be seen once it has taken effect."""

    def call(*words: Any, **named: Any) -> Any:
        result = real(*words, **named)
        see(result, *words, **named)
        return result

    return call
