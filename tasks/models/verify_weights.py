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
from typing import Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.models.weights import FoundFile, lookups

SHA256, GIT = "SHA-256", "git SHA-1"
SERVED = (
    "*.safetensors",
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
    "*.tiktoken",
)  # files that vLLM reads
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


def verify_lookups(find: Callable[[], object], *, fetch: bool) -> tuple[list[Verified], str]:
    """Return the verification of each file that a function looks for, and the error that ended it, if any.

    With ``fetch`` damaged files are deleted and looked for again, so that they are fetched.
    """
    found: list[FoundFile] = []
    token, problem = lookups.set(found), ""
    try:
        find()
    except ModelError as error:
        problem = str(error)
    finally:
        lookups.reset(token)
    if fetch and _delete_damaged(file.path for file in found if not file.how):
        return verify_lookups(find, fetch=False)
    return list(dict.fromkeys(map(_verify, found))), problem


def verify_served(chat: ChatConfig, name: str, *, fetch: bool) -> list[Verified]:
    """Return the verification of each file that vLLM loads of a model of the Hub; ``name``: the model's field."""
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {
        "allow_patterns": SERVED,
        "ignore_patterns": NOT_SERVED,
        "local_files_only": not fetch,
    }
    find = partial(snapshot_download, chat.model, revision=chat.revision or None, **options)
    try:
        folder = Path(find())
        if fetch and _delete_damaged(folder.iterdir()):
            find()
        index = (
            json.loads((folder / INDEX).read_bytes())
            if (folder / INDEX).is_file()
            else {"weight_map": {}}
        )
        paths = sorted(
            {*folder.iterdir(), *(folder / part for part in index["weight_map"].values())}
        )
        return [_verify(FoundFile(name, chat.model, path)) for path in paths]
    except Exception as error:  # noqa: BLE001 - of the Hub's client, the network, an index of another form
        said = "could not be fetched" if fetch else "is not on this machine"
        return [
            Verified(
                field=name,
                model=chat.model,
                file="",
                fault=f"{name}.model: {chat.model} {said}: {error}",
            )
        ]


def _delete_damaged(paths: Iterable[Path]) -> bool:
    """Delete the damaged files of the Hub's cache; return whether there were any."""
    damaged = [path for path in paths if verify_blob(path)[1]]
    for path in damaged:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
    return bool(damaged)


def _verify(file: FoundFile) -> Verified:
    path, commit = file.path, "" if file.how else f" {file.path.parent.name[:12]}"
    kind, fault = (file.how, "") if file.how else verify_blob(path)
    return Verified(
        field=file.field,
        model=file.origin + commit,
        file=path.name,
        size=path.stat().st_size if path.is_file() else 0,
        how=kind or "not verified: no hash of it is kept here",
        folder=str(path.parent if file.how else path.parents[3]) if path.is_file() else "",
        fault=f"{file.field}: {path} {fault}" if fault else "",
    )


def verify_blob(path: Path) -> tuple[str, str]:
    """Return by which hash a file of the Hub's cache could be verified (empty: by none), and what is wrong with it."""
    blob = path.resolve()
    if not blob.is_file():
        return "", "is not on this machine"
    kind = (
        {64: SHA256, 40: GIT}.get(len(blob.name), "")
        if re.fullmatch("[0-9a-f]+", blob.name)
        else ""
    )
    if not kind:
        return "", ""
    made = hashlib.sha256() if kind == SHA256 else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)  # noqa: S324
    with blob.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: made).hexdigest()
    return kind, "" if found == blob.name else f"is damaged: its {kind} is {found}, not {blob.name}"
