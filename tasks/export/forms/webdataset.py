"""Write WebDataset shards: tars in which the members of a basename are a preference.

A basename ends at the first dot. ``KEY.image1.png`` and ``KEY.image2.png`` are the images,
``KEY.rejected1.png`` ... the rejected ones, ``KEY.json`` the rest. Members have no time and no
owner, so the same rows give the same bytes. Shards are read back by WebDataset's naming rules:
adjacent members of one name are a sample.
"""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.schemas.plain_text import to_json_line
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    ExportSettings,
    Form,
    RowWriter,
    check_answer,
    check_image,
    name_images,
    require,
    wrap_row_errors,
)

BLOCK = 512
FIELDS = (
    "chosen",
    "chosen_model",
    "rejected",
    "rejected_maker",
    "rejected_note",
    "rejected_image_maker",
    "kind",
    "description",
    "claims",
    "rejected_claims",
    "key",
    "image_keys",
    "component",
    "split",
    "sources",
    "licences",
)
"""Fields of a row that the JSON has unchanged, in addition to its lists."""
LISTS = ("prompt", "negatives", "removal_scores")


def _opens(folder: Path, setting: ExportSettings) -> AbstractContextManager[RowWriter]:
    def open_files(split: str) -> _Tars:
        return _Tars(folder / "data", split, setting.bytes_per_file)

    return closing(RowWriter(_to_records, open_files))


def _to_records(row: PreferenceRow) -> list[tuple[str, dict[str, bytes]]]:
    record: dict[str, Any] = {"pair": row.subject}
    for name in FIELDS:
        record[name] = getattr(row, name)
    for name in LISTS:
        record[name] = [asdict(element) for element in getattr(row, name)]
    files = name_images(row)
    files["json"] = to_json_line(record).encode()
    members = {f"{row.key}.{suffix}": data for suffix, data in files.items()}
    return [(row.split, members)]


class _Tars:
    """Members of one split's rows, in tars of limited size."""

    def __init__(self, folder: Path, split: str, max_bytes: int) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._folder = folder
        self._split = split
        self._max_bytes = max_bytes
        self._number = 0
        self._tar: tarfile.TarFile | None = None
        self._tar_bytes = 0

    def write(self, record: dict[str, bytes]) -> None:
        size = sum(2 * BLOCK + len(data) for data in record.values())
        if self._tar and self._tar_bytes + size > self._max_bytes:
            self.close()
        if self._tar is None:
            self._tar = self._open_tar()
        for name, data in record.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            self._tar.addfile(info, io.BytesIO(data))
        self._tar_bytes += size
        self.rows += 1

    def _open_tar(self) -> tarfile.TarFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._split}-{self._number:06d}.tar"
        return tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)

    def close(self) -> None:
        if self._tar:
            self._tar.close()
            self.size_bytes += Path(str(self._tar.name)).stat().st_size
            self._number += 1
        self._tar = None
        self._tar_bytes = 0


def _check_folder(
    folder: Path,
    processor: Any,  # noqa: ARG001 - as for every form
) -> Iterator[str]:
    for path in sorted((folder / "data").glob("*.tar")):
        with wrap_row_errors(f"data/{path.name}"), tarfile.open(path) as tar:
            for key, members in groupby(tar, key=lambda member: member.name.partition(".")[0]):
                with wrap_row_errors(key):
                    _check(_read_members(tar, members))
                yield key


def _read_members(tar: tarfile.TarFile, members: Iterable[tarfile.TarInfo]) -> dict[str, bytes]:
    """Return the contents of members by their names after the first dot."""
    contents: dict[str, bytes] = {}
    for member in members:
        file = tar.extractfile(member)
        assert file is not None
        contents[member.name.partition(".")[2]] = file.read()
    return contents


def _check(contents: dict[str, bytes]) -> None:
    record = json.loads(contents.pop("json"))
    for data in contents.values():
        check_image(data)
    images = sum(name.startswith("image") for name in contents)
    require(images == len(record["image_keys"]), f"{images} images")
    check_answer(record["chosen"], "chosen")
    if record["rejected"]:
        check_answer(record["rejected"], "rejected")


FORM = Form(
    name="webdataset",
    about="WebDataset shards: tars of images and JSON, for streaming",
    cannot=(
        "Members have the extensions of their images (image1.png, image2.jpg), "
        "and rows without rejected images lack these members: for readers that need equal members "
        "in all samples, export one kind (--kind)."
    ),
    opens=_opens,
    check=_check_folder,
    use=(
        "```python\n"
        'dataset = webdataset.WebDataset("FOLDER/data/train-000000.tar", shardshuffle=False)'
        '.decode("pil")\n'
        "```"
    ),
    owns=frozenset({"data"}),
)
