"""Write a table with the images of each row to Parquet for ``datasets.load_dataset``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.control_tokens import refuse_control
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    CaptionRow,
    ComparisonRow,
    DifferenceRow,
    ImageRow,
    MasksRow,
    PairRow,
    PreferenceRow,
    QuestionRow,
    Row,
)
from pairwright.schemas.suggest import suggest
from pairwright.tasks.export.form import ExportSettings, Form, UnheldError, require
from pairwright.tasks.export.forms import hf
from pairwright.tasks.export.paired_row import PairedRow
from pairwright.tasks.export.parquet import (
    IMAGES,
    REGIONS,
    TEXT,
    Record,
    arrow_schema,
    feature_of,
    image_cells,
    list_feature,
    open_parquet,
    read_parquet,
    region_cells,
)
from pairwright.tasks.store.index import columns_without

TABLES: dict[str, type[Row]] = {
    "images": ImageRow,
    "masks": MasksRow,
    "pairs": PairRow,
    "captions": CaptionRow,
    "differences": DifferenceRow,
    "comparisons": ComparisonRow,
    "questions": QuestionRow,
}
TEXT_COLUMNS = (
    "text",
    "sentences",
    "commonalities",
    "differences",
    "question",
    "answer",
    "human_differences",
    "instruction",
    "captions",
)
INTERNAL = ("source_key", "facts")
BYTES = ("image",)
"""Columns of bytes, which the column ``images`` shows."""
OF_IMAGES = ("images", "masks", "captions")
"""Tables whose rows are about one image, so that they have no regions."""
SHOWN = {
    "images": IMAGES,
    "decision": TEXT,
    **dict.fromkeys(("names", "sources", "licences"), list_feature(TEXT)),
}
"""Columns that every table gets: the row's images, and the decision about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow(PairedRow):
    """Row of another table, as a preference without a rejected side."""

    record: Mapping[str, Any]
    """Columns of its table and ``SHOWN``, but its images."""


def _to_record(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> Record:
    record = dict(cast("ShownRow", row).record)
    refused = _refuse_record(record)
    if refused:
        raise UnheldError(f"{refused.reason} in a text")
    record["regions"] = region_cells(row)
    return {**record, "images": image_cells(row.images, row.image_keys)}


def _refuse_record(record: Mapping[str, Any]) -> RefusedText | None:
    """Return why a text of a record must not be exported; ``None``: nothing."""
    for column in TEXT_COLUMNS:
        value = record.get(column) or ()
        for text in [value] if isinstance(value, str) else value:
            refused = refuse_control(text)
            if refused:
                return refused
    return None


def _check(record: Record, processor: Any) -> None:  # noqa: ARG001 - as for every form
    refused = _refuse_record(record)
    require(not refused, f"a text has {refused and refused.detail}")


def table_form(name: str) -> Form:
    """Return the form of a table; ``ConfigError``: it cannot be exported."""
    if name not in TABLES:
        raise ConfigError(
            f"--table {name}: cannot be exported; {suggest(name, ['preferences', *TABLES])}"
        )
    schema = schema_of(TABLES[name])
    columns = columns_without(TABLES[name], (*INTERNAL, *BYTES))
    features = {column: feature_of(schema.field(column).type) for column in columns}
    is_of_pairs = name not in OF_IMAGES
    if is_of_pairs:
        features["regions"] = REGIONS
    return replace(
        hf.FORM,
        about=(
            f"Parquet with every column of the table {name} and its images, "
            "for datasets.load_dataset"
        ),
        cannot=(
            f"It holds the table {name} only; trainers of preferences need the table preferences."
        ),
        opens=open_parquet(arrow_schema(SHOWN | features), _to_record, with_coco=is_of_pairs),
        check=read_parquet(_check),
        reads=name,
        card=None,
    )
