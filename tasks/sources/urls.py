"""Fetch the images that a list of addresses names. Off until ``reading.download`` says otherwise.

A list is a text file; each line is one of

* an address: ``https://example.org/a.jpg`` (lines that begin with # are left out);
* JSON: ``{"url": ..., "caption": ...}``, or ``image_url`` and, as in a manifest (``tasks.sources.jsonl``),
  ``captions``, ``text``, ``licence``, ``group``; capitals do not count;
* cells between tabs: an address and, before or behind it, a caption; a first line that names columns is obeyed.

Lists ``ItemRow`` from the lines alone; an item's key hashes what its line says. Nothing is known of an image before it
is fetched: the same address later gives the same item, whatever stands there by then. Needs the network to read, and
fetches from the public internet only, within ``images.max_bytes`` and ``reading.timeout_seconds`` (of one whole
download); ``tasks.sources.web.download`` says how. What the list or the server refuses is dropped; what may come right
(time, connection, name, server errors) fails after three tries and is owed again.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.annotations import LINE_BYTES, read_lines
from pairwright.tasks.sources.layout.manifest import LICENCES, caption_fields, parse_json, text_of, texts_of
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.store.addresses import RefusedAddressError, parse_address

if TYPE_CHECKING:
    from pairwright.tasks.sources.web.download import DownloadError, Network

PARALLEL = 4
"""Downloads at a time in one shard; each may hold ``images.max_bytes``."""
FIELDS = ("url", "image_url")
_STARTS = ("http://", "https://")
_LOOKED_AT = 100
"""Lines that are looked at to tell a list of addresses from another file."""
_MOST_TEXT = 100_000
"""Characters of one line's captions."""


