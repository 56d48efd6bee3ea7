"""Write rows to Parquet for ``datasets``, by split, in files of limited size; and read them back with it.

Images are stored unchanged, text is compressed. Row groups hold 100 rows, or fewer if images are
large; one is held in memory. The schema's ``huggingface`` metadata tells ``datasets`` which columns
are images.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.form import (
    SPLITS,
    ExportSettings,
    RowWriter,
    check_answer,
    ending_of,
    naming_row,
    need,
)

ROWS_PER_GROUP = 100
BYTES_PER_GROUP = 64 << 20
# values between checks of the page size: the usual 1,024 images are 80 MB, too large for caches
VALUES_PER_BATCH = 32
Feature = dict[str, Any]
Record = dict[str, Any]


def value(dtype: str) -> Feature:
    """Return the feature of a value."""
    return {"dtype": dtype, "_type": "Value"}


def listed(feature: Feature) -> Feature:
    """Return the feature of a list."""
    return {"feature": feature, "_type": "List"}


TEXT, IMAGE = value("string"), {"_type": "Image"}
IMAGES = listed(IMAGE)
MESSAGES = listed({"role": TEXT, "content": listed({"type": TEXT, "text": TEXT})})
"""TRL's messages: the content is a list, in the prompt with an ``image`` slot per image."""
ARROW = {"string": pa.string(), "float32": pa.float32(), "int32": pa.int32(), "bool": pa.bool_()}
IMAGE_CELL = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def arrow_schema(features: Feature) -> pa.Schema:
    """Return the schema of Parquet files that ``datasets`` loads with these features."""
    schema = pa.schema([(name, _arrow(feature)) for name, feature in features.items()])
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def feature_of(kind: pa.DataType) -> Feature:
    """Return the feature of an Arrow type in our tables."""
    if pa.types.is_list(kind):
        return listed(feature_of(kind.value_type))
    if pa.types.is_struct(kind):
        return {field.name: feature_of(field.type) for field in kind}
    return value(next(name for name, known in ARROW.items() if known == kind))


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


def message(turn: Turn) -> Record:
    """Return a turn as a message."""
    return {"role": turn.role, "content": [{"type": "text", "text": turn.text}]}


def answer(text: str) -> list[Record]:
    """Return an answer as messages: one, or none without a text."""
    return [message(Turn(role="assistant", text=text))] if text else []


def open_parquet(
    schema: pa.Schema, to_record: Callable[[PreferenceRow, ExportSettings], Record]
) -> Callable[[Path, ExportSettings], Any]:
    """Return the opener of a Parquet form, from its columns and the function that makes records."""

    def opens(folder: Path, setting: ExportSettings) -> AbstractContextManager[RowWriter]:
        writer = RowWriter(
            lambda row: [(row.split, to_record(row, setting))],
            lambda split: _Parquet(folder / "data", split, schema, setting.bytes_per_file),
            names=SPLITS,
        )
        return closing(writer)

    return opens


class _Parquet:
    """Files of one split."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, bytes_per_file: int) -> None:
        self.rows = self.size_bytes = 0
        self._folder, self._name, self._schema, self._bytes_per_file = (
            folder,
            name,
            schema,
            bytes_per_file,
        )
        self._images = [
            field.name for field in schema if field.type in (IMAGE_CELL, pa.list_(IMAGE_CELL))
        ]
        self._waiting: list[Record] = []
        self._waiting_bytes = self._file_bytes = 0
        self._files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, record: Record) -> None:
        cells = [record[name] for name in self._images]
        size = sum(
            len(image["bytes"])
            for cell in cells
            for image in (cell if isinstance(cell, list) else [cell])
        )
        if self._waiting_bytes + size > BYTES_PER_GROUP:
            self._write_group()
        self._waiting.append(record)
        self._waiting_bytes += size
        self.rows += 1
        if len(self._waiting) == ROWS_PER_GROUP:
            self._write_group()

    def close(self) -> None:
        try:
            self._write_group()
        finally:
            self._close_file()
        for number, path in enumerate(self._files):
            path.rename(
                path.with_name(f"{self._name}-{number:05d}-of-{len(self._files):05d}.parquet")
            )

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._file_bytes + self._waiting_bytes > self._bytes_per_file:
            self._close_file()
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files.append(self._folder / f"{self._name}-{len(self._files):05d}.unfinished")
            self._writer = pq.ParquetWriter(
                self._files[-1], self._schema, **_options(self._schema, self._images)
            )
        table = pa.Table.from_pylist(self._waiting, schema=self._schema)
        self._file_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = (
            [],
            0,
        )  # so that ``close`` does not retry a failed write
        self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)

    def _close_file(self) -> None:
        if self._writer:
            self._writer.close()
            self.size_bytes += self._files[-1].stat().st_size
        self._writer, self._file_bytes = None, 0


def _options(schema: pa.Schema, images: Sequence[str]) -> dict[str, Any]:
    """Return the storage options of columns: images plain, text compressed."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    leaves = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
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
    """Return the reader of a Parquet form, from the function that checks a row with a processor.

    Rows are streamed by ``datasets``; the columns of images are decoded one by one to find a broken
    one.
    """

    def read(folder: Path, processor: Any) -> Iterator[str]:
        import datasets

        decode = datasets.Image().decode_example
        with naming_row("datasets cannot load it"):
            splits = datasets.load_dataset(str(folder), streaming=True)
        for split, rows in splits.items():
            for number, row in enumerate(_undecoded(rows, str(split))):
                where = f"{split}, row {number}"
                with naming_row(where):
                    for name in images:
                        cells = row[name] if isinstance(row[name], list) else [row[name]]
                        row[name] = [decode(cell).convert("RGB") for cell in cells]
                    check(row, processor)
                yield where

    return read


def _undecoded(rows: Any, split: str) -> Iterator[Record]:
    with naming_row(f"{split}: datasets cannot read it"):
        yield from rows.decode(enable=False)


def check_messages(row: Record) -> None:
    """Check a row of messages: a slot per image, and texts in the answers."""
    slots = sum(part["type"] == "image" for turn in row["prompt"] for part in turn["content"])
    need(slots == len(row["images"]), f"{slots} slots for {len(row['images'])} images")
    need(row["chosen"], "no chosen messages")
    for side in ("chosen", "rejected"):
        for turn in row[side]:
            check_answer(turn["content"][0]["text"], side)
