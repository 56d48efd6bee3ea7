"""Scratch folders of a process, copies of a machine, and folders replaced as a whole.

A scratch folder is deleted when its process ends, or by the next process if it was killed. A
replacement is written next to the old folder under a hidden name and renamed into its place; if the
process is killed between the two renames, the next call restores the old folder first.

Plans, indexes and vectors belong to one build and lie in its workspace ("work/ID"). If the dataset
is on an object store, each machine has copies: the first process that needs one makes it, the
others wait and map the same file. The build deletes its copies at its end; after a kill, and on
other machines, they go after a day without use.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder, naming

ENDING = ".lock"
SCRATCH_NAME = re.compile("[0-9a-f]{32}")
UNUSED_S = 24 * 3600.0


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Generator[Path]:
    """Make a folder of this process below ``parent``, after deleting those of dead processes.

    A lock file next to each folder shows that its process lives; it is made before the folder and
    deleted after it, so that a kill between the two leaves no folder without a lock.
    """
    path = parent / uuid.uuid4().hex
    lock = Path(f"{path}{ENDING}")
    with contextlib.ExitStack() as stack:
        with naming(str(parent), "written"):
            parent.mkdir(parents=True, exist_ok=True)
            for other in scratch_locks(parent):
                with contextlib.suppress(Timeout, OSError), FileLock(other).acquire(blocking=False):
                    shutil.rmtree(other.with_suffix(""), ignore_errors=True)
                    other.unlink(missing_ok=True)
            stack.enter_context(FileLock(lock))
            path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            lock.unlink(missing_ok=True)


def is_scratch(name: str) -> bool:
    """Return whether a name is one that ``scratch_folder`` gives; others are never deleted."""
    return SCRATCH_NAME.fullmatch(name) is not None


def scratch_locks(parent: Path) -> list[Path]:
    """Return the locks of all scratch folders below ``parent``."""
    return [path for path in parent.glob(f"*{ENDING}") if is_scratch(path.stem)]


def own_temporary_folder() -> Path:
    """Return this user's folder for scratch folders, below the system's temporary folder."""
    path = Path(tempfile.gettempdir()) / f"pairwright-{os.getuid()}"
    with naming(str(path), "written"):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{path}: belongs to another user, or others may write to it. Delete it, or set TMPDIR "
            "to a folder of your own"
        )
    return path


@contextlib.contextmanager
def replacing(target: Path) -> Generator[Path]:
    """Yield an empty folder that replaces the target if the block succeeds.

    It is deleted otherwise. If the target is a link, the folder that it points to is replaced.
    """
    target = target.resolve()
    new = target.with_name(f".{target.name}.new")
    old = target.with_name(f".{target.name}.old")
    # Beside the target, where processes with another temporary folder find it, too.
    lock = target.with_name(f".{target.name}.lock")
    busy = f"{target}: another process is writing it; wait until it ends and run this again"
    with naming(str(target), "replaced"):
        target.parent.mkdir(parents=True, exist_ok=True)
    with holding(lock, fault=busy), naming(str(target), "replaced"):
        if old.exists() and not target.exists():
            old.rename(target)
        for path in (old, new):
            shutil.rmtree(path, ignore_errors=True)
        new.mkdir()
        try:
            yield new
            if target.exists():
                target.rename(old)
            new.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
        finally:
            for path in (old, new):
                shutil.rmtree(path, ignore_errors=True)
            lock.unlink(missing_ok=True)


@contextlib.contextmanager
def holding(
    path: Path, *, fault: str = "", on_wait: Callable[[], None] | None = None
) -> Generator[None]:
    """Hold a lock, which ends with its process.

    If another process has it: raise ``StoreError`` with the fault; without one, call ``on_wait``
    and wait.
    """
    lock = FileLock(path)
    with naming(str(path), "locked"):
        try:
            lock.acquire(timeout=0.05)
        except Timeout as error:
            if fault:
                raise StoreError(fault) from error
            if on_wait:
                on_wait()
            lock.acquire(poll_interval=0.2)
    try:
        yield
    finally:
        lock.release()


def copy_of(folder: Folder, name: str) -> Path:
    """Return this machine's copy of a file of the dataset, made now if missing."""
    if folder.is_local:
        return Path(folder.path(name))
    return made(folder, name, Path(name).name, lambda new: new.write_bytes(folder.read(name)))


def made(folder: Folder, name: str, label: str, make: Callable[[Path], object]) -> Path:
    """Return this machine's derived file of a file of the dataset, made now if missing."""
    copies = copies_of(folder, str(Path(name).parent))
    path = copies / label
    with naming(str(path), "written"):
        if not path.exists():
            if not folder.is_local:
                copies.mkdir(parents=True, exist_ok=True)
                _delete_unused(copies.parent)
            with FileLock(copies / f"{label}.lock"):
                if not path.exists():
                    new = copies / f"{label}.new"
                    # of a killed process; a file is overwritten
                    shutil.rmtree(new, ignore_errors=True)
                    make(new)
                    new.rename(path)
        os.utime(copies)
    return path


def _delete_unused(parent: Path) -> None:
    """Delete the copies of builds that were not used for a day."""
    for copies in parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process may delete it first
            if copies.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(copies, ignore_errors=True)


def copies_of(folder: Folder, workspace: str) -> Path:
    """Return this machine's folder of a build's workspace, or of its copies (object stores)."""
    if folder.is_local:
        return Path(folder.path(workspace))
    return own_temporary_folder() / "copies" / make_key(folder.url, workspace)[:16]
