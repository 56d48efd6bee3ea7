"""Write WebDataset shards: tars in which members with one name, up to the first dot, are a preference.

``KEY.image1.png`` and ``KEY.image2.png`` are the images, ``KEY.rejected1.png`` ... the rejected ones, ``KEY.json`` the
rest. Members have no time and no owner, so the same rows give the same bytes. Shards are read back by WebDataset's
naming rules: adjacent members of one name are a sample.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import Form, RowWriter, Setting, name_images
from pairwright.tasks.export.sample import (
    PLACE,
    BrokenRowError,
    Sample,
    as_messages,
    check_answer,
    decoded,
    naming_row,
    need,
)

BLOCK = 512
TOLD = (
    *("chosen", "chosen_model", "rejected", "rejected_maker", "rejected_note", "rejected_image_maker"),
    *("kind", "description", "claims", "rejected_claims"),
    *("key", "image_keys", "component", "split", "sources", "licences"),
)
"""Fields of a row that the JSON has unchanged, beside its lists."""
NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
IMAGE = re.compile(r"(image|rejected)([1-9]\d*)\.(png|jpg|webp|gif|bmp|tiff)")


def _opens(folder: Path, setting: Setting) -> AbstractContextManager[RowWriter]:
    return closing(RowWriter(_to_records, lambda split: _Tars(folder / "data", split, setting.bytes_per_file)))


def _to_records(row: PreferenceRow) -> list[tuple[str, dict[str, bytes]]]:
    lists = {name: [asdict(one) for one in getattr(row, name)] for name in ("prompt", "negatives", "removal_scores")}
    told = {"pair": row.subject, **{name: getattr(row, name) for name in TOLD}, **lists}
    members = {**name_images(row), "json": json.dumps(told, ensure_ascii=False).encode()}
    return [(row.split, {f"{row.key}.{suffix}": data for suffix, data in members.items()})]


class _Tars:
    """Members of one split's rows, in tars of limited size."""

    def __init__(self, folder: Path, split: str, limit: int) -> None:
        self.rows = self.size_bytes = 0
        self._folder, self._split, self._limit = folder, split, limit
        self._number = self._in_file = 0
        self._open: tarfile.TarFile | None = None

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._split}-{self._number:06d}.tar"

    def write(self, record: dict[str, bytes]) -> None:
        size = sum(2 * BLOCK + len(data) for data in record.values())
        if self._open and self._in_file + size > self._limit:
            self.close()
        if self._open is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open = tarfile.open(self._path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 - closed later
        for name, data in record.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            self._open.addfile(info, io.BytesIO(data))
        self._in_file += size
        self.rows += 1

    def close(self) -> None:
        if self._open:
            self._open.close()
            self.size_bytes += self._path.stat().st_size
            self._number += 1
        self._open, self._in_file = None, 0


def _check(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    for path in sorted((folder / "data").glob("*.tar")):
        seen: set[str] = set()
        for key, members in groupby(_members(path), key=lambda member: member[0]):
            where = f"data/{path.name}, {key}"
            need(true=key not in seen, where=where, why="its members are not adjacent")
            seen.add(key)
            yield _sample(where, [(suffix, data) for _, suffix, data in members])


def _members(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield each member's sample, the name after the first dot, and its bytes."""
    with naming_row(f"data/{path.name}", "no tar"), tarfile.open(path) as tar:
        for member in tar:
            name = NAME.fullmatch(member.name)
            file = tar.extractfile(member)
            if name is None or file is None:
                raise BrokenRowError(f"data/{path.name}, {member.name}: is not a member of a sample")
            yield name[1], name[2], file.read()


def _sample(where: str, members: list[tuple[str, bytes]]) -> Sample:
    found = dict(members)
    need(true=len(found) == len(members), where=where, why="two members have one name")
    need(true="json" in found, where=where, why="has no json")
    with naming_row(where, "no JSON"):
        told = json.loads(found.pop("json"))
    named = {suffix: IMAGE.fullmatch(suffix) for suffix in found}
    strange = next((suffix for suffix, name in named.items() if name is None), "")
    need(true=not strange, where=where, why=f"{strange} is not a member that readers decode")
    shown = {name[1] + name[2]: decoded(found[suffix], where) for suffix, name in named.items() if name}
    images = [shown[f"image{n}"] for n in range(1, len(shown) + 1) if f"image{n}" in shown]
    need(true=len(images) == len(told["image_keys"]), where=where, why=f"{len(images)} images")
    prompt = as_messages((turn["role"], turn["text"]) for turn in told["prompt"])
    if not any(PLACE in turn["text"] for turn in told["prompt"]):
        first = next(message for message in prompt if message["role"] == "user")
        first["content"][:0] = [{"type": "image"} for _ in images]
    answers = [check_answer(told["chosen"], where, "chosen"), *([told["rejected"]] if told["rejected"] else [])]
    return Sample(where=where, messages=prompt, images=images, answers=answers)


FORM = Form(
    name="webdataset",
    about="WebDataset shards: tars of images and JSON, for streaming",
    cannot=(
        "Members have the extensions of their images (image1.png, image2.jpg), and rows without rejected images lack "
        "these members: for readers that need equal members in all samples, export one kind (--kind)."
    ),
    opens=_opens,
    check=_check,
    use=(
        "```python\n"
        'dataset = webdataset.WebDataset("FOLDER/data/train-000000.tar", shardshuffle=False).decode("pil")\n'
        "```"
    ),
    owns=frozenset({"data"}),
)
