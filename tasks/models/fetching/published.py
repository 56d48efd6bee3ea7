"""Find published files of weights on this machine, or fetch them: those that are not on Hugging Face's Hub.

Reads and writes ``$PAIRWRIGHT_CACHE/weights`` (without the variable ``~/.cache/pairwright/weights``). What is being
fetched is ``NAME.part`` until it is verified; a file that somebody put there by hand is hashed once. Goes to the
network only where it may download; ``fetch_file`` says how.
"""

import contextlib
import logging
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.fetching.fetch_file import FetchError, fetch_file, forget
from pairwright.tasks.models.fetching.file_records import Record, measure_file, read_record, record_path, write_record
from pairwright.tasks.models.fetching.rehearse import note
from pairwright.tasks.models.weights import download_setting

log = logging.getLogger(__name__)
CACHE = "PAIRWRIGHT_CACHE"
"""The variable that names the folder of what can be fetched again."""


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
    stand_in = note(file, file.name)
    fault = find_fault(file, path)
    if not fault:
        return path
    if stand_in:
        return stand_in
    if not download:
        raise ModelError(
            f"{file.field}: {fault}. It is published at {file.url}. Fetch it with `pairwright fetch` and the same "
            f"--profile and --set, put it there yourself, or let the build fetch it: {download_setting(file.field)}"
        )
    with _alone(file, path):
        if find_fault(file, path):  # no other process has fetched it meanwhile
            _fetch(file, path)
    return path


def find_fault(file: PublishedFile, path: Path, *, afresh: bool = False) -> str:
    """Return why a file may not be taken, empty where it may; what is found out is recorded beside it.

    Args:
        file: what is wanted.
        path: where it should be.
        afresh: hash it even where its size and time are as recorded.

    Raises:
        ModelError: it cannot be read.
    """
    if not path.is_file():
        return f"{file.name} is not on this machine: looked for {path}"
    known = read_record(path)
    found = known if known and known.is_of(path) and not afresh else _measured(file, path)
    wanted, whose = _wanted(file, path, known)
    if wanted and found.sha256 != wanted:
        return f"{path} is another file: its SHA-256 is {found.sha256}, {whose}: {wanted}"
    if found != known:
        _tell(file, found, wanted)
        write_record(path, found)
    return ""


def _measured(file: PublishedFile, path: Path) -> Record:
    try:
        return measure_file(path)
    except OSError as error:
        raise ModelError(f"{file.field}: {path} cannot be read: {error.strerror or error}") from error


def _wanted(file: PublishedFile, path: Path, known: Record | None) -> tuple[str, str]:
    """Return the hash that counts, and in words whose it is."""
    if file.sha256:
        return file.sha256, "the published one"
    return (known.sha256, f"the first one that was found, in {record_path(path)}") if known else ("", "")


def _tell(file: PublishedFile, found: Record, wanted: str) -> None:
    if not wanted:
        log.info("%s: no hash is published for it; SHA-256 %s counts from now on", file.name, found.sha256)


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
        raise ModelError(f"{file.field}: {path} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def _fetch(file: PublishedFile, path: Path) -> None:
    """Fetch a file, verify it, and only then give it its name."""
    part = path.with_name(f"{path.name}.part")
    wanted, whose = _wanted(file, path, read_record(path))
    try:
        fetch_file(file.url, part)
        found = _measured(file, part)
        if wanted and found.sha256 != wanted:
            forget(part)
            raise FetchError(f"what came has the SHA-256 {found.sha256}, {whose}: {wanted}; it was removed")
        _tell(file, found, wanted)
        write_record(path, found)  # renaming changes neither size nor time
        part.replace(path)
        forget(part)
    except (FetchError, OSError) as error:
        raise ModelError(f"{file.field}: {file.name} could not be fetched from {file.url}: {error}") from error
