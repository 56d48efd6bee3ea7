"""Find published files of weights on this machine, or fetch them: those that are not on Hugging Face's Hub.

Reads and writes ``$PAIRWRIGHT_CACHE/weights`` (without the variable ``~/.cache/pairwright/weights``). Beside each file
lies ``NAME.verified.json``: its hashes, and its size and time, so that gigabytes need not be hashed again before each
build. What is being fetched is ``NAME.part`` until it is verified. A file that somebody put there by hand is hashed
once. Goes to the network only where it may download; ``tasks.models.fetch_file`` says how.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash
from filelock import FileLock, Timeout

from schemas.errors import ModelError

log = logging.getLogger(__name__)
CACHE = "PAIRWRIGHT_CACHE"
"""The variable that names the folder for what can be fetched again."""
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """Say which file a model needs, and where it is published."""

    field: str
    """The section of the profile that asks for it, for messages."""
    name: str
    """Its name in the cache."""
    url: str
    sha256: str = ""
    """The published hash; empty: none is published, and the first one found counts from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Be what was found out about a file's bytes, true as long as its size and time are these."""

    sha256: str
    xxh3: str
    size: int
    mtime_ns: int

    def is_of(self, path: Path) -> bool:
        """Say whether the file is still as it was."""
        now = path.stat()
        return (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns)


def weights_folder() -> Path:
    """Return where published files are kept."""
    cache = os.environ.get(CACHE) or "~/.cache/pairwright"
    return Path(cache).expanduser().absolute() / "weights"


def find_published(file: PublishedFile, *, download: bool) -> Path:
    """Return the path of a verified file; fetch it first if it is missing, or another one, and that is allowed.

    Raises:
        ModelError: it is not there, is not the published one, or could not be fetched.
    """
    path = weights_folder() / file.name
    fault = find_fault(file, path)
    if fault and download:
        with _alone(file, path):
            if find_fault(file, path):  # no other process has fetched it meanwhile
                _fetch(file, path)
    elif fault:
        raise ModelError(
            f"{file.field}: {fault}. It is published at {file.url}. Fetch it with `pairwright fetch` and the same "
            f"--profile and --set, put it there yourself, or let the build fetch it: --set {download_field(file.field)}"
        )
    return path


def download_field(field: str) -> str:
    """Return what lets a build fetch the weights of a section, or of a section in it: its own ``download``."""
    return f"{field.partition('.')[0]}.download=true"


def find_fault(file: PublishedFile, path: Path, *, afresh: bool = False) -> str:
    """Return why a file may not be taken, empty where it may; what is found out is recorded beside it.

    Args:
        file: what is wanted.
        path: where it should be.
        afresh: hash it even where its size and time are as recorded.
    """
    if not path.is_file():
        return f"{file.name} is not on this machine: looked for {path}"
    known = read_record(path)
    found = known if known and known.is_of(path) and not afresh else measure_file(path)
    wanted = file.sha256 or (known.sha256 if known else "")
    if wanted and found.sha256 != wanted:
        whose = "published" if file.sha256 else "found when it was first fetched"
        return f"{path} is another file: its SHA-256 is {found.sha256}; {whose}: {wanted}"
    if not wanted:
        log.info("%s: no hash is published for it; SHA-256 %s", file.name, found.sha256)
    if found != known:
        _write_record(path, found)
    return ""


def record_of(path: Path) -> Path:
    """Return where a file's record lies."""
    return path.with_name(f"{path.name}.verified.json")


def read_record(path: Path) -> Record | None:
    """Return what is known of a file's bytes; nothing where that is not known, or damaged."""
    try:
        values = json.loads(record_of(path).read_bytes())
        return Record(**{name: kind(values[name]) for name, kind in Record.__annotations__.items()})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def measure_file(path: Path) -> Record:
    """Return a file's hashes."""
    sha256, xxh3, state = hashlib.sha256(), xxhash.xxh3_128(), path.stat()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
            xxh3.update(chunk)
    return Record(sha256=sha256.hexdigest(), xxh3=xxh3.hexdigest(), size=state.st_size, mtime_ns=state.st_mtime_ns)


def _write_record(path: Path, record: Record) -> None:
    place = record_of(path)
    new = place.with_name(f"{place.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):  # a cache that is shared, and not ours to write: it is hashed each time
        new.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
        new.replace(place)


@contextlib.contextmanager
def _alone(file: PublishedFile, path: Path) -> Generator[None]:
    """Hold the file's lock, which dies with its process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}.lock"))
        try:
            lock.acquire(timeout=0.05)
        except Timeout:
            log.info("%s: another process is fetching it; waiting for that", file.name)
            lock.acquire()
    except OSError as error:
        raise ModelError(f"{file.field}: {path} cannot be written: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _fetch(file: PublishedFile, path: Path) -> None:
    """Fetch a file, verify it, and only then give it its name."""
    from tasks.models.fetch_file import FetchError, fetch_file, forget  # loads httpx2

    part = path.with_name(f"{path.name}.part")
    known = read_record(path)
    wanted = file.sha256 or (known.sha256 if known else "")
    try:
        fetch_file(file.url, part)
    except FetchError as error:
        raise ModelError(f"{file.field}: {file.name} could not be fetched from {file.url}: {error}") from error
    found = measure_file(part)
    if wanted and found.sha256 != wanted:
        forget(part)
        whose = "published" if file.sha256 else f"stored in {record_of(path)} when it was first fetched"
        raise ModelError(
            f"{file.field}: {file.url} gave another file: its SHA-256 is {found.sha256}; {whose}: {wanted}. "
            "It was removed"
        )
    if not wanted:
        log.info("%s: no hash is published for it; SHA-256 %s", file.name, found.sha256)
    _write_record(path, found)  # renaming changes neither size nor time
    part.replace(path)
    forget(part)
