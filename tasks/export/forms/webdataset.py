"""Write WebDataset shards: tars in which the members of one name, up to the first dot, are one preference.

``KEY.image1.png`` and ``KEY.image2.png`` are the images, ``KEY.rejected1.png`` ... the rejected ones, ``KEY.json`` all
else. Members carry no time and no owner, so the same rows give the same bytes.
"""

import io
import json
import tarfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.webdataset import read_samples
from pairwright.tasks.export.form import Form, Setting, Sizes
from pairwright.tasks.export.hf_schema import ending_of

BLOCK = 512
TOLD = (
    *("chosen", "chosen_model", "rejected", "rejected_maker", "rejected_note", "rejected_image_maker"),
    *("key", "image_keys", "component", "split", "sources", "licences"),
)
"""What the JSON has of a row as it is, beside its lists."""


class WebDatasetWriter:
    """Write preferences, each as the members of one name; use as a context manager."""

    def __init__(self, folder: Path, *, bytes_per_file: int) -> None:
        """Write below ``folder``; no file is made before a split's first row."""
        self._folder, self._limit = folder, bytes_per_file
        self._tars: dict[str, _Tar] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for tar in self._tars.values():
                stack.callback(tar.close)

    def add(self, row: PreferenceRow) -> None:
        """Write a row."""
        tar = self._tars.setdefault(row.split, _Tar(self._folder, row.split, self._limit))
        tar.write({f"{row.key}.{suffix}": data for suffix, data in members_of(row).items()})

    def sizes(self) -> Sizes:
        """Return what was written."""
        return {split: (tar.rows, tar.size_bytes) for split, tar in self._tars.items()}


def members_of(row: PreferenceRow) -> dict[str, bytes]:
    """Return the members of a row by what follows the first dot of their names."""
    shown = {f"image{number}": image for number, image in enumerate(row.images, start=1)}
    shown |= {f"rejected{number}": image for number, image in enumerate(row.rejected_images, start=1)}
    return {
        **{f"{name}.{ending_of(image)}": image for name, image in shown.items()},
        "json": json.dumps(_told(row), ensure_ascii=False).encode(),
    }


def _told(row: PreferenceRow) -> dict[str, Any]:
    lists = {name: [asdict(one) for one in getattr(row, name)] for name in ("prompt", "negatives", "removal_scores")}
    return {"pair": row.subject, **{name: getattr(row, name) for name in TOLD}, **lists}


class _Tar:
    """Write the members of one split's rows, in tars of limited size."""

    def __init__(self, folder: Path, split: str, limit: int) -> None:
        self.rows = self.size_bytes = 0
        self._folder, self._split, self._limit = folder, split, limit
        self._number = self._in_file = 0
        self._open: tarfile.TarFile | None = None

    def write(self, members: dict[str, bytes]) -> None:
        size = sum(2 * BLOCK + len(data) for data in members.values())
        if self._open and self._in_file + size > self._limit:
            self.close()
        tar = self._open or self._next()
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
        self._in_file += size
        self.rows += 1

    def _next(self) -> tarfile.TarFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open = tarfile.open(self._path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 - closed with its split
        return self._open

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._split}-{self._number:06d}.tar"

    def close(self) -> None:
        if self._open:
            self._open.close()
            self.size_bytes += self._path.stat().st_size
            self._number += 1
        self._open, self._in_file = None, 0


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[WebDatasetWriter]:
    """Give what writes into a folder."""
    with WebDatasetWriter(folder / "data", bytes_per_file=setting.bytes_per_file) as writer:
        yield writer


FORM = Form(
    name="webdataset",
    about="WebDataset shards: tars of images and JSON, for streaming",
    cannot=(
        "Members are named by what images are (image1.png, image2.jpg), and rows without rejected images have no "
        "member for them: readers that want equal members in all samples take rows of one kind (--kind)."
    ),
    opens=opened,
    check=read_samples,
    use=(
        "```python\n"
        'dataset = webdataset.WebDataset("FOLDER/data/train-000000.tar", shardshuffle=False).decode("pil")\n'
        "```"
    ),
    owns=frozenset({"data"}),
)
