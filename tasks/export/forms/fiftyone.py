"""Write images with the places where they differ for FiftyOne, as its COCODetectionDataset.

Each split is a folder with ``data`` (the images) and ``labels.json`` (COCO). A detection has its
label, box and mask, and as attributes its pair, the side of its image, the other image and the
pair's description.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.coco import CocoFile, CocoRecord, check_coco, make_record
from pairwright.tasks.export.form import (
    SPLITS,
    ExportSettings,
    Form,
    RowWriter,
    check_image,
    wrap_row_errors,
)
from pairwright.tasks.export.paired_row import as_paired
from pairwright.tasks.export.parquet import file_names

LABELS = "labels.json"
DATA = "data"


@contextmanager
def _opens(
    folder: Path,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> Generator[RowWriter]:
    def to_records(row: PreferenceRow) -> list[tuple[str, CocoRecord]]:
        names = file_names(row)
        paired = as_paired(row)
        record = make_record(paired, names, {"text": paired.difference})
        data = folder / row.split / DATA
        data.mkdir(parents=True, exist_ok=True)
        for name, image in zip(names, row.images, strict=True):
            if not (data / name).exists():
                (data / name).write_bytes(image)
        return [(row.split, record)]

    def open_files(split: str) -> CocoFile:
        return CocoFile(folder / split / LABELS, is_alone=True)

    with closing(RowWriter(to_records, open_files)) as writer:
        yield writer


def _check_folder(
    folder: Path,
    processor: Any,  # noqa: ARG001 - as for every form
) -> Iterator[str]:
    for split in SPLITS:
        path = folder / split / LABELS
        if not path.is_file():
            continue
        data = folder / split / DATA
        names: list[str] = []
        with wrap_row_errors(f"{split}/{LABELS}"):
            names += check_coco(path, lambda name, data=data: (data / name).is_file())
        for name in names:
            where = f"{split}/{DATA}/{name}"
            with wrap_row_errors(where):
                check_image((data / name).read_bytes())
            yield where


FORM = Form(
    name="fiftyone",
    about="images with the places where they differ, for FiftyOne: COCO and image files",
    cannot=(
        "It holds the images of pairs, counted once, with boxes and masks where these are known "
        "(given change masks, rendered and planted scenes). An image without such a place says "
        "nothing of its pair. It lacks rejected texts and images."
    ),
    opens=_opens,
    check=_check_folder,
    use=(
        "```python\n"
        "# python -m pip install fiftyone pycocotools\n"
        "dataset = fiftyone.Dataset.from_dir(\n"
        '    dataset_dir="FOLDER/train",\n'
        "    dataset_type=fiftyone.types.COCODetectionDataset,\n"
        '    label_types=["detections", "segmentations"],\n'
        "    extra_attrs=True,\n"
        ")\n"
        "```"
    ),
    owns=frozenset({*SPLITS}),
    reads="pairs",
    knows_pairs=True,
)
