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
from collections.abc import Iterator, Sequence
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
    check_word,
    clean_text,
    texts_of,
)
from pairwright.tasks.sources.find_files import (
    UNSEEN,
    FilePattern,
    Seen,
    holds,
    open_place,
    reaching,
)
from pairwright.tasks.sources.read_entry import EXTENSIONS, EntryMetadata, SourceImage, read_image
from pairwright.tasks.sources.reader import (
    Read,
    Reader,
    RefusedEntryError,
    list_item,
    locate,
    read_one,
    refuse,
    shown_name,
    shown_words,
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
MAX_NAME, MAX_MEMBERS = 4096, 1_000_000


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
            raise RefusedEntryError(
                "truncated archive", f"a member ends at byte {offset} of {self._size}"
            )
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
        with tarfile.open(  # pyright: ignore[reportCallIssue]
            fileobj=archive,  # pyright: ignore[reportArgumentType] - reads and seeks only
            mode="r:",
            encoding="utf-8",
            errors="surrogateescape",
        ) as tar:
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
                        raise RefusedEntryError(
                            "truncated archive", f"ends at byte {end} without an end mark"
                        )
                    if any(block):
                        raise RefusedEntryError(
                            "damaged archive", f"no header at byte {tar.offset}"
                        )
                    return
                if info.size < 0 or tar.offset <= info.offset:
                    raise RefusedEntryError("damaged archive", "a member of negative size")
                held = None if info.isdir() else _member(info)
        fault = RefusedEntryError(
            "too many members", f"more than {MAX_MEMBERS}: make smaller archives"
        )
    except RefusedEntryError as error:
        fault = error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        reason = {"empty file": "empty archive", "unexpected end of data": "truncated archive"}.get(
            str(error)
        )
        fault = RefusedEntryError(
            reason or ("damaged archive" if walked else "not an archive"), str(error)[:200]
        )
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
    return Member(
        info.name if refused else posixpath.normpath(info.name),
        info.offset_data,
        info.size,
        refused,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    suffix: str
    """The name after the basename: ".jpg", ".before.jpg"."""
    offset: int = 0
    size: int = 0

    @property
    def ending(self) -> str:
        return posixpath.splitext(f"x{self.suffix}")[1].lower()

    @property
    def field(self) -> str:
        """Return the part between basename and extension: "" in ``a.jpg``, ".before" in ``a.before.jpg``."""
        return self.suffix[: -len(self.ending)]


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the samples of all archives in order, at most ``limit``; ``SourceError`` if there is none."""
    if config.reading.splits:
        raise SourceError(
            f"{config.path}: tars have no splits: leave reading.splits empty, or give a pattern of tars"
        )
    yield from islice(_all_items(config.path), limit)


def _all_items(source: str) -> Iterator[ItemRow]:
    place = open_place(source)
    found, fault = False, "no name ends in .tar"
    for name in place.names(ENDINGS):
        seen = UNSEEN
        samples: dict[str, list[Member]] = {}
        """Image and text members by basename; under "", a fault of the archive itself."""
        try:
            with reaching(name):
                seen = place.look(name)
                with closing(_open(place, name, seen)) as archive:
                    for member in walk_members(archive):
                        stem, suffix = _split(member.name)
                        hidden = any(
                            part.startswith(".") and part.strip(".")
                            for part in member.name.split("/")
                        )
                        wanted = (
                            _Part(suffix).ending in (*EXTENSIONS, *TEXTS)
                            or suffix.lower() == RECORD
                        )
                        if not member.name or (wanted and not hidden):
                            samples.setdefault(stem, []).append(member)
        except RefusedEntryError as error:
            samples = {"": [Member("", refused=error)]}
        log.info("%s: %d samples", shown_name(name), len(samples))
        for stem, members in samples.items():
            if not stem:
                fault = shown_name(f"{name}: {members[0].refused}")
                log.warning("%s: %s", source, fault)
            found = found or bool(stem)
            yield _item(name, seen, stem, members)
    if not found:
        hint = "give a tar (not gzipped), a pattern like NAME-{000..011}.tar, or a folder of tars"
        raise SourceError(f"{source}: no sample with an image in its archives ({fault}); {hint}")


def _open(place: FilePattern, name: str, seen: Seen) -> TarBytes:
    return TarBytes(place.open(name, block_size=READ_AHEAD), seen["size"])


def _split(name: str) -> tuple[str, str]:
    folder, file = posixpath.split(name)
    base = file.partition(".")[0]
    return posixpath.join(folder, base), file[len(base) :]


def _item(archive: str, seen: Seen, stem: str, members: Sequence[Member]) -> ItemRow:
    where: dict[str, Any] = {"archive": archive, **seen, "stem": stem}
    name = shown_name(f"{archive}/{stem}" if stem else archive)
    try:
        for member in members:
            if member.refused:
                raise RefusedEntryError(
                    member.refused.reason, f"{member.name}: {member.refused.detail}".strip(": ")
                )
        parts = [_Part(_split(member.name)[1], member.offset, member.size) for member in members]
        if len(parts) > MAX_OF_SAMPLE:
            detail = f"{len(parts)}: names are cut at their first dot, so that no name should have one of its own"
            raise RefusedEntryError("too many members of one basename", detail)
        if len({part.suffix for part in parts}) < len(parts):
            raise RefusedEntryError("duplicated member")
        if not _images(parts):
            raise RefusedEntryError("no image in the sample")
    except RefusedEntryError as error:
        return list_item(
            "webdataset",
            name,
            where,
            RefusedEntryError(error.reason, shown_name(error.detail)[:500]),
        )
    where["parts"] = [[part.suffix, part.offset, part.size] for part in parts]
    return list_item("webdataset", name, where)


def _images(parts: Sequence[_Part]) -> list[_Part]:
    images = [part for part in parts if part.ending in EXTENSIONS]
    return [part for part in images if not part.field] or images


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the images of each sample, or the reason why there is none; each archive is opened once."""
    place = open_place(config.path)
    located = [(item, json.loads(item.locator)) for item in items]
    for name, group in groupby(located, key=lambda both: both[1]["archive"]):
        samples = list(group)
        try:
            archive = _open(place, name, place.look(name, samples[0][1]))
        except Exception as error:  # noqa: BLE001 - each store raises its own errors; the items are owed again
            yield from (refuse(item, error) for item, _ in samples)
            continue
        with closing(archive):
            for item, _ in samples:
                yield from read_one(item, _read, archive, config)


def _read(item: ItemRow, archive: TarBytes, config: SourceConfig) -> list[ImageRow]:
    contents: dict[_Part, bytes] = {}
    for part in (_Part(*part) for part in locate(item)["parts"]):
        is_image = part.ending in EXTENSIONS
        if part.size > (limit := config.images.max_bytes if is_image else MAX_TEXT):
            bound = f"images.max_bytes={limit}" if is_image else f"a text may have {limit}"
            raise RefusedEntryError(
                "file too large", f"{shown_name(part.suffix)}: {part.size} bytes; {bound}"
            )
        contents[part] = archive.read_at(part.offset, part.size)
    images = _images(list(contents))
    try:
        texts = {
            part: clean_text(data.decode("utf-8-sig"))
            for part, data in contents.items()
            if part.ending in TEXTS
        }
        records = [
            json.loads(data.decode("utf-8-sig"))
            for part, data in contents.items()
            if part.ending == RECORD
        ]
    except (ValueError, RecursionError) as error:
        raise RefusedEntryError("damaged caption or record", str(error)) from error
    record: dict[str, Any] = next((found for found in records if isinstance(found, dict)), {})
    group = check_word(record, "group") or (item.name if len(images) > 1 else "")
    about = EntryMetadata(licence=check_word(record, *LICENCES), group=group)
    rows: list[ImageRow] = []
    for part in images:
        own = [text for about_it, text in texts.items() if about_it.field == part.field]
        if len(images) == 1:
            own += [text for about_it, text in texts.items() if not about_it.field]
            fields = (config.reading.caption_column,) if config.reading.caption_column else CAPTIONS
            own += [text for field in fields for text in texts_of(record.get(field))]
        captions = tuple(dict.fromkeys(filter(None, own)))
        picture = SourceImage(
            data=contents[part], name=item.name + shown_name(part.suffix), captions=captions
        )
        rows.append(read_image(item, picture, config, about))
    return rows


READER = Reader(
    kind="webdataset",
    about="WebDataset shards: tars of images with captions; one tar, a pattern or a folder, local or remote",
    example="webdataset:'shards-{000..011}.tar'",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
    recognises=lambda path: holds(path, ENDINGS),
)
