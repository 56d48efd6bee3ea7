"""Look at the machine and its disk: cores, memory, limits, room, and what files can do there.

Writes small files where the dataset is, or would be, and deletes them again. Local folders only are tried in full; an
object store has no renames, and its room is not known.
"""

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.errors import StoreError
from pairwright.schemas.health import Check, missing, ok, warning
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import count_cores

GB = 1e9
LEAST_MEMORY_GB, LEAST_FREE_GB, LEAST_SHARED_MB = 4.0, 5.0, 64
LEAST_FILES = 1024
SKEW_SECONDS = 5.0
NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gluster", "beegfs", "afs")
"""How the types of file systems that are on other machines begin."""


def check_processor(workers: int) -> Iterator[Check]:
    """Yield cores and memory, those of the container where there is one."""
    cores = count_cores()
    said = f"{cores} cores, {workers or cores} workers"
    if workers > cores:
        yield warning("machine", "cores", said, mend=f"--set run.workers={cores}")
    else:
        yield ok("machine", "cores", said)
    memory = memory_bytes()
    if not memory:
        yield warning("machine", "memory", "it is not known how much there is")
        return
    each = memory / GB / (workers or cores)
    said = f"{memory / GB:.1f} GB, {each:.1f} GB for each worker"
    if memory / GB < LEAST_MEMORY_GB or each < 1:
        yield warning("machine", "memory", said, mend=f"--set run.workers={max(1, int(memory / GB / 2))}")
    else:
        yield ok("machine", "memory", said)


def memory_bytes() -> int:
    """Return how much memory this process may have; 0: that is not known."""
    limits: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(Path(path).read_text()))
    return min((limit for limit in limits if limit > 0), default=0)


def check_limits() -> Iterator[Check]:
    """Yield how many files may be open at once, and how much memory processes may share."""
    try:
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:  # Windows
        return
    said = "any number" if files == resource.RLIM_INFINITY else f"{files:,}"
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        yield warning("machine", "open files", f"{said} at once", mend="ulimit -n 4096")
    else:
        yield ok("machine", "open files", f"{said} at once")
    if Path("/dev/shm").is_dir():  # noqa: S108 - looked at, not written to
        shared = shutil.disk_usage("/dev/shm").total / 1e6  # noqa: S108
        said = f"{shared:,.0f} MB"
        if shared < LEAST_SHARED_MB:
            yield warning("machine", "shared memory", said, mend="start the container with --shm-size=1g")
        else:
            yield ok("machine", "shared memory", said)


def check_place(name: str, url: str) -> Iterator[Check]:
    """Yield what a folder can do, or the nearest one above it that exists."""
    folder = Folder(url)
    if not folder.is_local:
        yield from _check_store(name, folder)
        return
    place = Path(folder.path("")).absolute()
    place = next(path for path in (place, *place.parents) if path.exists())
    if not place.is_dir():
        yield missing("disk", name, f"{place} is a file", mend="name another folder with --out")
        return
    yield _free(name, place)
    kind = _kind_of(place)
    if kind.startswith(NETWORK):
        said = f"{place} is on another machine ({kind}): locks and renames are as good as it keeps them"
        yield warning("disk", f"{name}: mount", said)
    yield from _try_files(name, place)


def _free(name: str, place: Path) -> Check:
    free = shutil.disk_usage(place).free / GB
    said = f"{free:,.1f} GB free at {place}"
    if free < LEAST_FREE_GB:
        return warning("disk", name, said, mend="`pairwright plan` says how much a build takes")
    return ok("disk", name, said)


def _try_files(name: str, place: Path) -> Iterator[Check]:
    """Yield whether files can be written, flushed, renamed over, linked and locked."""
    try:
        trial = Path(tempfile.mkdtemp(prefix=".pairwright-doctor-", dir=place))
    except OSError as error:
        yield missing(
            "disk", f"{name}: files", f"{place} cannot be written to ({error.strerror})", mend=f"chmod u+w {place}"
        )
        return
    try:
        yield from _try_in(trial, name)
    except OSError as error:
        said = f"{place}: files cannot be flushed, linked or renamed as a build needs it ({error.strerror or error})"
        yield missing("disk", f"{name}: files", said, mend="name another folder with --out")
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _try_in(trial: Path, name: str) -> Iterator[Check]:
    Folder(str(trial)).write("a", b"first")
    began = time.monotonic()
    Folder(str(trial)).write("a", b"second")  # flushed, and renamed over the first
    flush = time.monotonic() - began
    new = Folder(str(trial)).create("b", b"new")
    again = Folder(str(trial)).create("b", b"other")
    whole = (trial / "a").read_bytes() == b"second" and (new, again) == (True, False)
    said = f"written, flushed and renamed in {1000 * flush:.0f} ms"
    yield ok("disk", f"{name}: files", said) if whole else missing("disk", f"{name}: files", f"not {said}")
    yield _try_lock(trial, name)
    if (trial / "A").exists():
        yield warning("disk", f"{name}: names", "capitals do not count: two files may be one")


def _try_lock(trial: Path, name: str) -> Check:
    """Return whether a lock that is held is seen to be."""
    with FileLock(trial / "lock"):
        try:
            with FileLock(trial / "lock").acquire(timeout=0):
                pass
        except Timeout:
            return ok("disk", f"{name}: locks", "a lock that is held is seen")
    return warning("disk", f"{name}: locks", "locks are not kept: run one build at a time here")


def _check_store(name: str, folder: Folder) -> Iterator[Check]:
    """Yield whether an object store takes a file and gives it back."""
    trial = f".pairwright-doctor-{uuid.uuid4().hex}"
    try:
        folder.write(trial, b"here")
        same = folder.read(trial) == b"here"
        folder.delete(trial)
    except StoreError as error:
        yield missing("disk", name, str(error))
        return
    said = f"{folder.url} takes a file and gives it back"
    yield ok("disk", name, said) if same else missing("disk", name, f"{folder.url} does not give back what it took")


def _kind_of(place: Path) -> str:
    """Return the type of the file system that a folder is on; empty where that is not known."""
    try:
        lines = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    mounts = {Path(words[1].replace("\\040", " ")): words[2] for words in lines if len(words) > 2}
    return next((mounts[path] for path in (place, *place.parents) if path in mounts), "")


def check_clock(url: str) -> Iterator[Check]:
    """Yield the time, and whether a dataset's newest version is from before it."""
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    newest = _newest(url)
    if newest > now + SKEW_SECONDS:
        said = f"{said}; the newest version of {url} is from {newest - now:,.0f} s later"
        yield warning("machine", "clock", said, mend="timedatectl set-ntp true")
    else:
        yield ok("machine", "clock", said)


def _newest(url: str) -> float:
    """Return when the newest version of a local dataset was written; 0: there is none."""
    folder = Folder(url) if url else None
    if folder is None or not folder.is_local:
        return 0.0
    with suppress(OSError, StoreError):
        return max(
            (Path(folder.path(f"snapshots/{name}")).stat().st_mtime for name in folder.names("snapshots")), default=0.0
        )
    return 0.0


def python_version() -> str:
    """Return which Python runs, and where."""
    return f"Python {sys.version.split()[0]} at {sys.executable}"
