"""Journals of running shards: a resumed build takes finished answers from them.

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
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from pairwright.tasks.store.files import naming
from pairwright.tasks.store.scratch import holding

log = logging.getLogger(__name__)
HEADER = struct.Struct("<II16s")
CALLS = "calls"
TOKENS = ("prompt_tokens", "completion_tokens")
"""Metadata of a part about the answers of served models that it took, refused ones included."""
THOUGHT_TOKENS = "thought_tokens"
MODELS = "models"
"""Metadata: answers by model and revision, as the server states them, as JSON."""
REMOVED = "taken_off"
"""Metadata: answers by the kind of what was taken off, as JSON."""


class Answers:
    """Map of keys (32 hex digits) to bytes that survives a kill at any moment.

    Local disks only; thread-safe. Values are answers of served models, or results of a stage with
    a journal.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is read or written yet."""
        self.path = path
        self._lock = Path(f"{path}-lock")
        self._using = threading.Lock()
        """Held while the file is read, written or closed, so that a late call fails and reaches no
        other file."""
        self._positions: dict[bytes, tuple[int, int]] = {}
        """Start and length of each key's value in the file."""
        self._file = -1
        self._end = 0

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, written by this process or a killed one."""
        position = self._positions.get(bytes.fromhex(key))
        if position is None:
            return None
        start, length = position
        return self._read(start, length)

    def store_value(self, key: str, value: bytes) -> None:
        """Store a value; it survives a kill of this process, but perhaps not a loss of power."""
        name = bytes.fromhex(key)
        header = HEADER.pack(len(value), _checksum(name, value), name)
        record = memoryview(header + value)
        done = 0
        with self._using, naming(str(self.path), "written"):
            while done < len(record):  # the remains of a failed write are overwritten by the next
                done += os.pwrite(self._file, record[done:], self._end + done)
            self._positions[name] = (self._end + HEADER.size, len(value))
            self._end += len(record)

    def values(self) -> Iterator[bytes]:
        """Yield every value."""
        for start, length in list(self._positions.values()):
            yield self._read(start, length)

    def _read(self, start: int, length: int) -> bytes:
        with self._using, naming(str(self.path), "read"):
            return os.pread(self._file, length, start)

    def __len__(self) -> int:
        return len(self._positions)

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
            self._positions.update(_records(self._file))
            ends = [start + length for start, length in self._positions.values()]
            self._end = max(ends, default=0)
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
    metadata = {CALLS: str(len(served))}
    for name in (*TOKENS, THOUGHT_TOKENS):
        tokens = sum(int(usage.get(name, 0)) for usage in served)
        metadata[name] = str(tokens)
    removed = Counter[str]()
    for usage in served:
        removed.update(usage.get("removed", ()))
    metadata[REMOVED] = json.dumps(removed)
    models = Counter(f"{usage['model']} {usage['revision']}".strip() for usage in served)
    metadata[MODELS] = json.dumps(models)
    return metadata


def _checksum(name: bytes, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(name))


def _records(file: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield key, start and length of each value, up to the first damaged record."""
    position = 0
    size = os.fstat(file).st_size
    while position + HEADER.size <= size:
        header = os.pread(file, HEADER.size, position)
        length, checksum, name = HEADER.unpack(header)
        start = position + HEADER.size
        if start + length > size:
            return
        value = os.pread(file, length, start)
        if _checksum(name, value) != checksum:
            return
        yield name, (start, length)
        position = start + length
