"""Verify the weights that models look for, fetching them first if allowed: the engine of `pairwright fetch`.

Only its stages know a build's files: each stage with a ``pin`` looks for them. An inventory records each lookup, and
returns an empty file for what is missing, so that the stage goes on to its next file. Files of the Hub are verified by
their names in its cache: the SHA-256 of a large one, git's SHA-1 of a small one.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.models.weights import (
    HubFiles,
    PublishedFile,
    Wanted,
    fetch_from_hub,
    fetch_published,
    find_cached,
    find_fault,
    finder,
    weights_folder,
)

SHA256, GIT = "SHA-256", "git SHA-1"
SERVED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")  # files that vLLM reads
NOT_SERVED = ("*/*", "consolidated*")  # the same weights in other formats
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Verification of a file of weights."""

    field: str  # section of the profile that needs it
    model: str  # repository with commit, or host of the address
    file: str
    size: int = 0
    how: str = ""  # hash by which it was verified, in words
    folder: str = ""  # its cache; empty: none
    fault: str = ""  # why it cannot be used; empty: it can


@dataclass(kw_only=True)
class Inventory:
    """Weights that were looked for, in order, each verified."""

    fetch: bool
    say: Callable[[str], None]
    folder: Path  # of stand-ins for missing files
    found: dict[Wanted, list[Verified]] = field(default_factory=dict[Wanted, list[Verified]])
    lacking: bool = False  # whether a file is missing or damaged

    def find(self, wanted: Wanted) -> Path:
        """Return the path of weights, or of their stand-in."""
        origin, *names = _name(wanted)
        if wanted not in self.found:
            self.say(f"{wanted.field}: {origin} {', '.join(names)}")
            self.found[wanted] = verify(wanted, fetch=self.fetch)
        if not any(file.fault for file in self.found[wanted]):
            found = find_cached(wanted) if isinstance(wanted, HubFiles) else weights_folder() / wanted.name
            assert found
            return found
        self.lacking = True
        paths = [self.folder / str(len(self.found)) / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return paths[-1]


@contextmanager
def taking_inventory(*, fetch: bool, say: Callable[[str], None]) -> Generator[Inventory]:
    """Yield the inventory of lookups within the block; with ``fetch`` missing or damaged files are fetched."""
    with tempfile.TemporaryDirectory(prefix="pairwright-") as folder:
        inventory = Inventory(fetch=fetch, say=say, folder=Path(folder))
        token = finder.set(inventory.find)
        try:
            yield inventory
        finally:
            finder.reset(token)


def _name(wanted: Wanted) -> tuple[str, ...]:
    """Return the repository or host of weights, and their files' names."""
    if isinstance(wanted, HubFiles):
        return wanted.repository, *wanted.names
    return wanted.url.partition("://")[2].partition("/")[0], wanted.name


def verify(wanted: Wanted, *, fetch: bool) -> list[Verified]:
    """Return the verification of each file, faults included."""
    origin, *names = _name(wanted)
    try:
        if isinstance(wanted, PublishedFile):
            return [_verify_published(wanted, origin, fetch=fetch)]
        weights = find_cached(wanted) or (fetch_from_hub(wanted) if fetch else None)
        if not weights:
            from huggingface_hub import constants

            where = f"looked in {constants.HF_HUB_CACHE}"
            raise ModelError(f"{wanted.field}: {origin} is not on this machine, or not all of it: {where}")
        paths = [*(weights.parent / name for name in wanted.beside), weights]
        if fetch and _delete_damaged(paths):
            fetch_from_hub(wanted)
        return list(_verify_blobs(wanted.field, origin, paths))
    except (ModelError, OSError) as error:
        return [Verified(field=wanted.field, model=origin, file=", ".join(names), fault=str(error))]


def _verify_published(file: PublishedFile, origin: str, *, fetch: bool) -> Verified:
    path = weights_folder() / file.name
    fault = find_fault(file)
    if fault and fetch:
        path.unlink(missing_ok=True)
        fetch_published(file)
        fault = ""
    return Verified(
        field=file.field,
        model=origin,
        file=file.name,
        size=path.stat().st_size if path.is_file() else 0,
        how="SHA-256, published" if file.sha256 else "not verified: no hash of it is published",
        folder=str(path.parent) if path.is_file() else "",
        fault=f"{file.field}: {fault}" if fault else "",
    )


def verify_served(chat: ChatConfig, name: str, *, fetch: bool) -> list[Verified]:
    """Return the verification of each file that vLLM loads of a model of the Hub; ``name``: the model's field."""
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {"allow_patterns": SERVED, "ignore_patterns": NOT_SERVED, "local_files_only": not fetch}
    find = partial(snapshot_download, chat.model, revision=chat.revision or None, **options)
    try:
        folder = Path(find())
        if fetch and _delete_damaged(folder.iterdir()):
            find()
        index = json.loads((folder / INDEX).read_bytes()) if (folder / INDEX).is_file() else {"weight_map": {}}
        parts = {folder / part for part in index["weight_map"].values()}
        return list(_verify_blobs(name, chat.model, sorted({*folder.iterdir(), *parts})))
    except Exception as error:  # noqa: BLE001 - of the Hub's client, the network, an index of another form
        said = "could not be fetched" if fetch else "is not on this machine"
        return [Verified(field=name, model=chat.model, file="", fault=f"{name}.model: {chat.model} {said}: {error}")]


def _delete_damaged(paths: Iterable[Path]) -> bool:
    """Delete the damaged files of the Hub's cache; return whether there were any."""
    damaged = [path for path in paths if verify_blob(path)[1]]
    for path in damaged:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
    return bool(damaged)


def _verify_blobs(name: str, repository: str, paths: Iterable[Path]) -> Iterator[Verified]:
    for path in paths:
        kind, fault = verify_blob(path)
        yield Verified(
            field=name,
            model=f"{repository} {path.parent.name[:12]}",
            file=path.name,
            size=path.stat().st_size if path.is_file() else 0,
            how=kind or "not verified: no hash of it is kept here",
            folder=str(path.parents[3]) if path.is_file() else "",
            fault=f"{name}: {path} {fault}" if fault else "",
        )


def verify_blob(path: Path) -> tuple[str, str]:
    """Return by which hash a file of the Hub's cache could be verified (empty: by none), and what is wrong with it."""
    blob = path.resolve()
    if not blob.is_file():
        return "", "is not on this machine"
    kind = {64: SHA256, 40: GIT}.get(len(blob.name), "") if re.fullmatch("[0-9a-f]+", blob.name) else ""
    if not kind:
        return "", ""
    made = hashlib.sha256() if kind == SHA256 else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)  # noqa: S324
    with blob.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: made).hexdigest()
    return kind, "" if found == blob.name else f"is damaged: its {kind} is {found}, not {blob.name}"
