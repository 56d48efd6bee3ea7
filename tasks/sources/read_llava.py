"""Read LLaVA's training data as conversations: a JSON list of ``image`` and ``conversations``.

``image`` is a path, a list of paths, or absent; paths are relative to the file's folder, or to the
one above it, as in our own exports, and never lead out of it. A system message, or ShareGPT's field
``system``, may come first.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, PreferenceRow, Turn, make_key
from pairwright.tasks.images.decode import RefusedImageError, probe_image
from pairwright.tasks.sources.annotations import check_record, load_json
from pairwright.tasks.sources.cad_inst import read_turns
from pairwright.tasks.sources.read_entry import MISSING, check_path, read_below
from pairwright.tasks.sources.reader import RefusedEntryError, escape_name

KIND = "llava"
MAX_IMAGES = 16
"""Maximum images of one conversation."""


def read_llava(path: Path, *, seed: int) -> Iterator[PreferenceRow | Dropped]:
    """Yield a file's conversations as training rows, or why they are refused, in a random order."""
    records: list[object] = load_json(path, list)
    order = np.random.default_rng(seed).permutation(len(records))
    for number in order.tolist():
        key = f"{path.name}#{number}"
        try:
            yield _read(check_record(records[number]), key, path.parent)
        except RefusedEntryError as refused:
            detail = _name_record(records[number], refused.detail)
            yield Dropped(source_key=key, reason=refused.reason, detail=detail)
        except OSError as error:
            raise SourceError(f"{path}#{number}: an image cannot be read: {error}") from error


def _name_record(record: object, detail: str) -> str:
    """Return a detail that begins with the record's id, if it has one."""
    name = record.get("id") if isinstance(record, dict) else None
    if isinstance(name, str | int):
        return f"{escape_name(str(name)[:200])}: {detail}".removesuffix(": ")
    return detail


def _read(record: dict[str, Any], key: str, folder: Path) -> PreferenceRow:
    names = record.get("image") or record.get("images") or []
    if not isinstance(names, list):
        names = [names]
    if len(names) > MAX_IMAGES:
        raise RefusedEntryError("too many images", f"{len(names)}, at most {MAX_IMAGES}")
    texts = read_turns(record, with_system=True)
    turns = [Turn(role=role, text=text) for role, text in texts]
    system = record.get("system")
    if isinstance(system, str) and system.strip() and turns[0].role != "system":
        turns.insert(0, Turn(role="system", text=system.strip()))
    while turns[-1].role != "assistant":
        turns.pop()
    images = tuple(_image(folder, check_path(name)) for name in names)
    return PreferenceRow(
        key=key,
        source_key=key,
        subject=key,
        prompt=tuple(turns[:-1]),
        images=images,
        image_keys=tuple(map(make_key, images)),
        chosen=turns[-1].text,
        chosen_model=KIND,
        split="train",
        sources=(KIND,) * len(images),
        licences=("",) * len(images),
    )


def _image(folder: Path, name: str) -> bytes:
    limits = ImagesConfig()
    try:
        data = read_below(folder, name, limits)
    except RefusedEntryError as refused:
        if refused.reason != MISSING:
            raise
        data = read_below(folder.parent, name, limits)
    try:
        probe_image(data, limits)
    except RefusedImageError as refused:
        raise RefusedEntryError(refused.reason, f"{name}: {refused.detail}") from refused
    return data
