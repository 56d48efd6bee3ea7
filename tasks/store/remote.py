"""Requests to an object store, retried after temporary faults (overload, time-outs).

At most ``TRIES`` attempts, with doubling random pauses of at most 16 s in all, plus the time-outs
of the attempts. The file systems' own retries are off, since those of several layers multiply.
"""

import errno
import random
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import fsspec
from fsspec.config import conf

from pairwright.schemas.errors import StoreError

TRIES = 7
FIRST_PAUSE_S = 0.25
# bytes per request of random access reading: key columns and footers lie close together
AHEAD_BYTES = 256 << 10
# error numbers that a retry does not change
LASTING = frozenset(
    (
        errno.EACCES,
        errno.EINVAL,
        errno.EMSGSIZE,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOSYS,
        errno.EPERM,
        errno.EREMCHG,
    )
)
T = TypeVar("T")


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it, without a request."""
    protocol = url.partition("://")[0]
    options: dict[str, Any] = {"use_listings_cache": False}  # other workers write as well
    if protocol in ("s3", "s3a"):
        configured: dict[str, Any] = {**conf.get("s3", {}), **conf.get(protocol, {})}
        retries = {"total_max_attempts": 1, "mode": "standard"}
        options["config_kwargs"] = {**configured.get("config_kwargs", {}), "retries": retries}
    system, path = fsspec.url_to_fs(url, **options)
    if hasattr(system, "retries"):
        system.retries = 1
    return system, path


def call_store(call: Callable[[], T], *, label: str, what: str) -> T:
    """Return the result of a request to an object store.

    Raises:
        FileNotFoundError, FileExistsError: unchanged.
        StoreError: all attempts failed.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return call()
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if tries == TRIES or not may_pass(error):
                message = _failure(error, label=label, what=what, tries=tries)
                raise StoreError(message) from error
        time.sleep(random.uniform(0.5, 1) * FIRST_PAUSE_S * 2 ** (tries - 1))


def _failure(error: Exception, *, label: str, what: str, tries: int) -> str:
    """Return the message of a request that failed for good."""
    times = f", {tries} times" if tries > 1 else ""
    cause = " ".join(str(error).split()) or type(error).__name__
    bucket = "/".join(label.split("/")[:3])
    return (
        f"{label}: could not be {what}{times}: {cause[:300]}. Check that {bucket} exists, that "
        "this machine's credentials may read and write it, and that the store answers at the "
        "configured address (AWS_ENDPOINT_URL for an S3 other than Amazon's); "
        "`pairwright resume` continues"
    )


def may_pass(error: Exception) -> bool:
    """Return whether an error may be temporary, so that a retry may succeed."""
    if isinstance(error, IndexError) and isinstance(error.__context__, OSError):
        error = error.__context__  # s3fs 2026.9 reads the errno of a time-out, which has none
    if isinstance(error, PermissionError | ValueError | TypeError | ImportError):
        return False
    if getattr(error, "errno", None) in LASTING:
        return False
    return "Credential" not in type(error).__name__


def open_file(system: Any, path: str, label: str) -> BinaryIO:
    """Open a file for random access reading; each request for a range of it is retried."""
    file = call_store(
        lambda: system.open(path, "rb", block_size=AHEAD_BYTES), label=label, what="opened"
    )
    cache: Any = getattr(file, "cache", None)
    if cache is None:  # a file in memory has none
        return file
    fetch = cache.fetcher

    def fetch_whole(start: int, end: int) -> bytes:
        data: bytes = fetch(start, end)
        if len(data) != end - start:
            raise EOFError(f"got {len(data)} bytes instead of {end - start}")
        return data

    def fetch_retried(start: int, end: int) -> bytes:
        return call_store(lambda: fetch_whole(start, end), label=label, what="read")

    cache.fetcher = fetch_retried
    return file
