"""Walk over the members of a tar, and read some by their offset; nothing is unpacked to disk.

A tar may be hostile: links, devices, sparse files, absurd headers and names that lead out of the archive are refused
with a reason; if the structure ends early or is invalid, the last entry is the fault of the archive itself.
"""

import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pairwright.tasks.sources.reader import RefusedEntryError, shown_words

MAX_HEADER = 1 << 20
"""Maximum bytes of a GNU long name or pax header; real ones have hundreds."""
MAX_NAME = 4096
MAX_MEMBERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Member:
    """Regular file of a tar, or the reason of its refusal; a fault of the archive itself has no name."""

    name: str
    offset: int = 0
    """Offset of its first byte."""
    size: int = 0
    refused: RefusedEntryError | None = None


class TarBytes:
    """Bytes of an archive, with limits on the size of headers and members."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read ``file``, which has ``size`` bytes."""
        self._file, self._size = file, size
        self.tell, self.close = file.tell, file.close

    def seek(self, offset: int) -> int:
        """Move to an offset."""
        if offset > self._size:
            raise RefusedEntryError("truncated archive", f"a member ends at byte {offset} of {self._size}")
        return self._file.seek(offset)

    def read(self, count: int) -> bytes:
        """Return a header, which ``tarfile`` reads while it walks; fewer bytes at the end of the archive."""
        if count > MAX_HEADER:
            raise RefusedEntryError("damaged header", f"an extended header of {count} bytes")
        return self._file.read(count)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the contents of a member; ``OSError`` if its medium fails."""
        try:
            self.seek(offset)
            data = self._file.read(size)
        except (OSError, RefusedEntryError):
            raise
        except Exception as error:  # each store raises its own errors
            raise OSError(shown_words(error)) from error
        if len(data) < size:
            raise RefusedEntryError("truncated archive", f"at byte {offset}")
        return data


def walk_members(archive: TarBytes) -> Iterator[Member]:
    """Yield the members of a tar in order, without folders; a fault of the archive comes last."""
    held: Member | None = None
    """The last member: reading the next header shows whether its contents are complete."""
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
                    # ``tarfile`` takes any stop for an end: only a block of zeros is one.
                    archive.seek(tar.offset)
                    block = archive.read(tarfile.BLOCKSIZE)
                    if len(block) < tarfile.BLOCKSIZE:
                        end = tar.offset + len(block)
                        raise RefusedEntryError("truncated archive", f"ends at byte {end} without an end mark")
                    if any(block):
                        raise RefusedEntryError("damaged archive", f"no header at byte {tar.offset}")
                    return
                if info.size < 0 or tar.offset <= info.offset:
                    raise RefusedEntryError("damaged archive", "a member of negative size")
                held = None if info.isdir() else _member(info)
        fault = RefusedEntryError("too many members", f"more than {MAX_MEMBERS}: make smaller archives")
    except RefusedEntryError as error:
        fault = error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        reason = {"empty file": "empty archive", "unexpected end of data": "truncated archive"}.get(str(error))
        fault = RefusedEntryError(reason or ("damaged archive" if walked else "not an archive"), str(error)[:200])
    if held is not None and archive.tell() >= held.offset + held.size:
        yield held
    yield Member("", refused=fault)


def _member(info: tarfile.TarInfo) -> Member:
    refused = None
    if info.issym() or info.islnk():
        refused = RefusedEntryError("link in an archive", f"to {info.linkname}")
    elif info.issparse():
        refused = RefusedEntryError("sparse file in an archive")
    elif not info.isreg():
        refused = RefusedEntryError("not a regular file", f"type {info.type!r}")
    elif info.name.startswith("/") or ".." in info.name.split("/") or "\0" in info.name:
        refused = RefusedEntryError("path leaves the archive")
    elif len(info.name) > MAX_NAME:
        refused = RefusedEntryError("damaged header", f"a name of {len(info.name)} characters")
        return Member(info.name[-100:], refused=refused)
    return Member(info.name if refused else posixpath.normpath(info.name), info.offset_data, info.size, refused)
