"""Read shards by WebDataset's naming rules: adjacent members of one name up to the first dot are a sample."""

import json
import re
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.tasks.export.sample import (
    PLACE,
    BrokenRowError,
    Sample,
    as_parts,
    check_answer,
    decoded,
    naming_row,
    need,
)

NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
IMAGE = re.compile(r"(image|rejected)([1-9]\d*)\.(png|jpg|webp|gif|bmp|tiff)")


def read_samples(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the samples of every shard.

    Raises:
        BrokenRowError: a sample is not what its members should be.
    """
    for path in sorted((folder / "data").glob("*.tar")):
        seen: set[str] = set()
        for key, members in groupby(_members(path), key=lambda member: member[0]):
            where = f"data/{path.name}, {key}"
            need(true=key not in seen, where=where, why="its members are not adjacent")
            seen.add(key)
            yield _sample(where, list(members))


def _members(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield each member's sample, what follows the first dot, and its bytes."""
    with naming_row(f"data/{path.name}", "no tar"), tarfile.open(path) as tar:
        for member in tar:
            name = NAME.fullmatch(member.name)
            file = tar.extractfile(member)
            if name is None or file is None:
                raise BrokenRowError(f"data/{path.name}, {member.name}", "is no member of a sample")
            yield name[1], name[2], file.read()


def _sample(where: str, members: list[tuple[str, str, bytes]]) -> Sample:
    suffixes = [suffix for _, suffix, _ in members]
    need(true=len(set(suffixes)) == len(suffixes), where=where, why="two members have one name")
    need(true="json" in suffixes, where=where, why="has no json")
    found = {suffix: data for _, suffix, data in members}
    with naming_row(where, "no JSON"):
        told = json.loads(found.pop("json"))
    named = {suffix: IMAGE.fullmatch(suffix) for suffix in found}
    strange = next((suffix for suffix, name in named.items() if name is None), "")
    need(true=not strange, where=where, why=f"{strange} is no member that readers decode")
    shown = {name[1] + name[2]: decoded(found[suffix], where) for suffix, name in named.items() if name}
    images = [shown[f"image{n}"] for n in range(1, len(shown) + 1) if f"image{n}" in shown]
    need(true=len(images) == len(told["image_keys"]), where=where, why=f"{len(images)} images")
    prompt: list[dict[str, Any]] = [
        {"role": turn["role"], "content": as_parts(turn["text"])} for turn in told["prompt"]
    ]
    if not any(PLACE in turn["text"] for turn in told["prompt"]):
        first = next(message for message in prompt if message["role"] == "user")
        first["content"][:0] = [{"type": "image"} for _ in images]
    answers = [check_answer(told["chosen"], where, "chosen"), *([told["rejected"]] if told["rejected"] else [])]
    return Sample(where=where, messages=prompt, images=images, answers=answers)
