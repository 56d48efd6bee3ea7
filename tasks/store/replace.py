"""Replace a local folder as a whole: what is under its name is the old one or the new one, never half of one.

The new folder grows beside the old one under a hidden name and takes its place by renaming. A process that is killed
between the two renames leaves the old one beside, and the next call puts it back before it starts.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import naming


@contextlib.contextmanager
def replacing(target: Path) -> Generator[Path]:
    """Yield an empty folder that takes the target's place when the block ends well, and is deleted when it does not.

    Raises:
        StoreError: another process replaces the same folder now, or the disk refuses.
    """
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
    user = os.getuid() if hasattr(os, "getuid") else 0
    lock = FileLock(Path(tempfile.gettempdir()) / f"pairwright-{make_key(str(target.absolute()), user)}.lock")
    try:
        lock.acquire(timeout=0.05)
    except Timeout as error:
        raise StoreError(f"{target}: another process is writing it now; wait for that and run this again") from error
    try:
        yield
    finally:
        lock.release()