def list_items(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    """Yield an item per line, the first ``limit`` of them.

    Raises:
        SourceError: downloads are not allowed, or there is no list of addresses.
    """
    _check(config)
    path = Path(config.path)
    if not any(_holds_address(line) for _, line in islice(read_lines(path), _LOOKED_AT)):
        raise SourceError(
            f"{path}: is no list of addresses: none of its first {_LOOKED_AT} lines holds http:// or https://"
        )
    yield from islice(_items(path, config.reading.caption_column), limit)


def read_items(
    items: Sequence[ItemRow], config: SourceConfig, *, network: "Network | None" = None
) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield the image of each item, or why there is none, in order; a few are fetched at a time."""
    _check(config)
    waiting: deque[tuple[ItemRow, Future[bytes | DownloadError | None]]] = deque()
    with ThreadPoolExecutor(PARALLEL) as pool:
        for item in items:
            if len(waiting) == PARALLEL:
                yield _row(*waiting.popleft(), config)
            waiting.append((item, pool.submit(_fetch, item, config, network)))
        while waiting:
            yield _row(*waiting.popleft(), config)


def _check(config: SourceConfig) -> None:
    """Refuse to fetch what nobody allowed, and lists that are not there."""
    if "://" in config.path:
        raise SourceError(
            f"{config.path}: lists of addresses are read from local disks only; copy it, and give the path"
        )
    if not Path(config.path).is_file():
        found = "is no file" if Path(config.path).exists() else "there is no such file"
        raise SourceError(f"{config.path}: {found}; give a list of addresses, as in {READER.example}")
    if not config.reading.download:
        raise SourceError(
            f"{config.path}: its addresses would be fetched from the internet, which is off; "
            "allow it with --set reading.download=true"
        )
    if config.reading.splits:
        raise SourceError(f"{config.path}: lists of addresses name no splits; leave reading.splits empty")


def _holds_address(line: bytes | None) -> bool:
    return line is not None and any(start.encode() in line.lower() for start in _STARTS)


def _items(path: Path, caption_column: str) -> Iterator[ItemRow]:
    columns: list[str] | None = None
    for number, line in read_lines(path):
        if line is not None and line.startswith(b"#"):
            continue
        if columns is None:
            columns = _columns(line)
            if columns:
                continue
        yield _item(f"line {number}", _place(line, columns, caption_column))


def _columns(line: bytes | None) -> list[str]:
    """Return the names of columns, where a line is a header of cells."""
    cells = [cell.strip().lower() for cell in (line or b"")[:10_000].decode("utf-8", "replace").split("\t")]
    is_header = len(cells) > 1 and not _holds_address(line) and any(field in cells for field in FIELDS)
    return cells if is_header else []


def _place(line: bytes | None, columns: Sequence[str], caption_column: str) -> dict[str, Any]:
    """Return what a line says, as a locator holds it: an address and what is known of its image, or a refusal."""
    if line is None:
        return {"refused": "line too long", "detail": f"the limit is {LINE_BYTES} bytes"}
    try:
        record = _record(line, columns)
    except ValueError as error:
        return {"refused": "damaged line", "detail": str(error)[:200]}
    url = text_of(record, *FIELDS)
    captions = texts_of(record, *(field.lower() for field in caption_fields(caption_column)))
    if sum(map(len, captions)) > _MOST_TEXT:
        return {"refused": "too much text", "detail": f"the limit is {_MOST_TEXT} characters"}
    try:
        shown = parse_address(url).shown
    except RefusedAddressError as refused:
        # Not the address: it may hold a password.
        return {"refused": refused.reason, "detail": refused.detail}
    about = {"licence": text_of(record, *LICENCES)[:1000], "group": text_of(record, "group")[:1000]}
    return {"url": url, "shown": shown, "captions": captions, **about}


def _record(line: bytes, columns: Sequence[str]) -> Mapping[str, Any]:
    """Return a line as a record, whatever its form."""
    if line.lstrip().startswith(b"{"):
        found = parse_json(line)
        return {str(name).lower(): value for name, value in found.items()} if isinstance(found, dict) else {}
    cells = [cell.strip() for cell in line.decode("utf-8-sig").split("\t")]
    if columns:
        return dict(zip(columns, cells, strict=False))
    url = next((cell for cell in cells if cell.lower().startswith(_STARTS)), cells[0])
    return {"url": url, "caption": next((cell for cell in cells if cell and cell != url), None)}


def _item(line: str, place: dict[str, Any]) -> ItemRow:
    name = f"{line}: {place['shown']}" if "shown" in place else line
    identity = [line] if "refused" in place else []
    key = make_key("urls", json.dumps(place, sort_keys=True), *identity)
    return ItemRow(key=key, source_key=key, subject=key, name=shown_name(name), locator=json.dumps(place))


def _fetch(item: ItemRow, config: SourceConfig, network: "Network | None") -> "bytes | DownloadError | None":
    """Return what an item's address holds, or why it cannot be had; nothing for a refused line."""
    from pairwright.tasks.sources.web.download import PUBLIC, DownloadError, Limits, download  # loads httpcore

    place = json.loads(item.locator)
    if "refused" in place:
        return None
    limits = Limits(max_bytes=config.images.max_bytes, timeout_s=config.reading.timeout_seconds)
    try:
        return download(place["url"], limits, network or PUBLIC)
    except DownloadError as error:
        return error


def _row(
    item: ItemRow, coming: "Future[bytes | DownloadError | None]", config: SourceConfig
) -> ImageRow | Dropped | Failed:
    place, found = json.loads(item.locator), coming.result()
    if isinstance(found, bytes):
        about = About(licence=place["licence"], group=place["group"])
        picture = Picture(data=found, name=shown_name(place["shown"]), captions=tuple(place["captions"]))
        return read_image(item, picture, config, about=about)
    if found is None:
        return dropped(item, place["refused"], place["detail"])
    if found.final:
        return dropped(item, found.reason, shown_name(found.detail))
    return Failed(source_key=item.key, reason=found.reason, detail=f"{item.name}: {shown_name(found.detail)}")


READER = Reader(
    kind="urls",
    about="a list of http(s) addresses, with captions or without; fetched only where reading.download allows it",
    example="urls:addresses.txt --set reading.download=true",
    list_items=list_items,
    read_items=read_items,
    rows_per_shard=32,
)
