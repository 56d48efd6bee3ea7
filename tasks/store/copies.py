"""Files that workers read beside parts, each made once for all processes that can share it.

Plans, indexes and vectors belong to one build and lie in its workspace ("work/ID"). If the dataset is on an object
store, each machine has copies: the first process that needs one makes it, the others wait and map the same file. The
build deletes its copies at its end; after a kill, and on other machines, they go after a day without use.
"""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.scratch import own_temporary_folder

UNUSED_S = 24 * 3600.0


def copy_of(folder: Folder, name: str) -> Path:
    """Return this machine's copy of a file of the dataset, made now if missing."""
    if folder.is_local:
        return Path(folder.path(name))
    return made(folder, name, Path(name).name, lambda new: folder.fetch(name, new))


def made(folder: Folder, name: str, label: str, make: Callable[[Path], None]) -> Path:
    """Return this machine's file that is derived from a file of the dataset, made now if missing."""
    copies = copies_of(folder, str(Path(name).parent))
    path, new = copies / label, copies / f"{label}.new"
    with naming(str(path), "written"):
        if not path.exists():
            if not folder.is_local:
                copies.mkdir(parents=True, exist_ok=True)
                _drop_unused(copies.parent)
            with FileLock(copies / f"{label}.lock"):
                if not path.exists():
                    shutil.rmtree(new, ignore_errors=True)  # of a killed process; a file is overwritten
                    make(new)
                    new.rename(path)
        os.utime(copies)
    return path


def copies_of(folder: Folder, workspace: str) -> Path:
    """Return this machine's folder of a build's workspace: the workspace itself, or the folder of its copies."""
    if folder.is_local:
        return Path(folder.path(workspace))
    return own_temporary_folder() / "copies" / make_key(folder.url, workspace)[:16]


def _drop_unused(parent: Path) -> None:
    for copies in parent.iterdir():
        with suppress(FileNotFoundError):  # another process may drop it first
            if copies.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(copies, ignore_errors=True)
