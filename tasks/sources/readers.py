"""All readers, and the choice of the reader of a source."""

from pathlib import Path

from pairwright.schemas.addresses import check_address
from pairwright.schemas.errors import SourceError
from pairwright.schemas.plugins import Registry
from pairwright.schemas.suggest import suggest
from pairwright.tasks.sources import (
    cad_inst,
    folder,
    folder_pairs,
    hub_tables,
    jsonl,
    localized_narratives,
    pair_folders,
    pair_tables,
    planted,
    scenes,
    video,
    webdataset,
)
from pairwright.tasks.sources.reader import Reader

# The first that recognises a source reads it: Localized Narratives, also JSON Lines, must precede
# manifests.
_MODULES = (
    folder,
    planted,
    scenes,
    video,
    localized_narratives,
    webdataset,
    jsonl,
    cad_inst,
    pair_folders,
    folder_pairs,
    hub_tables,
    pair_tables,
)


def _list_readers() -> list[Reader]:
    readers: list[Reader] = []
    for module in _MODULES:
        readers += [value for value in vars(module).values() if isinstance(value, Reader)]
    return readers


READERS = Registry("sources", Reader, _list_readers())
"""A plugin's reader is used only if its kind is named."""


def recognise_source(text: str) -> str:
    """Return a source as ``kind:path``, with an absolute path, so that builds resume anywhere."""
    check_address(text)
    kind, colon, path = text.partition(":")
    reader = READERS.get(kind)
    if reader and not reader.needs_path and (colon or not Path(text).exists()):
        if path:
            raise SourceError(f"{text}: {kind} are rendered, not read from a path; write `{kind}:`")
        return f"{kind}:"
    if reader and colon:
        if not path:
            raise SourceError(f"{text!r}: has no path; write it like {reader.example}")
        return f"{kind}:{_absolute(path)}"
    if colon and "://" not in text and not Path(text).exists():
        kinds = f"{', '.join(READERS)} (`pairwright sources` shows an example of each)"
        raise SourceError(
            f"{text}: no such file or folder, and {kind!r} is not a kind of source; "
            f"choose from {kinds}"
        )
    if not text:
        raise SourceError("the source is empty: name a folder, or kind:path")
    path = _absolute(text)
    return f"{_recognise_path(path)}:{path}"


def _recognise_path(path: str) -> str:
    """Return the kind of a path without one."""
    for kind, reader in READERS.data.items():
        if reader.recognises(path):
            return kind
    return "folder"


def explain_reader(kind: str) -> str:
    """Return the details of a reader: the layout of its files, and an example."""
    if kind not in READERS:
        raise SourceError(f"{kind}: no such kind of source; {suggest(kind, sorted(READERS))}")
    reader = READERS[kind]
    details = reader.details or reader.list_items.__doc__ or ""
    example = f"Example: pairwright build {reader.example} --out dataset"
    return f"{kind}: {reader.about}\n\n{details.strip()}\n\n{example}"


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())
