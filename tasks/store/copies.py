"""Keep this machine's copies of what workers read beside parts, where the dataset is on an object store.

Plans, indexes and vectors belong to one build and lie in its workspace ("work/ID"). Whoever needs one first makes
the copy, the others on the machine wait and map the same file: one of each per machine, however many workers it has.

``TMP/pairwright-UID/copies/ID/`` holds the files, ``ID.users/`` a locked file for each process that uses them. A
process uses the copies of its last two builds; those that no process uses go when another build's first copy is made,
or when their last user ends. Beyond what is in use, nothing grows.
"""

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.scratch import own_temporary_folder

MOST_BUILDS = 2
USERS, LOCK = ".users", ".lock"


def copy_of(folder: Folder, name: str) -> Path:
    """Return where this machine has a file of the dataset, copied now if it had none.

    Raises:
        StoreError: it cannot be read, or this machine's disk is full.
    """
    if folder.is_local:
        return Path(folder.path(name))
    return made(folder, name, Path(name).name, lambda new: folder.fetch(name, new))


def made(folder: Folder, name: str, label: str, make: Callable[[Path], None]) -> Path:
    """Return where this machine has what is made of a file of the dataset; made now if it is not there."""
    path = _used_copies().folder_of(folder, str(Path(name).parent)) / label
    if not path.exists():
        with naming(str(path), "written"), FileLock(f"{path}{LOCK}"):
            if not path.exists():
                _make(path, make)
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        make(new)
        os.replace(new, path)  # noqa: PTH105  (files and folders alike)
    finally:
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        new.unlink(missing_ok=True)


class Used:
    """Be the builds whose copies this process uses, the newest last."""

    def __init__(self, parent: Path) -> None:
        """Use none yet."""
        self._parent = parent
        self._marks: dict[str, FileLock] = {}
        self._changing = threading.Lock()

    def folder_of(self, folder: Folder, workspace: str) -> Path:
        """Return the folder of a build's copies, which this process uses from now on."""
        name = make_key(folder.url, workspace)[:16]
        with self._changing:
            if name not in self._marks:
                with naming(str(self._parent), "written"), self._alone():
                    self._leave(max(0, len(self._marks) - MOST_BUILDS + 1))
                    self._drop_unused()
                    users = self._parent / f"{name}{USERS}"
                    users.mkdir(parents=True, exist_ok=True)
                    mark = FileLock(users / uuid.uuid4().hex, thread_local=False)
                    mark.acquire()
                    self._marks[name] = mark
                    (self._parent / name).mkdir(exist_ok=True)
            self._marks[name] = self._marks.pop(name)
        return self._parent / name

    def end(self) -> None:
        """Use none any more."""
        with self._changing, contextlib.suppress(OSError), self._alone():
            self._leave(len(self._marks))
            self._drop_unused()

    def _alone(self) -> FileLock:
        self._parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self._parent / LOCK)

    def _leave(self, count: int) -> None:
        for name in list(self._marks)[:count]:
            mark = self._marks.pop(name)
            mark.release()
            Path(mark.lock_file).unlink(missing_ok=True)

    def _drop_unused(self) -> None:
        for users in self._parent.glob(f"*{USERS}"):
            if not any(map(_is_held, users.iterdir())):
                shutil.rmtree(users.with_suffix(""), ignore_errors=True)
                shutil.rmtree(users, ignore_errors=True)


def _is_held(mark: Path) -> bool:
    """Say whether the process lives that holds a mark."""
    try:
        with FileLock(mark).acquire(blocking=False):
            return False
    except Timeout:
        return True


@lru_cache(maxsize=1)
def _used_copies() -> Used:
    """Return what this process uses; it uses nothing any more when it ends."""
    used = Used(own_temporary_folder() / "copies")
    Finalize(None, used.end, exitpriority=5)
    return used
