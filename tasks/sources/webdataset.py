"""Read WebDataset shards: tars in which members with one basename are a sample.

Lists ``ItemRow`` from the headers of the tars, reads a sample into ``ImageRow``. A source is one tar, a pattern
(``shards-{000..011}.tar``, ``train-*.tar``) or a folder of tars, local or in any store that fsspec knows. Nothing is
unpacked to disk; a ``.tar.gz`` must be unpacked (``gunzip``) first.

The members of a sample share their name up to the first dot of the file name, anywhere in the tar:

* ``a.jpg`` and other images; of several, those without a middle part count (``a.jpg``, not ``a.mask.png``); if all have
one (``a.before.jpg``, ``a.after.jpg``), they are images of one group;
* ``a.txt`` and ``a.caption``: captions; ``a.json``: captions, licence, group. In a sample with several images, captions
count if their names match an image (``a.before.txt``).

Other members, and hidden ones, are ignored. An item's key hashes the tar's name, size and
version and the offsets of its members. Listing seeks from header to header; reading a member takes one seek.
"""

import json
import logging
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.sources.annotations import CAPTIONS, LICENCES, check_word, clean_text, texts_of
from pairwright.tasks.sources.find_files import UNSEEN, Place, Seen, holds, open_place, reaching
from pairwright.tasks.sources.read_entry import EXTENSIONS, About, Picture, read_image
from pairwright.tasks.sources.reader import (
    Read,
    Reader,
    RefusedEntryError,
    list_item,
    locate,
    read_one,
    refuse,
    shown_name,
)
from pairwright.tasks.sources.tars import Member, TarBytes, walk_members

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
            f"{config.path}: tars have no splits, but reading.splits is {', '.join(config.reading.splits)}; "
            "give a pattern for the tars of a split"
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
                        if not member.name or _is_wanted(member.name, suffix):
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
        raise SourceError(
            f"{source}: no sample with an image in its archives ({fault}); give a tar (not gzipped), a pattern "
            "like NAME-{000..011}.tar, or a folder of tars"
        )


def _open(place: Place, name: str, seen: Seen) -> TarBytes:
    return TarBytes(place.open(name, block_size=READ_AHEAD), seen["size"])


def _split(name: str) -> tuple[str, str]:
    folder, file = posixpath.split(name)
    base = file.partition(".")[0]
    return posixpath.join(folder, base), file[len(base) :]


def _is_wanted(name: str, suffix: str) -> bool:
    if any(part.startswith(".") and part.strip(".") for part in name.split("/")):
        return False
    return _Part(suffix).ending in (*EXTENSIONS, *TEXTS) or suffix.lower() == RECORD


def _item(archive: str, seen: Seen, stem: str, members: Sequence[Member]) -> ItemRow:
    where: dict[str, Any] = {"archive": archive, **seen, "stem": stem}
    name = shown_name(f"{archive}/{stem}" if stem else archive)
    try:
        for member in members:
            if member.refused:
                raise RefusedEntryError(member.refused.reason, f"{member.name}: {member.refused.detail}".strip(": "))
        parts = [_Part(_split(member.name)[1], member.offset, member.size) for member in members]
        if len(parts) > MAX_OF_SAMPLE:
            detail = f"{len(parts)}: names are cut at their first dot, so that no name should have one of its own"
            raise RefusedEntryError("too many members of one basename", detail)
        if len({part.suffix for part in parts}) < len(parts):
            raise RefusedEntryError("duplicated member")
        if not _images(parts):
            raise RefusedEntryError("no image in the sample")
    except RefusedEntryError as error:
        refused = RefusedEntryError(error.reason, shown_name(error.detail)[:500])
        return list_item("webdataset", name, where, refused)
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
            raise RefusedEntryError("file too large", f"{shown_name(part.suffix)}: {part.size} bytes; {bound}")
        contents[part] = archive.read_at(part.offset, part.size)
    images = _images(list(contents))
    try:
        texts = {part: clean_text(data.decode("utf-8-sig")) for part, data in contents.items() if part.ending in TEXTS}
        records = [json.loads(data.decode("utf-8-sig")) for part, data in contents.items() if part.ending == RECORD]
    except (ValueError, RecursionError) as error:
        raise RefusedEntryError("damaged caption or record", str(error)) from error
    record: dict[str, Any] = next((found for found in records if isinstance(found, dict)), {})
    about = About(
        licence=check_word(record, *LICENCES),
        group=check_word(record, "group") or (item.name if len(images) > 1 else ""),
    )
    rows: list[ImageRow] = []
    for part in images:
        own = [text for about_it, text in texts.items() if about_it.field == part.field]
        if len(images) == 1:
            own += [text for about_it, text in texts.items() if not about_it.field]
            fields = (config.reading.caption_column,) if config.reading.caption_column else CAPTIONS
            own += [text for field in fields for text in texts_of(record.get(field))]
        captions = tuple(dict.fromkeys(filter(None, own)))
        picture = Picture(data=contents[part], name=item.name + shown_name(part.suffix), captions=captions)
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
