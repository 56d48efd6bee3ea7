"""Read WebDataset shards: tars in which members with one basename are a sample.

Lists ``ItemRow`` from the headers of the tars, reads a sample into ``ImageRow``. A source is one
tar, a pattern (``shards-{000..011}.tar``, ``train-*.tar``) or a folder of tars, local or in any
store that fsspec knows. Nothing is unpacked to disk; a ``.tar.gz`` must be unpacked (``gunzip``)
first.

The members of a sample share their name up to the first dot of the file name, anywhere in the tar:

* ``a.jpg`` and other images; of several, those without a middle part count (``a.jpg``, not
  ``a.mask.png``); if all have one (``a.before.jpg``, ``a.after.jpg``), they are images of one
  group;
* ``a.txt`` and ``a.caption``: captions; ``a.json``: captions, licence, group. In a sample with
  several images, captions count if their names match an image (``a.before.txt``).

Other members, and hidden ones, are ignored. Tars may be hostile: links, devices, sparse files,
absurd headers and names that lead out of the archive are refused with a reason. An item's key
hashes the tar's name, size and version and the offsets of its members. Listing seeks from header to
header; reading a member takes one seek.
"""

import json
import logging
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, BinaryIO

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.sources.annotations import (
    CAPTIONS,
    LICENCES,
    UNREAD,
    check_record,
    clean_text,
    read_texts,
    read_word,
)
from pairwright.tasks.sources.find_files import (
    UNKNOWN_STATE,
    FilePattern,
    FileState,
    has_files,
    open_pattern,
    wrap_store_errors,
)
from pairwright.tasks.sources.read_entry import EXTENSIONS, EntryMetadata, SourceImage, read_image
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    describe_error,
    escape_name,
    list_item,
    locate,
    make_refusal,
    read_one,
)

log = logging.getLogger(__name__)

ENDINGS = (".tar", ".tar.gz", ".tgz")
"""Gzipped tars are listed, to be refused with a message."""
TEXTS = (".txt", ".caption")
RECORD = ".json"
MAX_TEXT = 1 << 20
"""Maximum bytes of a caption or JSON record; a larger one drops its sample."""
MAX_OF_SAMPLE = 64
READ_AHEAD = 1 << 20
"""Bytes per request to a remote store: adjacent headers and small members cost one round trip."""
MAX_HEADER = 1 << 20
"""Maximum bytes of a GNU long name or pax header; real ones have hundreds."""
MAX_NAME = 4096
MAX_MEMBERS = 1_000_000
GZIP_SIGNATURE = b"\x1f\x8b"
REASONS = {"empty file": "empty archive", "unexpected end of data": "truncated archive"}
"""Our reasons for messages of ``tarfile``."""


@dataclass(frozen=True, slots=True)
class Member:
    """Regular file of a tar, or its refusal; a fault of the archive itself has no name."""

    name: str
    offset: int = 0
    """Offset of its first byte."""
    size: int = 0
    refused: RefusedEntryError | None = None


