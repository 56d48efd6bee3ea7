"""Readers: how one kind of source is recognised, listed and read; and the items that readers list.

A reader file ends with its ``READER``; the command line's list of sources, the stages of a build
and its shard sizes follow from it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairwright.schemas.addresses import hide_secrets
from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import (
    ComparisonRow,
    Dropped,
    Failed,
    ImageRow,
    ItemRow,
    PairRow,
    PreferenceRow,
    Row,
    make_key,
)

SourceRow = ImageRow | PairRow | ComparisonRow | PreferenceRow
ReadResult = SourceRow | Dropped | Failed
"""Row of an item, or the reason why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Declaration of one kind of source."""

    kind: str
    """Text before the colon: "folder" in ``folder:PATH``."""
    about: str
    """Description in one line."""
    example: str
    """Example of a source on the command line."""
    details: str = ""
    """Layout of its files and the fields that are read, for ``pairwright sources KIND``."""
    list_items: Callable[[SourceConfig, int | None], Iterator[ItemRow]]
    """``list_items(config, limit)`` yields the first ``limit`` items of the source, or all, in its
    own order, without reading pixels. It raises ``SourceError`` if the source does not exist or is
    empty."""
    read_items: Callable[[Sequence[ItemRow], SourceConfig], Iterator[ReadResult]]
    """``read_items(items, config)`` yields all rows of the items, all of one item before the next;
    for an item that cannot be read completely, one ``Dropped`` or ``Failed`` only."""
    brings: tuple[type[Row], ...] = ()
    """Types of rows that it yields in addition to images; the stages that would make these do not
    run."""
    pair_up: Callable[[ItemRow, Sequence[ImageRow]], Iterator[PairRow | Dropped]] | None = None
    """Function that makes an item's pairs from its images' rows, in any order and without pixels,
    for a source whose images are expensive to make; ``None``: ``read_items`` yields them."""
    recognises: Callable[[str], bool] = lambda _: False
    """Function that returns whether a path without a kind is one of its sources; it may read names,
    not large files."""
    has_texts: Callable[[str], bool] = lambda _: False
    """Function that returns whether a source at a path has people's texts about differences; a
    build then describes pairs by these, unless told otherwise."""
    has_graphs: bool = False
    """Whether its images have scene graphs, from which texts are composed."""
    needs_path: bool = True
    """Whether a path must follow the colon."""
    rows_per_shard: int = 64
    """Items of a shard: at most tens of seconds of work."""


class RefusedEntryError(SourceError):
    """Unusable item: a constant ``reason``, and particulars in ``detail``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def list_item(
    kind: str,
    name: str,
    locator: dict[str, Any],
    refused: RefusedEntryError | None = None,
) -> ItemRow:
    """Return an item of a source; its key hashes the locator, which has its path, size and time."""
    if refused is not None:
        locator = {**locator, "refused": refused.reason, "detail": refused.detail}
    # ASCII, since Parquet's strings cannot hold the surrogates of undecodable bytes.
    encoded = json.dumps(locator, ensure_ascii=True, sort_keys=True)
    key = make_key(kind, encoded)
    return ItemRow(key=key, source_key=key, subject=key, name=name, locator=encoded)


def locate(item: ItemRow) -> dict[str, Any]:
    """Return the locator of an item; ``RefusedEntryError`` if it was refused when listed."""
    locator = json.loads(item.locator)
    if "refused" in locator:
        raise RefusedEntryError(locator["refused"], locator["detail"])
    return locator


def read_one(
    item: ItemRow, read: Callable[..., Iterable[SourceRow]], *args: Any
) -> Sequence[ReadResult]:
    """Return ``read(item, *args)``; if it raises, one row with the reason."""
    try:
        return list(read(item, *args))
    except (RefusedEntryError, OSError) as error:
        return [make_refusal(item, error)]


def make_refusal(item: ItemRow, error: Exception) -> Dropped | Failed:
    """Return the row of an unread item: dropped by a rule, or failed if a retry may succeed."""
    if isinstance(error, RefusedEntryError):
        detail = f"{item.name}: {error.detail}" if error.detail else item.name
        return Dropped(source_key=item.key, reason=error.reason, detail=detail)
    detail = f"{item.name}: {describe_error(error)}"
    return Failed(source_key=item.key, reason="I/O error", detail=detail)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error, without secrets, shortened and escaped."""
    message = hide_secrets(f"{type(error).__name__}: {error}")
    return escape_name(message[:300])


def escape_name(text: str) -> str:
    """Return a printable name: undecodable bytes as ``\\xNN``, control characters escaped."""
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored; lone surrogates, which JSON can spell, cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
