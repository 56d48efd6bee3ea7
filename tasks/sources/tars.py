"""Walk over the members of a tar, and read some by their place; nothing is unpacked to disk.

A tar is hostile: links, devices, sparse files, absurd headers and names that lead out of the archive are named with the
reason why they are refused; where the structure ends too early or makes no sense, the last thing named is the archive's
own fault.
"""

import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pairwright.tasks.sources.read_entry import RefusedEntryError, shown_words

MAX_HEADER = 1 << 20
"""Bytes of a GNU long name or of a pax header; real ones have hundreds."""
MAX_NAME = 4096
MAX_MEMBERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file of a tar, or what is refused about it; a fault of the archive itself has no name."""

    name: str
    offset: int = 0
    """Of its first byte."""
    size: int = 0
    refused: str = ""
    detail: str = ""


class TarBytes:
    """The bytes of an archive, whose headers and members are of limited size."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read ``file``, which has ``size`` bytes."""
        self._file, self._size = file, size
        self.tell, self.close = file.tell, file.close

    def seek(self, offset: int) -> int:
        """Go to a place."""
        if offset > self._size:
            raise RefusedEntryError("truncated archive", f"a member ends at byte {offset} of {self._size}")
        return self._file.seek(offset)

    def read(self, count: int) -> bytes:
        """Return a header, which ``tarfile`` reads while it walks; fewer bytes where the archive ends."""
        if count > MAX_HEADER:
            raise RefusedEntryError("damaged header", f"an extended header of {count} bytes")
        return self._file.read(count)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the contents of a member; ``OSError`` where its medium fails."""
        try:
            self.seek(offset)
            data = self._file.read(size)
        except (OSError, RefusedEntryError):
            raise
        except Exception as error:  # each store raises errors of its own
            raise OSError(shown_words(error)) from error
        if len(data) < size:
            raise RefusedEntryError("truncated archive", f"at byte {offset}")
        return data


def walk_members(archive: TarBytes) -> Iterator[Member]:
    """Yield what a tar holds, in its order, folders left out; a fault of the archive is the last."""
    held: Member | None = None
    """The last member: whether its contents are all there shows when the next header is read."""
    walked = 0
    try:
        if archive.read(2) == b"\x1f\x8b":
            raise RefusedEntryError("gzipped archive", "unpack it first, with gunzip")
        archive.seek(0)
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
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
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
