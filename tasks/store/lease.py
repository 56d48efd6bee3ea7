"""Hold a table of a dataset on an object store, so that two builds do not pay for the same work.

A lease is a small file that its holder writes again every ``BEAT_S`` seconds, each time with other content. Whoever
finds one waits; where its content has not changed for ``DEAD_S`` seconds by the waiting machine's own clock, or its
process is seen to be dead, the holder is gone. No clocks of two machines are compared.

Taking over means to create the lease of the next number, which only one can (``Folder.create``). Where the store knows
no conditional writes, or a holder was cut off for so long that it lost its lease, two builds may work on one table:
that costs time and is correct all the same, since parts are named by the inputs that they cover.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder

log = logging.getLogger(__name__)
BEAT_S, DEAD_S, LOOK_S = 5.0, 30.0, 1.0
FOLDER = "leases"


@dataclass(frozen=True, slots=True)
class Lease:
    """Be one lease: its file, and what tells its holder from others."""

    folder: Folder
    name: str
    holder: str

    def content(self, beat: int) -> bytes:
        """Return what is written at a beat."""
        return json.dumps({"holder": self.holder, "host": _host(), "pid": os.getpid(), "beat": beat}).encode()


@contextlib.contextmanager
def leased(folder: Folder, table: str, on_wait: Callable[[], None] | None = None) -> Generator[None]:
    """Hold a table; wait while another process does, and call ``on_wait`` once if so.

    Raises:
        StoreError: the store cannot be read or written.
    """
    lease = _take(folder, f"{FOLDER}/{table.replace('/', '-')}", on_wait)
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(lease, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(StoreError):  # it is seen to be dead before long
            folder.delete(lease.name)


def _take(folder: Folder, place: str, on_wait: Callable[[], None] | None) -> Lease:
    holder, seen, since = uuid.uuid4().hex, b"", 0.0
    while True:
        newest = _newest(folder, place)
        content = _read(folder, f"{place}/{newest:06d}.json") if newest else b""
        if content and content != seen:
            seen, since = content, time.monotonic()
        if not content or time.monotonic() - since >= DEAD_S or _is_dead(content):
            lease = Lease(folder, f"{place}/{newest + 1:06d}.json", holder)
            if folder.create(lease.name, lease.content(0)):
                if newest:
                    folder.delete(f"{place}/{newest:06d}.json")
                return lease
        elif on_wait:
            on_wait()
            on_wait = None
        time.sleep(LOOK_S)


def _newest(folder: Folder, place: str) -> int:
    """Return the number of the lease that counts; 0: there is none."""
    numbers = [name.removesuffix(".json") for name in folder.names(place)]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _read(folder: Folder, name: str) -> bytes:
    """Return a lease's content; nothing where it has gone meanwhile."""
    try:
        return folder.read(name)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return b""
        raise


def _is_dead(content: bytes) -> bool:
    """Say whether the holder's process was one of this machine, and has ended."""
    try:
        said = json.loads(content)
        if said["host"] != _host() or os.name == "nt":  # there the question would be an order
            return False
        os.kill(int(said["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OSError):
        return False
    return False


def _host() -> str:
    """Return a name of this machine, or container, since it was started."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _beat(lease: Lease, ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(BEAT_S):
        beat += 1
        try:
            lease.folder.write(lease.name, lease.content(beat))
        except StoreError as error:
            log.warning("a lease could not be renewed; another build may do the same work: %s", error)
