"""Folders for the time of one process, and folders that are replaced as a whole.

A scratch folder is deleted when its process ends, or by the next process where it was killed. A replaced one grows
beside the old one under a hidden name and takes its place by renaming; a process that is killed between the two renames
leaves the old one beside, and the next call puts it back before it starts.
"""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import naming

ENDING = ".lock"
USER = os.getuid() if hasattr(os, "getuid") else 0  # elsewhere the temporary folder is the user's own


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Generator[Path]:
    """Make a folder below ``parent`` that nobody else has, and first delete those there whose processes are dead.

    A lock beside each says that its process lives; it comes before the folder and goes after it, so that a kill between
    the two leaves nothing that is not found again.
    """
    path = parent / uuid.uuid4().hex
    lock = Path(f"{path}{ENDING}")
    with contextlib.ExitStack() as stack:
        with naming(str(parent), "written"):
            parent.mkdir(parents=True, exist_ok=True)
            for other in parent.glob(f"*{ENDING}"):
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


def own_temporary_folder() -> Path:
    """Return this user's folder for scratch folders, below the system's folder for temporary files.

    Others may have put something under its name, where everybody may write: then a new name is taken each time, and
    nothing is cleaned up after a kill.
    """
    path = Path(tempfile.gettempdir()) / f"pairwright-{USER}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_symlink() and path.is_dir() and (path.stat().st_uid == USER or os.name == "nt"):
        return path
    return Path(tempfile.mkdtemp(prefix="pairwright-"))


@contextlib.contextmanager
def replacing(target: Path) -> Generator[Path]:
    """Yield an empty folder that takes the target's place when the block ends well, and is deleted when it does not.

    Where the target is a link, the folder that it leads to is replaced.
    """
    target = target.resolve()
    new, old = (target.with_name(f".{target.name}.{kind}") for kind in ("new", "old"))
    with _alone(target), naming(str(target), "replaced"):
        target.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not target.exists():
            old.rename(target)
        _delete(old, new)
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
            _delete(old, new)


def _delete(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)


@contextlib.contextmanager
def _alone(target: Path) -> Generator[None]:
    """Hold the target's lock, which dies with its process; it is kept elsewhere, so that nothing is left beside it."""
    lock = Path(tempfile.gettempdir()) / f"pairwright-{make_key(str(target), USER)}.lock"
    with holding(lock, f"{target}: another process is writing it now; wait for that and run this again"):
        yield


@contextlib.contextmanager
def holding(path: Path, fault: str) -> Generator[None]:
    """Hold a lock, which dies with its process; ``StoreError`` with the fault where somebody else has it."""
    lock = FileLock(path)
    with naming(str(path), "locked"):
        try:
            lock.acquire(timeout=0.05)
        except Timeout as error:
            raise StoreError(fault) from error
    try:
        yield
    finally:
        lock.release()
