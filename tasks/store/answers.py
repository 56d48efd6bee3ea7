"""Journals of running shards: a killed build repeats seconds of work and asks no finished question twice.

An append-only file of records: length of the value, CRC-32 of key and value, the key (16 bytes),
the value. A torn or damaged tail is left out. Values stay on disk; memory holds the position and
length of each.
"""

import json
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from pairwright.tasks.store.files import naming
from pairwright.tasks.store.scratch import holding

log = logging.getLogger(__name__)
HEADER = struct.Struct("<II16s")
CALLS, TOKENS = "calls", ("prompt_tokens", "completion_tokens")
"""Metadata of a part about the answers of served models that it took, refused ones included."""


class Answers:
    """Map of keys (32 hex digits) to bytes that survives a kill at any moment. Local disks only; thread-safe.

    Values are answers of served models, or results of a stage with a journal.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read or written yet."""
        self.path = path
        self._lock = Path(f"{path}-lock")
        self._using = threading.Lock()
        """Held while the file is read, written or closed, so that a late call fails and reaches no
        other file."""
        self._places: dict[bytes, tuple[int, int]] = {}
        self._file, self._end = -1, 0

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, written by this process or a killed one."""
        place = self._places.get(bytes.fromhex(key))
        return None if place is None else self._read(*place)

    def put(self, key: str, value: bytes) -> None:
        """Keep a value; it survives a kill of this process (a loss of power may lose the newest)."""
        name = bytes.fromhex(key)
        record = memoryview(
            HEADER.pack(len(value), zlib.crc32(value, zlib.crc32(name)), name) + value
        )
        done = 0
        with self._using, naming(str(self.path), "written"):
            while done < len(record):  # the remains of a failed write are overwritten by the next
                done += os.pwrite(self._file, record[done:], self._end + done)
            self._places[name] = (self._end + HEADER.size, len(value))
            self._end += len(record)

    def values(self) -> Iterator[bytes]:
        """Yield every value."""
        for place in list(self._places.values()):
            yield self._read(*place)

    def _read(self, start: int, length: int) -> bytes:
        with self._using, naming(str(self.path), "read"):
            return os.pread(self._file, length, start)

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        with ExitStack() as stack, naming(str(self.path), "opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The other process runs the same command elsewhere, or is an orphan of a killed build.
            wait = partial(
                log.warning, "%s: another process is writing it; waiting for that to end", self.path
            )
            stack.enter_context(holding(self._lock, on_wait=wait))
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(self._close)
            self._places.update(_records(self._file))
            self._end = max((sum(place) for place in self._places.values()), default=0)
            os.ftruncate(self._file, self._end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _close(self) -> None:
        with self._using:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        """Remove the file, once the shard's part is in place."""
        with naming(str(self.path), "deleted"):
            self.path.unlink(missing_ok=True)
            self._lock.unlink(missing_ok=True)


def describe_asked(answers: Answers) -> dict[str, str]:
    """Return a part's metadata about the answers that its shard took."""
    served = [json.loads(value)["served"] for value in answers.values()]
    return {
        CALLS: str(len(served)),
        **{name: str(sum(int(one[name]) for one in served)) for name in TOKENS},
    }


def _records(file: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    place, size = 0, os.fstat(file).st_size
    while place + HEADER.size <= size:
        length, check, name = HEADER.unpack(os.pread(file, HEADER.size, place))
        start = place + HEADER.size
        if (
            start + length > size
            or zlib.crc32(os.pread(file, length, start), zlib.crc32(name)) != check
        ):
            return
        yield name, (start, length)
        place = start + length
