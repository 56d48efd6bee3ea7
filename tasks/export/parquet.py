"""Write rows to Parquet for ``datasets``, by split, in files of limited size; and read them back.

Images are stored as they are, text is compressed. Row groups hold 100 rows, or fewer if images are
large; one is held in memory. The schema's ``huggingface`` metadata tells ``datasets`` which columns
are images.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.coco import COCO, CocoFile, check_coco, make_record
from pairwright.tasks.export.form import (
    SPLITS,
    ExportSettings,
    Files,
    RowWriter,
    UnheldError,
    check_answer,
    check_control,
    check_image,
    ending_of,
    require,
    wrap_row_errors,
)
from pairwright.tasks.export.paired_row import PairedRow

ROWS_PER_GROUP = 100
BYTES_PER_GROUP = 64 << 20
# values between checks of the page size: the usual 1,024 images are 80 MB, too large for caches
VALUES_PER_BATCH = 32
Feature = dict[str, Any]
Record = dict[str, Any]


def value_feature(dtype: str) -> Feature:
    """Return the feature of a value."""
    return {"dtype": dtype, "_type": "Value"}


def list_feature(feature: Feature) -> Feature:
    """Return the feature of a list."""
    return {"feature": feature, "_type": "List"}


TEXT = value_feature("string")
IMAGE: Feature = {"_type": "Image"}
IMAGES = list_feature(IMAGE)
MESSAGES = list_feature({"role": TEXT, "content": list_feature({"type": TEXT, "text": TEXT})})
"""TRL's messages: the content is a list, in the prompt with an ``image`` slot per image."""
ARROW = {
    "string": pa.string(),
    "float32": pa.float32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
REGIONS = list_feature(
    {
        "image": value_feature("int32"),
        "label": TEXT,
        "box": list_feature(value_feature("int32")),
        "mask": TEXT,
    }
)
"""Places where the images differ."""
IMAGE_CELL = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def arrow_schema(features: Feature) -> pa.Schema:
    """Return the schema of Parquet files that ``datasets`` loads with these features."""
    schema = pa.schema([(name, _arrow(feature)) for name, feature in features.items()])
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def feature_of(kind: pa.DataType) -> Feature:
    """Return the feature of an Arrow type in our tables."""
    if pa.types.is_list(kind):
        return list_feature(feature_of(kind.value_type))
    if pa.types.is_struct(kind):
        return {field.name: feature_of(field.type) for field in kind}
    names = [name for name, arrow_type in ARROW.items() if arrow_type == kind]
    return value_feature(names[0])


def _arrow(feature: Feature) -> pa.DataType:
    match feature.get("_type"):
        case "Value":
            return ARROW[feature["dtype"]]
        case "List":
            return pa.list_(_arrow(feature["feature"]))
        case "Image":
            return IMAGE_CELL
        case _:
            return pa.struct([(name, _arrow(inner)) for name, inner in feature.items()])


def image_cell(data: bytes, name: str) -> Record:
    """Return an image as a cell of an image column."""
    return {"bytes": data, "path": f"{name}.{ending_of(data)}"}


def image_cells(images: Sequence[bytes], names: Sequence[str]) -> list[Record]:
    """Return images under these names as the cell of a column of lists of images."""
    return [image_cell(image, name) for image, name in zip(images, names, strict=True)]


def message(turn: Turn) -> Record:
    """Return a turn as a message."""
    return {"role": turn.role, "content": [{"type": "text", "text": turn.text}]}


def answer_messages(text: str) -> list[Record]:
    """Return an answer as messages: one, or none without a text."""
    return [message(Turn(role="assistant", text=text))] if text else []


def region_cells(row: PreferenceRow) -> list[Record]:
    """Return where a row's images differ as the cell of a column of regions."""
    cells: list[Record] = []
    regions = row.regions if isinstance(row, PairedRow) else None
    for region in regions or ():
        cell = {
            "image": region.side,
            "label": region.label,
            "box": list(region.box),
            "mask": region.mask.model_dump_json(),
        }
        cells.append(cell)
    return cells


def open_parquet(
    schema: pa.Schema,
    to_record: Callable[[PreferenceRow, ExportSettings], Record],
    *,
    with_coco: bool = False,
) -> Callable[[Path, ExportSettings], Any]:
    """Return the opener of a Parquet form with these columns, a record for each row.

    ``with_coco``: beside it, where images differ is written as COCO's JSON.
    """

    def to_records(row: PreferenceRow, setting: ExportSettings) -> list[Record]:
        return [to_record(row, setting)]

    return open_records(schema, to_records, with_coco=with_coco)


def open_records(
    schema: pa.Schema,
    to_records: Callable[[PreferenceRow, ExportSettings], Sequence[Record]],
    *,
    with_coco: bool = False,
) -> Callable[[Path, ExportSettings], Any]:
    """Return the opener of a Parquet form with these columns, some records for each row."""

    def opens(folder: Path, setting: ExportSettings) -> AbstractContextManager[RowWriter]:
        def write_row(row: PreferenceRow) -> list[tuple[str, Any]]:
            records: list[tuple[str, Any]] = []
            for record in to_records(row, setting):
                records.append((row.split, record))
            if with_coco and isinstance(row, PairedRow) and row.regions is not None:
                # a row with a damaged image is in the table alone
                with suppress(UnheldError):
                    records.append((f"{COCO}/{row.split}", make_record(row, file_names(row))))
            return records

        def open_files(name: str) -> Files:
            if name.startswith(f"{COCO}/"):
                return CocoFile(folder / f"{name}.json")
            return _Parquet(folder / "data", name, schema, setting.bytes_per_file)

        return closing(RowWriter(write_row, open_files, names=SPLITS))

    return opens


def file_names(row: PreferenceRow) -> list[str]:
    """Return the names of a row's images in the columns of images."""
    images = zip(row.images, row.image_keys, strict=True)
    return [f"{key}.{ending_of(image)}" for image, key in images]


class _Parquet:
    """Files of one split."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, bytes_per_file: int) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._folder = folder
        self._name = name
        self._schema = schema
        self._bytes_per_file = bytes_per_file
        image_types = (IMAGE_CELL, pa.list_(IMAGE_CELL))
        self._images = [field.name for field in schema if field.type in image_types]
        self._group: list[Record] = []
        self._group_bytes = 0
        self._file_bytes = 0
        self._files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, record: Record) -> None:
        size = self._image_bytes(record)
        if self._group_bytes + size > BYTES_PER_GROUP:
            self._write_group()
        self._group.append(record)
        self._group_bytes += size
        self.rows += 1
        if len(self._group) == ROWS_PER_GROUP:
            self._write_group()

    def _image_bytes(self, record: Record) -> int:
        size = 0
        for name in self._images:
            for cell in _cells_of(record[name]):
                size += len(cell["bytes"])
        return size

    def close(self) -> None:
        try:
            self._write_group()
        finally:
            self._close_file()
        count = len(self._files)
        for number, path in enumerate(self._files):
            path.rename(path.with_name(f"{self._name}-{number:05d}-of-{count:05d}.parquet"))

    def _write_group(self) -> None:
        if not self._group:
            return
        if self._file_bytes + self._group_bytes > self._bytes_per_file:
            self._close_file()
        if self._writer is None:
            self._writer = self._open_file()
        table = pa.Table.from_pylist(self._group, schema=self._schema)
        self._file_bytes += self._group_bytes
        # Before the group is written, so that ``close`` does not retry a failed write.
        self._group = []
        self._group_bytes = 0
        self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)

    def _open_file(self) -> pq.ParquetWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._name}-{len(self._files):05d}.unfinished"
        self._files.append(path)
        return pq.ParquetWriter(path, self._schema, **_options(self._schema, self._images))

    def _close_file(self) -> None:
        if self._writer:
            self._writer.close()
            self.size_bytes += self._files[-1].stat().st_size
        self._writer = None
        self._file_bytes = 0


def _cells_of(value: Any) -> list[Any]:
    """Return the images of a cell of an image column, which has one, none or a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _options(schema: pa.Schema, images: Sequence[str]) -> dict[str, Any]:
    """Return the storage options of columns: images plain, text compressed."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    leaves = file.schema
    paths = [leaves.column(index).path for index in range(len(leaves))]
    texts = [path for path in paths if path.split(".")[0] not in images]
    return {
        "compression": {path: "zstd" if path in texts else "none" for path in paths},
        "use_dictionary": texts,
        "write_statistics": texts,
        "write_page_index": True,
        "write_batch_size": VALUES_PER_BATCH,
    }


def read_parquet(
    check: Callable[[Record, Any], None], *, images: Sequence[str] = ("images",)
) -> Callable[[Path, Any], Iterator[str]]:
    """Return the reader of a Parquet form; ``check`` checks a row with a processor.

    Rows are streamed by ``datasets``; the columns of images are decoded one by one to find a broken
    one. COCO's files beside them are checked against the images of their split.
    """

    def check_folder(folder: Path, processor: Any) -> Iterator[str]:
        import datasets

        decode = datasets.Image().decode_example
        with wrap_row_errors("datasets cannot load it"):
            splits = datasets.load_dataset(str(folder), streaming=True)
        for split, rows in splits.items():
            paths: set[str] = set()
            for number, row in enumerate(_undecoded(rows, str(split))):
                where = f"{split}, row {number}"
                with wrap_row_errors(where):
                    for name in images:
                        cells = _cells_of(row[name])
                        for cell in cells:
                            check_image(cell["bytes"])
                            paths.add(cell["path"])
                        pictures = map(decode, cells)
                        row[name] = [picture.convert("RGB") for picture in pictures]
                    check(row, processor)
                yield where
            annotations = folder / COCO / f"{split}.json"
            if annotations.is_file():
                with wrap_row_errors(f"{COCO}/{split}.json"):
                    list(check_coco(annotations, paths.__contains__))

    return check_folder


def _undecoded(rows: Any, split: str) -> Iterator[Record]:
    with wrap_row_errors(f"{split}: datasets cannot read it"):
        yield from rows.decode(enable=False)


def check_messages(row: Record) -> None:
    """Check a row of messages: a slot per image, and texts in the answers."""
    slots = 0
    for turn in row["prompt"]:
        slots += sum(part["type"] == "image" for part in turn["content"])
        for part in turn["content"]:
            check_control(part["text"] or "", "prompt")
    images = len(row["images"])
    require(slots == images, f"{slots} slots for {images} images")
    require(row["chosen"], "no chosen messages")
    for side in ("chosen", "rejected"):
        for turn in row[side]:
            check_answer(turn["content"][0]["text"], side)
