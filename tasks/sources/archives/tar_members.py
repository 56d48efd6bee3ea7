"""Walk over the headers of a tar, plain or gzipped, and read members by their place; nothing is ever unpacked to disk.

Reads 512-byte headers (old, ustar, GNU and pax), skips over what they describe. Needs no memory but for one header and
its extension: Python's own ``tarfile`` reads extended headers of any size, which a small gzipped tar can blow up to
gigabytes.

A tar is hostile. Links, devices, sparse files and names that lead out of the archive are named with the reason why they
are refused; where the structure ends too early or makes no sense, the last thing named is the archive's own fault.
"""

import gzip
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

BLOCK = 512
MAX_EXTENSION = 1 << 20
"""Bytes of a GNU long name or of a pax header; real ones have hundreds."""
MAX_MEMBERS = 1_000_000
MIN_UNPACKED = 1 << 30
MAX_RATIO = 100
"""A gzipped archive may unpack to 1 GiB, or to 100 times its size where that is more: images hardly shrink at all."""
SKIP_BYTES = 1 << 20
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
_DATALESS = (tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)


class DamagedArchiveError(Exception):
    """Say that an archive cannot be read on: a constant ``reason`` and the particulars."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Medium(Protocol):
    """Be the bytes of a tar, after any gzip."""

    def read_at(self, offset: int, count: int) -> bytes:
        """Return bytes from a place; fewer where the archive ends."""
        ...

    def reaches(self, end: int) -> bool:
        """Say whether the archive has at least so many bytes."""
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


@dataclass(frozen=True, slots=True)
class PlainTar:
    """Read a plain tar; a read is one seek."""

    file: BinaryIO
    size: int

    def read_at(self, offset: int, count: int) -> bytes:
        """Return bytes from a place; fewer where the archive ends."""
        self.file.seek(offset)
        return self.file.read(count)

    def reaches(self, end: int) -> bool:
        """Say whether the archive has at least so many bytes."""
        return end <= self.size

    def close(self) -> None:
        """Give the file back."""
        self.file.close()


class GzippedTar:
    """Read a gzipped tar forward; a place that lies behind is reached by unpacking from the start again."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read ``file``, whose ``size`` bounds how much may come out of it."""
        self._file = file
        self._limit = max(MIN_UNPACKED, MAX_RATIO * size)
        self._rewind()

    def read_at(self, offset: int, count: int) -> bytes:
        """Return bytes from a place; fewer where the archive ends."""
        if offset < self._place:
            self._rewind()
        self._skip_to(offset)
        return self._read(count) if self._place == offset else b""

    def reaches(self, end: int) -> bool:
        """Say whether the archive has at least so many bytes."""
        self._skip_to(end)
        return self._place >= end

    def close(self) -> None:
        """Give the file back."""
        self._stream.close()
        self._file.close()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._stream = gzip.GzipFile(fileobj=self._file, mode="rb")
        self._place = 0

    def _skip_to(self, offset: int) -> None:
        while self._place < offset:
            if not self._read(min(SKIP_BYTES, offset - self._place)):
                return

    def _read(self, count: int) -> bytes:
        if self._place + count > self._limit + SKIP_BYTES:
            raise DamagedArchiveError("archive unpacks to too much", f"more than {self._limit} bytes")
        try:
            data = self._stream.read(count)
        except _DAMAGE as error:
            reason = "damaged archive" if self._place else "not an archive"
            raise DamagedArchiveError(reason, f"near unpacked byte {self._place}: {error}") from error
        self._place += len(data)
        return data


@dataclass(frozen=True, slots=True)
class Member:
    """Be one regular file of a tar, or what is refused about it; a fault of the archive itself has no name."""

    name: str
    offset: int = 0
    """Of its first byte, after any gzip."""
    size: int = 0
    refused: str = ""
    detail: str = ""


@dataclass(slots=True)
class _Extended:
    """Hold what extended headers say about the next member."""

    name: str | None = None
    size: int | None = None
    sparse: bool = False
    broken: str = ""


def walk_members(medium: Medium) -> Iterator[Member]:
    """Yield what a tar holds, in its order, folders left out; a fault of the archive is the last."""
    try:
        yield from _walk(medium)
    except DamagedArchiveError as damage:
        yield Member("", refused=damage.reason, detail=damage.detail)