class TarBytes:
    """Bytes of an archive, with limits on the size of headers and members."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        """Read ``file``, which has ``size`` bytes."""
        self._file = file
        self._size = size
        self.tell = file.tell
        self.close = file.close

    def seek(self, offset: int) -> int:
        """Move to an offset."""
        if offset > self._size:
            detail = f"a member ends at byte {offset} of {self._size}"
            raise RefusedEntryError("truncated archive", detail)
        return self._file.seek(offset)

    def read(self, count: int) -> bytes:
        """Return a header for ``tarfile``; fewer bytes at the end of the archive."""
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
            raise OSError(describe_error(error)) from error
        if len(data) < size:
            raise RefusedEntryError("truncated archive", f"at byte {offset}")
        return data


def walk_members(archive: TarBytes) -> Iterator[Member]:
    """Yield the members of a tar in order, without folders; a fault of the archive comes last."""
    last: Member | None = None
    """Not yielded yet: reading the next header shows whether its contents are complete."""
    headers = 0
    try:
        with _open_tar(archive) as tar:
            while headers < MAX_MEMBERS:
                info = tar.next()
                tar.members.clear()  # a million of them would take a gigabyte
                headers += 1
                if last is not None:
                    yield last
                last = None
                if info is None:
                    _check_end(archive, tar.offset)
                    return
                if info.size < 0 or tar.offset <= info.offset:
                    raise RefusedEntryError("damaged archive", "a member of negative size")
                if not info.isdir():
                    last = _member(info)
        fault = RefusedEntryError(
            "too many members", f"more than {MAX_MEMBERS}: make smaller archives"
        )
    except RefusedEntryError as error:
        fault = error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        fault = _explain_fault(error, headers)
    if last is not None and archive.tell() >= last.offset + last.size:
        yield last
    yield Member("", refused=fault)


def _explain_fault(error: Exception, headers: int) -> RefusedEntryError:
    """Return why an archive cannot be read on, after a number of headers."""
    message = str(error)
    reason = REASONS.get(message)
    if reason is None:
        reason = "damaged archive" if headers else "not an archive"
    return RefusedEntryError(reason, message[:200])


def _open_tar(archive: TarBytes) -> Any:
    """Return the ``TarFile`` of an archive; its type lacks ``members``."""
    if archive.read(2) == GZIP_SIGNATURE:
        raise RefusedEntryError("gzipped archive", "unpack it first, with gunzip")
    archive.seek(0)
    return tarfile.open(  # pyright: ignore[reportCallIssue]
        fileobj=archive,  # pyright: ignore[reportArgumentType] - reads and seeks only
        mode="r:",
        encoding="utf-8",
        errors="surrogateescape",
    )


def _check_end(archive: TarBytes, offset: int) -> None:
    """Refuse an archive that stops without an end mark, a block of zeros."""
    archive.seek(offset)
    block = archive.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        end = offset + len(block)
        raise RefusedEntryError("truncated archive", f"ends at byte {end} without an end mark")
    if any(block):
        raise RefusedEntryError("damaged archive", f"no header at byte {offset}")


def _member(info: tarfile.TarInfo) -> Member:
    refused = _refuse_member(info)
    if refused is None and len(info.name) > MAX_NAME:
        refused = RefusedEntryError("damaged header", f"a name of {len(info.name)} characters")
        return Member(info.name[-100:], refused=refused)
    name = info.name if refused else posixpath.normpath(info.name)
    return Member(name, info.offset_data, info.size, refused)


def _refuse_member(info: tarfile.TarInfo) -> RefusedEntryError | None:
    """Return why a member is refused for its type or path; ``None`` if it is not."""
    if info.issym() or info.islnk():
        return RefusedEntryError("link in an archive", f"to {info.linkname}")
    if info.issparse():
        return RefusedEntryError("sparse file in an archive")
    if not info.isreg():
        return RefusedEntryError("not a regular file", f"type {info.type!r}")
    folders = info.name.split("/")
    if info.name.startswith("/") or ".." in folders or "\0" in info.name:
        return RefusedEntryError("path leaves the archive")
    return None


@dataclass(frozen=True, slots=True)
class _Part:
    """Member of a sample."""

    suffix: str
    """The name after the basename: ".jpg", ".before.jpg"."""
    offset: int = 0
    size: int = 0

    @property
    def ending(self) -> str:
        return posixpath.splitext(f"x{self.suffix}")[1].lower()

    @property
    def field(self) -> str:
        """Return the part between basename and extension: ".before" in ``a.before.jpg``."""
        return self.suffix[: -len(self.ending)]


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the samples of all archives, at most ``limit``; ``SourceError`` if there is none."""
    if config.reading.splits:
        raise SourceError(
            f"{config.path}: tars have no splits: leave reading.splits empty, "
            "or give a pattern of tars"
        )
    yield from islice(_list_archives(config.path), limit)


def _list_archives(source: str) -> Iterator[ItemRow]:
    files = open_pattern(source)
    has_sample = False
    fault = "no name ends in .tar"
    for name in files.names(ENDINGS):
        state, samples = _group_members(files, name)
        log.info("%s: %d samples", escape_name(name), len(samples))
        for stem, members in samples.items():
            if stem:
                has_sample = True
            else:
                fault = escape_name(f"{name}: {members[0].refused}")
                log.warning("%s: %s", source, fault)
            yield _item(name, state, stem, members)
    if not has_sample:
        hint = "give a tar (not gzipped), a pattern like NAME-{000..011}.tar, or a folder of tars"
        raise SourceError(f"{source}: no sample with an image in its archives ({fault}); {hint}")


def _group_members(files: FilePattern, name: str) -> tuple[FileState, dict[str, list[Member]]]:
    """Return an archive's state and its image and text members by basename.

    A fault of the archive itself is under "".
    """
    state = UNKNOWN_STATE
    samples: dict[str, list[Member]] = {}
    try:
        with wrap_store_errors(name):
            state = files.stat(name)
            with closing(_open(files, name, state)) as archive:
                for member in walk_members(archive):
                    if not member.name or _is_content(member.name):
                        stem, _ = _split(member.name)
                        samples.setdefault(stem, []).append(member)
    except RefusedEntryError as error:
        samples = {"": [Member("", refused=error)]}
    return state, samples


def _is_content(name: str) -> bool:
    """Return whether a member is an image, a text or a record, and not hidden."""
    folders = name.split("/")
    if any(part.startswith(".") and part.strip(".") for part in folders):
        return False
    _, suffix = _split(name)
    if suffix.lower() == RECORD:
        return True
    return _Part(suffix).ending in (*EXTENSIONS, *TEXTS)


def _open(files: FilePattern, name: str, state: FileState) -> TarBytes:
    return TarBytes(files.open_for_reading(name, block_size=READ_AHEAD), state["size"])


def _split(name: str) -> tuple[str, str]:
    folder, file = posixpath.split(name)
    base = file.partition(".")[0]
    return posixpath.join(folder, base), file[len(base) :]


