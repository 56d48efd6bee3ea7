"""Read WebDataset shards: tars in which the members of one basename are a sample.

Lists ``ItemRow`` from the headers of the tars, reads a sample into ``ImageRow``. A source is one tar, a pattern
(``shards-{000..011}.tar``, ``train-*.tar``) or a folder of tars, local or wherever fsspec reaches; ``.tar`` and
``.tar.gz``. Nothing is unpacked to disk.

A sample is what has one name up to the first dot of the file name, wherever in its tar it lies:

* ``a.jpg`` and other images; where a sample has several (``a.jpg``, ``a.mask.png``), those with the plainest ending
  count, and several of them (``a.before.jpg``, ``a.after.jpg``) become images of one group;
* ``a.txt`` and ``a.caption``: captions; ``a.json``: captions, licence, group. Captions of a sample with several images
  are taken where the names tell whose they are (``a.before.txt``).

Other members, and hidden ones, are ignored and counted in the log. An item's key hashes the tar's name, size and
version and the places of its members. A plain tar is listed by seeking over its headers, and a member is read by one
seek. Gzip has no seeking: such a tar is unpacked in passing once to list it and once more per worker to read it, since
a worker keeps its place between shards; members of one sample that lie apart cost a pass per shard. Plain tars are
better.
"""

import json
import logging
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, make_key
from pairwright.tasks.sources.archives.find_archives import ENDINGS, Archive, Root, find_archives, find_root, reaching
from pairwright.tasks.sources.archives.read_archive import read_members
from pairwright.tasks.sources.archives.tar_members import DamagedArchiveError, Member, open_tar, walk_members
from pairwright.tasks.sources.folder import EXTENSIONS, shown_name
from pairwright.tasks.sources.layout.manifest import (
    LICENCES,
    Record,
    caption_fields,
    clean_text,
    parse_json,
    text_of,
    texts_of,
)
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image
from pairwright.tasks.sources.reader import Reader

log = logging.getLogger(__name__)

TEXTS = (".txt", ".caption")
RECORDS = (".json",)
MAX_TEXT = 1 << 20
"""Bytes of a caption or of a JSON record; larger ones drop their sample."""
MAX_OF_SAMPLE = 64
_LOOKED_AT = 1000
"""Names of a folder that are looked at to recognise it."""

Found = ImageRow | Dropped | Failed


@dataclass(frozen=True, slots=True)
class _Part:
    """Be one member of a sample as the locator names it."""

    suffix: str
    """".jpg", ".before.jpg": what follows the basename."""
    offset: int
    size: int

    @property
    def ending(self) -> str:
        return posixpath.splitext(f"x{self.suffix}")[1].lower()

    @property
    def field(self) -> str:
        """Return what stands between basename and ending: "" in ``a.jpg``, ".before" in ``a.before.jpg``."""
        return self.suffix[: -len(self.ending)]


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield the samples of all archives in order, the first ``limit`` of them; ``SourceError`` where there is none."""
    if config.reading.splits:
        raise SourceError(
            f"{config.path}: tars name no splits, but reading.splits asks for {', '.join(config.reading.splits)}; "
            "give a pattern that names the tars of a split"
        )
    yield from islice(_all_items(config.path), limit)


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Found]:
    """Yield the images of each sample, or why there is none; each archive is opened once."""
    root = find_root(config.path)
    for name, group in groupby(items, lambda item: json.loads(item.locator)["archive"]):
        yield from _read_archive(root, name, list(group), config)


def _all_items(source: str) -> Iterator[ItemRow]:
    root = find_root(source)
    samples, fault = 0, ""
    for archive in find_archives(root, source):
        parts, faults = _samples_of(root, archive)
        samples += len(parts)
        for stem, members in parts.items():
            yield _item(archive, stem, members)
        for member in faults:
            fault = f"{archive.name}: {member.refused}: {member.detail}".removesuffix(": ")
            log.warning("%s: %s", source, shown_name(fault))
            yield _refused(archive, "", member.refused, member.detail)
    if not samples:
        raise SourceError(f"{source}: no sample with an image found in its archives ({shown_name(fault) or 'empty'})")


def _samples_of(root: Root, archive: Archive) -> tuple[dict[str, list[Member]], list[Member]]:
    """Return the wanted members of an archive by basename, and what is wrong with the archive itself."""
    samples: dict[str, list[Member]] = {}
    if archive.refused:
        return samples, [Member("", refused=archive.refused)]
    faults: list[Member] = []
    ignored = 0
    with reaching(archive.name), closing(open_tar(root.open(archive.name), archive.size)) as medium:
        for member in walk_members(medium):
            stem, suffix = _split(member.name)
            if not member.name:
                faults.append(member)
            elif _is_wanted(member.name, suffix):
                samples.setdefault(stem, []).append(member)
            else:
                ignored += 1
    log.info("%s: %d samples, ignored %d other members", shown_name(archive.name), len(samples), ignored)
    return samples, faults


def _split(name: str) -> tuple[str, str]:
    """Return a member's basename, with its folder, and the suffix from the first dot of its file name on."""
    folder, file = posixpath.split(name)
    base = file.partition(".")[0]
    return posixpath.join(folder, base), file[len(base) :]


