"""Folders for the time of one process: deleted when it ends, or by the next process where it was killed."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

ENDING = ".lock"


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Generator[Path]:
    """Make a folder below ``parent`` that nobody else has, and first delete those there whose processes are dead.

    A lock beside each says that its process lives; it comes before the folder and goes after it, so that a kill between
    the two leaves nothing that is not found again.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _drop_dead(parent)
    path = parent / uuid.uuid4().hex
    lock = Path(f"{path}{ENDING}")
    with FileLock(lock):
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _drop_dead(parent: Path) -> None:
    for lock in parent.glob(f"*{ENDING}"):
        with contextlib.suppress(Timeout, OSError), FileLock(lock).acquire(blocking=False):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)


def own_temporary_folder() -> Path:
    """Return this user's folder for scratch folders, below the system's folder for temporary files.

    Others may have put something under its name, where everybody may write: then a new name is taken each time, and
    nothing is cleaned up after a kill.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0  # elsewhere the temporary folder is the user's own
    path = Path(tempfile.gettempdir()) / f"pairwright-{user}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_symlink() and path.is_dir() and (path.stat().st_uid == user or os.name == "nt"):
        return path
    return Path(tempfile.mkdtemp(prefix="pairwright-"))