def _item(
    archive: str,
    state: FileState,
    stem: str,
    members: Sequence[Member],
) -> ItemRow:
    locator: dict[str, Any] = {"archive": archive, **state, "stem": stem}
    name = escape_name(f"{archive}/{stem}" if stem else archive)
    try:
        parts = _check_sample(members)
    except RefusedEntryError as error:
        detail = escape_name(error.detail)[:500]
        return list_item("webdataset", name, locator, RefusedEntryError(error.reason, detail))
    locator["parts"] = [[part.suffix, part.offset, part.size] for part in parts]
    return list_item("webdataset", name, locator)


def _check_sample(members: Sequence[Member]) -> list[_Part]:
    """Return the members of a usable sample as its parts."""
    for member in members:
        if member.refused:
            detail = f"{member.name}: {member.refused.detail}".strip(": ")
            raise RefusedEntryError(member.refused.reason, detail)
    parts: list[_Part] = []
    for member in members:
        _, suffix = _split(member.name)
        parts.append(_Part(suffix, member.offset, member.size))
    if len(parts) > MAX_OF_SAMPLE:
        detail = (
            f"{len(parts)}: names are cut at their first dot, "
            "so that no name should have one of its own"
        )
        raise RefusedEntryError("too many members of one basename", detail)
    suffixes = {part.suffix for part in parts}
    if len(suffixes) < len(parts):
        raise RefusedEntryError("duplicated member")
    if not _images(parts):
        raise RefusedEntryError("no image in the sample")
    return parts


def _images(parts: Iterable[_Part]) -> list[_Part]:
    images = [part for part in parts if part.ending in EXTENSIONS]
    return [part for part in images if not part.field] or images


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield the images of each sample, or why there is none; each archive is opened once."""
    files = open_pattern(config.path)
    located = [(item, json.loads(item.locator)) for item in items]
    for name, group in groupby(located, key=lambda entry: entry[1]["archive"]):
        samples = list(group)
        _, first_locator = samples[0]
        try:
            archive = _open(files, name, files.stat(name, first_locator))
        except Exception as error:  # noqa: BLE001 - each store raises its own
            yield from (make_refusal(item, error) for item, _ in samples)
            continue
        with closing(archive):
            for item, _ in samples:
                yield from read_one(item, _read, archive, config)


def _read(item: ItemRow, archive: TarBytes, config: SourceConfig) -> list[ImageRow]:
    contents = _read_parts(item, archive, config)
    images = _images(contents)
    remarks: list[str] = []
    texts, record = _parse_texts(contents, remarks)
    group = read_word(record, ["group"], remarks)
    if not group and len(images) > 1:
        group = item.name
    metadata = EntryMetadata(licence=read_word(record, LICENCES, remarks), group=group)
    record_captions = _record_captions(record, config, remarks)
    rows: list[ImageRow] = []
    for part in images:
        captions = [text for text_part, text in texts.items() if text_part.field == part.field]
        if len(images) == 1:
            captions += [text for text_part, text in texts.items() if not text_part.field]
            captions += record_captions
        picture = SourceImage(
            data=contents[part],
            name=item.name + escape_name(part.suffix),
            captions=tuple(dict.fromkeys(filter(None, captions))),
            remarks=() if rows else tuple(remarks),
        )
        rows.append(read_image(item, picture, config, metadata))
    return rows


def _read_parts(item: ItemRow, archive: TarBytes, config: SourceConfig) -> dict[_Part, bytes]:
    contents: dict[_Part, bytes] = {}
    for values in locate(item)["parts"]:
        part = _Part(*values)
        if part.ending in EXTENSIONS:
            limit = config.images.max_bytes
            bound = f"images.max_bytes={limit}"
        else:
            limit = MAX_TEXT
            bound = f"a text may have {limit}"
        if part.size > limit:
            detail = f"{escape_name(part.suffix)}: {part.size} bytes; {bound}"
            raise RefusedEntryError("file too large", detail)
        contents[part] = archive.read_at(part.offset, part.size)
    return contents


def _parse_texts(
    contents: Mapping[_Part, bytes], remarks: list[str]
) -> tuple[dict[_Part, str], dict[str, Any]]:
    """Return the texts of a sample, and its first record that is an object.

    Each that cannot be read is left out, with a remark.
    """
    texts: dict[_Part, str] = {}
    records: list[dict[str, Any]] = []
    for part, data in contents.items():
        try:
            if part.ending in TEXTS:
                texts[part] = clean_text(data.decode("utf-8-sig"))
            elif part.ending == RECORD:
                records.append(check_record(json.loads(data.decode("utf-8-sig"))))
        except (ValueError, RecursionError, RefusedEntryError) as error:
            remarks.append(f"{UNREAD}: {escape_name(part.suffix)}: {describe_error(error)}")
    return texts, records[0] if records else {}


def _record_captions(
    record: Mapping[str, Any], config: SourceConfig, remarks: list[str]
) -> tuple[str, ...]:
    fields = (config.reading.caption_column,) if config.reading.caption_column else CAPTIONS
    return read_texts(record, fields, remarks)


READER = Reader(
    kind="webdataset",
    about=(
        "WebDataset shards: tars of images with captions; one tar, a pattern or a folder, "
        "local or remote"
    ),
    example="webdataset:'shards-{000..011}.tar'",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    recognises=lambda path: has_files(path, ENDINGS),
)