def _is_wanted(name: str, suffix: str) -> bool:
    if any(part.startswith(".") and part.strip(".") for part in name.split("/")):
        return False
    ending = _Part(suffix, 0, 0).ending
    return ending in EXTENSIONS or ending in TEXTS or suffix.lower() in RECORDS


def _item(archive: Archive, stem: str, members: Sequence[Member]) -> ItemRow:
    parts = [_Part(_split(member.name)[1], member.offset, member.size) for member in members]
    refused = next((member for member in members if member.refused), None)
    if refused:
        return _refused(archive, stem, refused.refused, f"{refused.name}: {refused.detail}".removesuffix(": "))
    if len(parts) > MAX_OF_SAMPLE:
        detail = f"{len(parts)}: names are cut at their first dot, so that no name should have one of its own"
        return _refused(archive, stem, "too many members of one basename", detail)
    if len({part.suffix for part in parts}) < len(parts):
        return _refused(archive, stem, "duplicated member", "")
    if not _images(parts):
        return _refused(archive, stem, "no image in the sample", "")
    places = [[part.suffix, part.offset, part.size] for part in parts]
    return _row(archive, stem, {"parts": places}, json.dumps(places))


def _refused(archive: Archive, stem: str, reason: str, detail: str) -> ItemRow:
    about = {"refused": reason, "detail": shown_name(detail)[:500]}
    return _row(archive, stem, about, json.dumps(about))


def _row(archive: Archive, stem: str, about: dict[str, Any], identity: str) -> ItemRow:
    name = json.dumps([archive.name, stem])  # ASCII: names may hold bytes that are no UTF-8
    key = make_key("webdataset", name, archive.size, archive.stamp, identity)
    place = {"archive": archive.name, "size": archive.size, "stamp": archive.stamp, **about}
    shown = shown_name(f"{archive.name}/{stem}" if stem else archive.name)
    return ItemRow(key=key, source_key=key, subject=key, name=shown, locator=json.dumps(place, ensure_ascii=True))


def _images(parts: Sequence[_Part]) -> list[_Part]:
    """Return the images of a sample: those of the plainest endings."""
    images = [part for part in parts if part.ending in EXTENSIONS]
    return [part for part in images if not part.field] or images


def _read_archive(root: Root, name: str, items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Found]:
    now = _look(root, name)
    sound: list[tuple[ItemRow, list[_Part]]] = []
    for item in items:
        place = json.loads(item.locator)
        parts = [_Part(*part) for part in place.get("parts", ())]
        refusal = _refusal(item, place, parts, now=now, config=config)
        if refusal:
            yield refusal
        else:
            sound.append((item, parts))
    if not sound or isinstance(now, Exception):
        return
    for (item, parts), contents in zip(sound, _contents(root, now, sound), strict=True):
        if isinstance(contents, Dropped | Failed):
            yield contents
        else:
            yield from _rows(item, dict(zip(parts, contents, strict=True)), config)


