"""Verify the weights that models look for, fetching them first if allowed: the engine of `pairwright fetch`.

Only its stages know a build's files: each stage with a ``pin`` looks for them. An inventory records each lookup, and
returns an empty file for what is missing, so that the stage goes on to its next file. Files of the Hub are verified by
their names in its cache: the SHA-256 of a large one, git's SHA-1 of a small one.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
    is_local,
    weights_folder,
)

SHA256, GIT = "SHA-256", "git SHA-1"
SERVED = (".json", ".txt", ".model", ".jinja", ".tiktoken")  # endings of the files that vLLM reads beside weights
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
        if wanted not in self.found:
            self.say(f"{wanted.field}: {wanted.origin} {', '.join(wanted.names)}")
            self.found[wanted] = verify(wanted, fetch=self.fetch)
        if not any(file.fault for file in self.found[wanted]):
            found = find_cached(wanted) if isinstance(wanted, HubFiles) else weights_folder() / wanted.name
            assert found
            return found
        self.lacking = True
        paths = [self.folder / str(len(self.found)) / name for name in wanted.names]
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


def verify(wanted: Wanted, *, fetch: bool) -> list[Verified]:
    """Return the verification of each file, faults included."""
    try:
        if isinstance(wanted, PublishedFile):
            return [_verify_published(wanted, fetch=fetch)]
        return list(_verify_on_hub(wanted, fetch=fetch))
    except (ModelError, OSError) as error:
        return [Verified(field=wanted.field, model=wanted.origin, file=", ".join(wanted.names), fault=str(error))]


def _verify_published(file: PublishedFile, *, fetch: bool) -> Verified:
    path = weights_folder() / file.name
    fault = find_fault(file)
    if fault and fetch:
        path.unlink(missing_ok=True)
        fetch_published(file)
        fault = ""
    return Verified(
        field=file.field,
        model=file.origin,
        file=file.name,
        size=path.stat().st_size if path.is_file() else 0,
        how="SHA-256, published" if file.sha256 else "not verified: no hash of it is published",
        folder=str(path.parent) if path.is_file() else "",
        fault=f"{file.field}: {fault}" if fault else "",
    )


def _verify_on_hub(files: HubFiles, *, fetch: bool) -> Iterator[Verified]:
    paths = _paths_on_hub(files, fetch=fetch)
    damaged = [path for path in paths if verify_blob(path)[1]]
    if damaged and fetch:
        for path in damaged:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
        paths = _paths_on_hub(files, fetch=True)
    folder = paths[0].parent if files.beside else paths[-1].parent
    for path in paths:
        kind, fault = verify_blob(path)
        yield Verified(
            field=files.field,
            model=f"{files.repository} {folder.name[:12]}",
            file=path.relative_to(folder).as_posix(),
            size=path.stat().st_size,
            how=kind or "not verified: no hash of it is kept here",
            folder=str(folder.parents[2]),
            fault=f"{files.field}: {path} is damaged: {fault}" if fault else "",
        )


def _paths_on_hub(files: HubFiles, *, fetch: bool) -> list[Path]:
    weights = find_cached(files) or (fetch_from_hub(files) if fetch else None)
    if not weights:
        from huggingface_hub import constants

        where = f"looked in {constants.HF_HUB_CACHE}"
        raise ModelError(f"{files.field}: {files.repository} is not on this machine, or not all of it: {where}")
    return [*(weights.parent / name for name in files.beside), weights]


def verify_blob(path: Path) -> tuple[str, str]:
    """Return by which hash a file of the Hub's cache could be verified (empty: by none), and what is wrong with it."""
    blob = path.resolve()
    kind = {64: SHA256, 40: GIT}.get(len(blob.name), "") if re.fullmatch("[0-9a-f]+", blob.name) else ""
    if not kind:
        return "", ""
    made = hashlib.sha256() if kind == SHA256 else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)  # noqa: S324
    with blob.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: made).hexdigest()
    return kind, "" if found == blob.name else f"its {kind} is {found}, not {blob.name}"


def is_on_hub(chat: ChatConfig) -> bool:
    """Say whether vLLM loads a model of the Hub: neither a local folder's nor a server's own."""
    return bool(chat.launch and chat.model) and not is_local(chat.model)


def list_on_hub(chat: ChatConfig, field: str) -> tuple[HubFiles, int]:
    """Return the files that vLLM loads of a model, and their size in bytes."""
    from huggingface_hub import HfApi

    try:
        said = HfApi().model_info(chat.model, revision=chat.revision or None, files_metadata=True)
    except Exception as error:  # the Hub's client raises its own and httpx2's errors
        raise ModelError(f"{field}.model: {chat.model} cannot be listed on the Hub: {error}") from error
    sizes = {file.rfilename: file.size or 0 for file in said.siblings or []}
    files = _select_files(chat, field, list(sizes))
    return files, sum(sizes[name] for name in files.names)


def list_here(chat: ChatConfig, field: str) -> HubFiles:
    """Return the files of a locally cached model: those of its index, and those beside it."""
    from huggingface_hub import constants, try_to_load_from_cache

    config = try_to_load_from_cache(chat.model, "config.json", revision=chat.revision or None)
    if not isinstance(config, str):
        where = Path(constants.HF_HUB_CACHE) / f"models--{chat.model.replace('/', '--')}"
        raise ModelError(
            f"{field}.model: {chat.model} is not on this machine: looked in {where}. Fetch it with `pairwright fetch "
            f"--served` and the same --profile and --set, or let vLLM fetch it: --set {field}.launch.download=true"
        )
    folder = Path(config).parent
    try:
        index = json.loads((folder / INDEX).read_bytes()) if (folder / INDEX).is_file() else {}
        indexed = set(index.get("weight_map", {}).values())
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{field}.model: {folder / INDEX} invalid index of weights: {error}") from error
    return _select_files(chat, field, sorted(indexed | {file.name for file in folder.iterdir()}))


def _select_files(chat: ChatConfig, field: str, names: Sequence[str]) -> HubFiles:
    """Select a repository's files: safetensors if any, without weights in other formats."""
    top = sorted(name for name in names if "/" not in name)
    safe = [name for name in top if name.endswith(".safetensors") and not name.startswith("consolidated")]
    weights = safe or [name for name in top if name.startswith("pytorch_model") and name.endswith(".bin")]
    if not weights:
        raise ModelError(f"{field}.model: {chat.model} has no weights that vLLM can load")
    others = [name for name in top if name.endswith(SERVED)]
    return HubFiles(
        field=f"{field}.launch",
        repository=chat.model,
        revision=chat.revision,
        weights=(weights[0],),
        beside=(*others, *weights[1:]),
    )
