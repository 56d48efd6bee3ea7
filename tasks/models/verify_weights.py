"""Verify the weights that models look for: the engine of `pairwright fetch`.

Only its stages know a build's files: each stage with a ``pin`` looks for them. Files of the Hub are
verified by their names in its cache: the SHA-256 of a large one, git's SHA-1 of a small one.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pairwright.schemas.errors import ModelError
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.models.weights import FoundFile, lookups

SHA256 = "SHA-256"
GIT = "git SHA-1"
DIGITS = {64: SHA256, 40: GIT}
"""Hash of a blob in the Hub's cache, by the length of its name."""
SERVED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Files that vLLM reads."""
NOT_SERVED = ("*/*", "consolidated*")
"""The same weights in other formats."""
CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Verification of a file of weights."""

    field: str
    """Section of the profile that needs it."""
    model: str
    """Repository with commit, or host of the address."""
    file: str
    size: int = 0
    how: str = ""
    """Hash by which it was verified, in words."""
    folder: str = ""
    """Its cache; empty: none."""
    fault: str = ""
    """Why it cannot be used; empty: it can."""


def verify_lookups(find: Callable[[], object], *, fetch: bool) -> tuple[list[Verified], str]:
    """Return the verification of each file that a function looks for, and its error, if any.

    With ``fetch`` damaged files are deleted and looked for again, so that they are fetched.
    """
    files: list[FoundFile] = []
    problem = ""
    token = lookups.set(files)
    try:
        find()
    except ModelError as error:
        problem = str(error)
    finally:
        lookups.reset(token)
    if fetch and _delete_damaged(file.path for file in files if not file.how):
        return verify_lookups(find, fetch=False)
    return list(dict.fromkeys(map(_verify, files))), problem


def verify_served(chat: ChatConfig, name: str, *, fetch: bool) -> list[Verified]:
    """Return the verification of each file that vLLM loads of a model of the Hub.

    ``name`` is the model's field.
    """
    find = partial(_find_snapshot, chat, fetch=fetch)
    try:
        folder = find()
        if fetch and _delete_damaged(folder.iterdir()):
            find()
        return [_verify(FoundFile(name, chat.model, path)) for path in _list_files(folder)]
    except Exception as error:  # noqa: BLE001 - of the Hub's client, the network, an index of another form
        problem = "could not be fetched" if fetch else "is not on this machine"
        fault = f"{name}.model: {chat.model} {problem}: {error}"
        return [Verified(field=name, model=chat.model, file="", fault=fault)]


def find_missing_served(chat: ChatConfig) -> str:
    """Return what the Hub's cache lacks of a model that vLLM loads; empty: nothing.

    Files are not verified here. Names that are none of the Hub's are left to vLLM.
    """
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    revision = chat.revision or None
    try:
        folder = _find_snapshot(chat, fetch=False)
        paths = _list_files(folder)
    except HFValidationError:
        return ""
    except Exception:  # noqa: BLE001 - of the Hub's client, an index of another form
        part = "nothing of it"
        if isinstance(try_to_load_from_cache(chat.model, CONFIG, revision=revision), str):
            part = "only a part of it"
        return f"{part} is in {constants.HF_HUB_CACHE}"
    if not any(path.suffix in WEIGHTS for path in paths):
        return f"{folder} holds no weights"
    absent = [path for path in paths if not path.is_file()]
    return f"{absent[0]} is absent" if absent else ""


def _find_snapshot(chat: ChatConfig, *, fetch: bool) -> Path:
    """Return the folder of the Hub's cache with the files that vLLM reads."""
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        chat.model,
        revision=chat.revision or None,
        allow_patterns=list(SERVED),
        ignore_patterns=list(NOT_SERVED),
        local_files_only=not fetch,
    )
    return Path(folder)


def _list_files(folder: Path) -> list[Path]:
    """Return the files of a snapshot, and those that its index names."""
    paths = set(folder.iterdir())
    index = folder / INDEX
    if index.is_file():
        parts = json.loads(index.read_bytes())["weight_map"].values()
        paths.update(folder / part for part in parts)
    return sorted(paths)


def _delete_damaged(paths: Iterable[Path]) -> bool:
    """Delete the damaged files of the Hub's cache; return whether there were any."""
    damaged = [path for path in paths if verify_blob(path)[1]]
    for path in damaged:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
    return bool(damaged)


def _verify(file: FoundFile) -> Verified:
    """Return the verification of a file, which is done already for a published one."""
    if file.how:
        return _describe(file, file.origin, folder=file.path.parent, how=file.how, fault="")
    how, fault = verify_blob(file.path)
    model = f"{file.origin} {file.path.parent.name[:12]}"
    return _describe(file, model, folder=file.path.parents[3], how=how, fault=fault)


def _describe(file: FoundFile, model: str, *, folder: Path, how: str, fault: str) -> Verified:
    path = file.path
    exists = path.is_file()
    return Verified(
        field=file.field,
        model=model,
        file=path.name,
        size=path.stat().st_size if exists else 0,
        how=how or "not verified: no hash of it is kept here",
        folder=str(folder) if exists else "",
        fault=f"{file.field}: {path} {fault}" if fault else "",
    )


def verify_blob(path: Path) -> tuple[str, str]:
    """Return the hash that verifies a file of the Hub's cache (empty: none), and its fault."""
    blob = path.resolve()
    if not blob.is_file():
        return "", "is not on this machine"
    kind = DIGITS.get(len(blob.name), "")
    if not kind or not re.fullmatch("[0-9a-f]+", blob.name):
        return "", ""
    digest = hashlib.sha256()
    if kind == GIT:
        digest = hashlib.sha1(b"blob %d\0" % blob.stat().st_size)  # noqa: S324
    with blob.open("rb") as stream:
        actual = hashlib.file_digest(stream, lambda: digest).hexdigest()
    if actual == blob.name:
        return kind, ""
    return kind, f"is damaged: its {kind} is {actual}, not {blob.name}"