def _walk(medium: Medium) -> Iterator[Member]:
    offset, extended = 0, _Extended()
    for _ in range(MAX_MEMBERS):
        block = medium.read_at(offset, BLOCK)
        header = _header(block, offset)
        if header is None:
            return
        start = offset + BLOCK
        if header.type == tarfile.GNUTYPE_SPARSE:
            start = _after_sparse_map(medium, block, start)
        size = header.size if extended.size is None else extended.size
        if header.type in _DATALESS:
            size = 0
        name = header.name if extended.name is None else extended.name
        if not medium.reaches(start + size):
            raise DamagedArchiveError("truncated archive", f"{name} would have {size} bytes from byte {start} on")
        if header.type in (*_PAX, tarfile.GNUTYPE_LONGNAME):
            _extend(extended, header, medium, start)
        elif header.type not in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            if header.type != tarfile.DIRTYPE:
                yield _member(name, start, size, _refusal(header, extended, name))
            extended = _Extended()
        offset = start + -(-size // BLOCK) * BLOCK
    raise DamagedArchiveError("too many members", f"more than {MAX_MEMBERS}: make smaller archives")


def _header(block: bytes, offset: int) -> tarfile.TarInfo | None:
    """Return the header; none at the archive's end mark."""
    if not block and not offset:
        raise DamagedArchiveError("empty archive")
    if len(block) < BLOCK:
        raise DamagedArchiveError("truncated archive", f"ends at byte {offset + len(block)} without an end mark")
    if not any(block):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        reason = "damaged archive" if offset else "not an archive"
        raise DamagedArchiveError(reason, f"no header at byte {offset}: {error}") from error
    if header.size < 0:
        raise DamagedArchiveError("damaged archive", f"negative size at byte {offset}")
    return header


def _after_sparse_map(medium: Medium, block: bytes, start: int) -> int:
    """Return where the data of an old GNU sparse member begins: its map may go on in further blocks."""
    more = block[482]
    while more:
        block = medium.read_at(start, BLOCK)
        if len(block) < BLOCK:
            raise DamagedArchiveError("truncated archive", f"ends in a sparse map at byte {start}")
        start, more = start + BLOCK, block[504]
    return start


def _extend(extended: _Extended, header: tarfile.TarInfo, medium: Medium, start: int) -> None:
    if header.size > MAX_EXTENSION:
        extended.broken = f"an extended header of {header.size} bytes"
        return
    data = medium.read_at(start, header.size)
    if header.type == tarfile.GNUTYPE_LONGNAME:
        extended.name = data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        return
    try:
        for keyword, value in _pax_records(data):
            _obey(extended, keyword, value)
    except ValueError:
        extended.broken = "a pax header that makes no sense"


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keyword and value of records like ``30 mtime=1321711775.9857463\\n``; ``ValueError`` for others."""
    place = 0
    while place < len(data) and data[place]:
        length, _, _ = data[place : place + 20].partition(b" ")
        end = place + int(length)
        keyword, equals, value = data[place + len(length) + 1 : end - 1].partition(b"=")
        if end > len(data) or data[end - 1 : end] != b"\n" or not equals:
            raise ValueError(length)
        yield keyword, value
        place = end


def _obey(extended: _Extended, keyword: bytes, value: bytes) -> None:
    if keyword == b"path":
        extended.name = value.decode("utf-8", "surrogateescape")
    elif keyword == b"size":
        extended.size = int(value)
        if extended.size < 0:
            raise DamagedArchiveError("damaged archive", "negative size in a pax header")
    elif keyword.startswith(b"GNU.sparse."):
        extended.sparse = True


def _refusal(header: tarfile.TarInfo, extended: _Extended, name: str) -> tuple[str, str]:
    """Return why a member is refused, and the particulars; two empty strings where it is not."""
    if extended.broken:
        return "damaged header", extended.broken
    if header.issym() or header.islnk():
        return "link in an archive", f"to {header.linkname}"
    if header.type == tarfile.GNUTYPE_SPARSE or extended.sparse:
        return "sparse file in an archive", ""
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
        return "not a regular file", f"type {header.type!r}"
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        return "path leaves the archive", ""
    return "", ""


def _member(name: str, offset: int, size: int, refusal: tuple[str, str]) -> Member:
    plain = name if refusal[0] else posixpath.normpath(name)
    return Member(plain, offset, size, *refusal)


def open_tar(file: BinaryIO, size: int) -> Medium:
    """Read the bytes of an archive file of so many bytes, gzipped or not; closing the medium closes the file."""
    is_gzipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return GzippedTar(file, size) if is_gzipped else PlainTar(file, size)
