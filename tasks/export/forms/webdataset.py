"""Write WebDataset shards: tars in which members with one name, up to the first dot, are a preference.

``KEY.image1.png`` and ``KEY.image2.png`` are the images, ``KEY.rejected1.png`` ... the rejected
ones, ``KEY.json`` the rest. Members have no time and no owner, so the same rows give the same
bytes. Shards are read back by WebDataset's naming rules: adjacent members of one name are a sample.
"""

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    ExportSettings,
    Form,
    RowWriter,
    check_answer,
    name_images,
    naming_row,
    need,
)
from pairwright.tasks.images.decode import decode_rgb

BLOCK = 512
TOLD = (
    *(
        "chosen",
        "chosen_model",
        "rejected",
        "rejected_maker",
        "rejected_note",
        "rejected_image_maker",
    ),
    *("kind", "description", "claims", "rejected_claims"),
    *("key", "image_keys", "component", "split", "sources", "licences"),
)
"""Fields of a row that the JSON has unchanged, beside its lists."""


def _opens(folder: Path, setting: ExportSettings) -> AbstractContextManager[RowWriter]:
    return closing(
        RowWriter(_to_records, lambda split: _Tars(folder / "data", split, setting.bytes_per_file))
    )


def _to_records(row: PreferenceRow) -> list[tuple[str, dict[str, bytes]]]:
    lists = {
        name: [asdict(one) for one in getattr(row, name)]
        for name in ("prompt", "negatives", "removal_scores")
    }
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

    def write(self, record: dict[str, bytes]) -> None:
        size = sum(2 * BLOCK + len(data) for data in record.values())
        if self._open and self._in_file + size > self._limit:
            self.close()
        if self._open is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._split}-{self._number:06d}.tar"
            self._open = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 - closed later
        for name, data in record.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            self._open.addfile(info, io.BytesIO(data))
        self._in_file += size
        self.rows += 1

    def close(self) -> None:
        if self._open:
            self._open.close()
            self.size_bytes += Path(str(self._open.name)).stat().st_size
            self._number += 1
        self._open, self._in_file = None, 0


def _check(folder: Path, processor: Any) -> Iterator[str]:  # noqa: ARG001 - as for every form
    for path in sorted((folder / "data").glob("*.tar")):
        with naming_row(f"data/{path.name}"), tarfile.open(path) as tar:
            for key, members in groupby(tar, key=lambda member: member.name.partition(".")[0]):
                with naming_row(key):
                    found = dict[str, bytes]()
                    for member in members:
                        contents = tar.extractfile(member)
                        assert contents is not None
                        found[member.name.partition(".")[2]] = contents.read()
                    told = json.loads(found.pop("json"))
                    for data in found.values():
                        decode_rgb(data)
                    images = sum(name.startswith("image") for name in found)
                    need(images == len(told["image_keys"]), f"{images} images")
                    check_answer(told["chosen"], "chosen")
                yield key


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
