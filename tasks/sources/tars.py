"""Walk over the members of a tar, plain or gzipped, and read some by their place; nothing is unpacked to disk.

Needs Python's ``tarfile``, which parses headers (old, ustar, GNU and pax). A tar is hostile: it may hold so many
members, headers of such sizes, and, where it is gzipped, unpack to so much. Links, devices, sparse files and names that
lead out of the archive are named with the reason why they are refused; where the structure ends too early or makes no
sense, the last thing named is the archive's own fault.
"""

import gzip
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pairwright.tasks.sources.read_entry import RefusedEntryError, shown_words

MAX_HEADER = 1 << 20
"""Bytes of a GNU long name or of a pax header; real ones have hundreds."""
MAX_NAME = 4096
MAX_MEMBERS = 1_000_000
MIN_UNPACKED, MAX_RATIO = 1 << 30, 100
"""A gzipped archive may unpack to 1 GiB, or to 100 times its size where that is more: images hardly shrink at all."""
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file of a tar, or what is refused about it; a fault of the archive itself has no name."""

    name: str
    offset: int = 0
    """Of its first byte, after any gzip."""
    size: int = 0
    refused: str = ""
    detail: str = ""


class TarBytes:
    """The bytes of an archive, after any gzip; closing it closes the file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read ``file``, whose ``size`` bounds how much may come out of it."""
        self._file = file
        self.is_gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._bytes = gzip.GzipFile(fileobj=file) if self.is_gzipped else file
        self.limit = max(MIN_UNPACKED, MAX_RATIO * size) if self.is_gzipped else size

    def tell(self) -> int:
        """Return the place in the archive."""
        return self._bytes.tell()

    def seek(self, offset: int) -> int:
        """Go to a place; in a gzipped archive, one that lies behind is reached by unpacking from the start again."""
        if offset <= self.limit:
            return self._bytes.seek(offset)
        if self.is_gzipped:
            raise RefusedEntryError("archive unpacks to too much", f"more than {self.limit} bytes")
        raise RefusedEntryError("truncated archive", f"a member ends at byte {offset} of {self.limit}")

    def read(self, count: int) -> bytes:
        """Return a header, which ``tarfile`` reads while it walks; fewer bytes where the archive ends."""
        if count > MAX_HEADER:
            raise RefusedEntryError("damaged header", f"an extended header of {count} bytes")
        return self._bytes.read(count)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the contents of a member; ``OSError`` where its medium fails."""
        try:
            self.seek(offset)
            data = self._bytes.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise RefusedEntryError("damaged archive", str(error)) from error
        except (OSError, RefusedEntryError):
            raise
        except Exception as error:  # each store raises errors of its own
            raise OSError(shown_words(error)) from error
        if len(data) < size:
            raise RefusedEntryError("truncated archive", f"at byte {offset}")
        return data

    def close(self) -> None:
        """Close the file."""
        self._bytes.close()
        self._file.close()


def walk_members(archive: TarBytes) -> Iterator[Member]:
    """Yield what a tar holds, in its order, folders left out; a fault of the archive is the last."""
    held: Member | None = None
    """The last member: whether its contents are all there shows when the next header is read."""
    walked = 0
    try:
        with tarfile.open(fileobj=archive, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:  # pyright: ignore[reportArgumentType, reportCallIssue] - reads and seeks only
            while walked < MAX_MEMBERS:
                info = tar.next()
                tar.members.clear()  # a million of them would take a gigabyte
                walked += 1
                if held is not None:
                    yield held
                held = None
                if info is None:
                    _check_end(archive, tar.offset)
                    return
                if info.size < 0 or tar.offset <= info.offset:
                    raise RefusedEntryError("damaged archive", "a member of negative size")
                held = None if info.isdir() else _member(info)
        fault = Member("", refused="too many members", detail=f"more than {MAX_MEMBERS}: make smaller archives")
    except RefusedEntryError as error:
        fault = Member("", refused=error.reason, detail=error.detail)
    except _DAMAGE as error:
        reason = {"empty file": "empty archive", "unexpected end of data": "truncated archive"}.get(str(error))
        reason = reason or ("damaged archive" if walked else "not an archive")
        fault = Member("", refused=reason, detail=str(error)[:200])
    if held is not None and archive.tell() >= held.offset + held.size:
        yield held
    yield fault


def _check_end(archive: TarBytes, offset: int) -> None:
    """Refuse an archive that has no end mark where ``tarfile`` stopped, which it takes for an end."""
    archive.seek(offset)
    block = archive.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise RefusedEntryError("truncated archive", f"ends at byte {offset + len(block)} without an end mark")
    if any(block):
        raise RefusedEntryError("damaged archive", f"no header at byte {offset}")


def _member(info: tarfile.TarInfo) -> Member:
    refused, detail = "", ""
    if info.issym() or info.islnk():
        refused, detail = "link in an archive", f"to {info.linkname}"
    elif info.issparse():
        refused = "sparse file in an archive"
    elif not info.isreg():
        refused, detail = "not a regular file", f"type {info.type!r}"
    elif info.name.startswith("/") or ".." in info.name.split("/") or "\0" in info.name:
        refused = "path leaves the archive"
    elif len(info.name) > MAX_NAME:
        return Member(info.name[-100:], refused="damaged header", detail=f"a name of {len(info.name)} characters")
    name = info.name if refused else posixpath.normpath(info.name)
    return Member(name, info.offset_data, info.size, refused, detail)