def _look(root: Root, name: str) -> Archive | Exception:
    try:
        return root.look(name)
    except Exception as error:  # noqa: BLE001 - each store raises errors of its own; the items are owed again
        return error


def _refusal(
    item: ItemRow, place: dict[str, Any], parts: Sequence[_Part], *, now: Archive | Exception, config: SourceConfig
) -> Dropped | Failed | None:
    if "refused" in place:
        return dropped(item, place["refused"], place["detail"])
    if isinstance(now, Exception):
        return _failed(item, now)
    if now.refused:
        return dropped(item, now.refused)
    if (now.size, now.stamp) != (place["size"], place["stamp"]):
        return dropped(item, "changed since it was listed")
    for part in parts:
        limit = config.images.max_bytes if part.ending in EXTENSIONS else MAX_TEXT
        if part.size > limit:
            return dropped(
                item, "file too large", f"{shown_name(part.suffix)}: {part.size} bytes, the limit is {limit}"
            )
    return None


def _contents(
    root: Root, archive: Archive, wanted: Sequence[tuple[ItemRow, list[_Part]]]
) -> Iterator[list[bytes] | Dropped | Failed]:
    """Yield the bytes of each item's parts, or why there are none."""
    done = 0
    try:
        for contents in read_members(root, archive, [[(p.offset, p.size) for p in parts] for _, parts in wanted]):
            done += 1
            yield contents
    except DamagedArchiveError as damage:
        yield from (dropped(item, damage.reason, damage.detail) for item, _ in wanted[done:])
    except Exception as error:  # noqa: BLE001 - each store raises errors of its own; the items are owed again
        yield from (_failed(item, error) for item, _ in wanted[done:])


def _rows(item: ItemRow, contents: dict[_Part, bytes], config: SourceConfig) -> Iterator[ImageRow | Dropped]:
    """Yield the images of one sample; the first that is refused takes the others with it."""
    images = _images(list(contents))
    try:
        record = _record(contents)
        texts = {part: clean_text(data.decode("utf-8-sig")) for part, data in contents.items() if part.ending in TEXTS}
    except ValueError as error:
        yield dropped(item, "damaged caption or record", str(error))
        return
    about = About(
        licence=text_of(record, *LICENCES),
        group=text_of(record, "group") or (item.name if len(images) > 1 else ""),
    )
    rows: list[ImageRow] = []
    for part in images:
        own = [text for about_it, text in texts.items() if about_it.field == part.field]
        if len(images) == 1:
            own += [text for about_it, text in texts.items() if not about_it.field]
            own += texts_of(record, *caption_fields(config.reading.caption_column))
        captions = tuple(dict.fromkeys(filter(None, own)))
        picture = Picture(data=contents[part], name=item.name + shown_name(part.suffix), captions=captions)
        row = read_image(item, picture, config, about=about)
        if isinstance(row, Dropped):
            yield row
            return
        rows.append(row)
    yield from rows


def _record(contents: dict[_Part, bytes]) -> Record:
    """Return the sample's JSON object; an empty one where its JSON is something else."""
    for part, data in contents.items():
        if part.ending in RECORDS and isinstance(found := parse_json(data), dict):
            return found
    return {}


def _failed(item: ItemRow, error: Exception) -> Failed:
    return Failed(source_key=item.key, reason="I/O error", detail=f"{item.name}: {type(error).__name__}: {error}")


def _recognises(path: str) -> bool:
    """Say whether a path ends like a tar, or is a folder that holds tars and no image."""
    if path.lower().endswith(ENDINGS):
        return True
    if "://" in path or not Path(path).is_dir():
        return False
    names = [entry.name.lower() for entry in islice(Path(path).iterdir(), _LOOKED_AT)]
    return any(name.endswith(ENDINGS) for name in names) and not any(name.endswith(EXTENSIONS) for name in names)


READER = Reader(
    kind="webdataset",
    about="WebDataset shards: tars of images with captions; one, a pattern or a folder, local or remote",
    example="webdataset:'shards-{000..011}.tar'",
    list_items=list_items,
    read_items=read_items,
    recognises=_recognises,
)
