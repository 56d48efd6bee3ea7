"""Remember the hashes of large files, so that gigabytes need not be hashed again before each build.

Reads and writes ``NAME.verified.json`` beside a file: its hashes, true as long as its size and time are as recorded.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Be what was found out about a file's bytes."""

    sha256: str
    xxh3: str
    size: int
    mtime_ns: int

    def is_of(self, path: Path) -> bool:
        """Say whether the file is still as it was."""
        now = path.stat()
        return (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns)


def record_path(path: Path) -> Path:
    """Return where a file's record lies."""
    return path.with_name(f"{path.name}.verified.json")


def read_record(path: Path) -> Record | None:
    """Return what is recorded of a file; nothing where nothing is, or the record is damaged."""
    try:
        values = json.loads(record_path(path).read_bytes())
        return Record(
            sha256=str(values["sha256"]),
            xxh3=str(values["xxh3"]),
            size=int(values["size"]),
            mtime_ns=int(values["mtime_ns"]),
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def measure_file(path: Path) -> Record:
    """Return a file's hashes.

    Raises:
        OSError: it cannot be read.
    """
    sha256, xxh3, state = hashlib.sha256(), xxhash.xxh3_128(), path.stat()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
            xxh3.update(chunk)
    return Record(sha256=sha256.hexdigest(), xxh3=xxh3.hexdigest(), size=state.st_size, mtime_ns=state.st_mtime_ns)


def write_record(path: Path, record: Record) -> None:
    """Put a record beside a file; where that is not allowed (a shared cache), the file is hashed each time."""
    place = record_path(path)
    new = place.with_name(f"{place.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):
        new.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
        new.replace(place)
