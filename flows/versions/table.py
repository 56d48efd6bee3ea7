"""Read one table of a dataset from Python: each live row once.

The Parquet parts of a folder also hold rows that do not count (their image was removed, a pair was
found from both of its images), so reading the files directly gives too many.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, overload

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.flows.versions.version import Version
from pairwright.schemas.arrow import R, add_missing_columns, concat_parts, from_table, schema_of
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.images.plain import PlainImages
from pairwright.tasks.store.index import columns_without

if TYPE_CHECKING:
    import datasets
    import pandas

    from pairwright.flows.versions.show_rows import Card

PLACE = "place in the table"
IMAGE_COLUMNS = ("image", "patch")
IMAGES_COLUMNS = ("images", "rejected_images")
"""Columns of an encoded image, and of a list of them."""


class Table(Generic[R]):
    """Table of a dataset's version: the live rows, in a fixed order.

    pairs = pw.open("album")["pairs"]
    len(pairs), pairs.columns
    pairs.where("similarity > 0.8 AND origin = 'mined'").to_pandas()
    pairs[0].similarity                 # a row with its fields; pairs[0].show() is its card
    for pair in pairs.rows(): ...       # a row group in memory at a time
    """

    def __init__(
        self, version: Version, name: str, chosen: NDArray[np.int64] | None = None
    ) -> None:
        planned = version.find_stage(name)
        self.version, self.name = version, name
        self.row_type: type[R] = planned.stage.writes  # pyright: ignore[reportAttributeAccessIssue]
        self._chosen = chosen

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        return self.version.index(self.name).order() if self._chosen is None else self._chosen

    @property
    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return columns_without(self.row_type, ())

    def __len__(self) -> int:
        if self._chosen is None and self.version.snapshot:  # the snapshot has the count
            return next(
                counts.rows for counts in self.version.stage_counts() if counts.stage == self.name
            )
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> "RowView[R]": ...
    @overload
    def __getitem__(self, place: slice) -> "Table[R]": ...
    def __getitem__(self, place: int | slice) -> "RowView[R] | Table[R]":
        """Return a row, or a table of some rows: ``pairs[0]``, ``pairs[:10]``."""
        if isinstance(place, slice):
            return Table(self.version, self.name, self._places[place])
        (row,) = Table[R](self.version, self.name, self._places[[place]]).rows()
        return RowView(self, row)

    def __iter__(self) -> Iterator[R]:
        return self.rows()

    def batches(self, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the rows as Arrow tables, at most a row group (100 rows) in memory at a time."""
        names = self._known(columns)
        for batch in self.version.index(self.name).batches(names, self._places):
            yield add_missing_columns(batch, self.row_type, names)

    def rows(self, *, without: Sequence[str] = ()) -> Iterator[R]:
        """Yield the rows as typed objects (``schemas.rows``).

        Columns ``without`` are not read, and empty.
        """
        for batch in self.batches(columns_without(self.row_type, without)):
            yield from from_table(batch, self.row_type)

    def to_arrow(self, columns: Sequence[str] = ()) -> pa.Table:
        """Return all rows, or some of their columns, as one Arrow table."""
        names = self._known(columns)
        schema = schema_of(self.row_type)
        empty = pa.schema([schema.field(name) for name in names]).empty_table()
        return concat_parts([empty, *(batch.select(names) for batch in self.batches(names))])

    def to_pandas(self, columns: Sequence[str] = ()) -> "pandas.DataFrame":
        """Return all rows, or some of their columns, as a data frame."""
        return self.to_arrow(columns).to_pandas()

    def to_datasets(self, columns: Sequence[str] = ()) -> "datasets.Dataset":
        """Return all rows as a dataset of the library ``datasets``, image bytes as images.

        Images that it would show otherwise than models saw them are PNGs of what these saw.
        """
        try:
            import datasets
        except ImportError as error:
            raise ConfigError(
                "to_datasets() needs the package datasets: python -m pip install datasets"
            ) from error
        arrow = _with_plain_images(self.to_arrow(columns))
        features = datasets.Features.from_arrow_schema(arrow.schema)
        for field in arrow.schema:
            if field.name in IMAGE_COLUMNS:
                features[field.name] = datasets.Image()
            elif field.name in IMAGES_COLUMNS:
                features[field.name] = datasets.List(datasets.Image())
        return datasets.Dataset(arrow).cast(features)

    def where(self, condition: str) -> "Table[R]":
        """Return the rows for which a condition in DuckDB's SQL holds.

        ``"similarity > 0.8 AND origin = 'mined'"``. Only the columns that it names are read.
        """
        named = [
            name for name in self.columns if re.search(rf"\b{name}\b", condition, re.IGNORECASE)
        ]
        found, start = [np.empty(0, dtype=np.int64)], 0
        with duckdb.connect(config={"enable_external_access": False}) as database:
            for batch in self.batches(named or ["key"]):
                places = pa.array(range(start, start + len(batch)), pa.int64())
                numbered = database.from_arrow(batch.append_column(PLACE, places))
                try:
                    kept = (
                        numbered.filter(condition)
                        .project(f'"{PLACE}"')
                        .order(f'"{PLACE}"')
                        .fetchnumpy()
                    )
                except duckdb.Error as error:
                    raise ConfigError(f"where({condition!r}): {error}") from error
                found.append(kept[PLACE].astype(np.int64))
                start += len(batch)
        return Table(self.version, self.name, self._places[np.concatenate(found)])

    def _known(self, columns: Sequence[str]) -> list[str]:
        if wrong := next((name for name in columns if name not in self.columns), None):
            raise ConfigError(
                f"{self.name}: has no column {wrong}. It has {', '.join(self.columns)}"
            )
        return list(columns) or self.columns

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.name}: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        from pairwright.flows.versions.show_rows import SHOWN, show_rows

        return show_rows(self.version, self.name, list(self[:SHOWN].rows()), total=len(self))


def _with_plain_images(table: pa.Table) -> pa.Table:
    """Return a table whose encoded images show all programs the same pixels."""
    plain = PlainImages()
    for index, field in enumerate(table.schema):
        values: list[Any] = []
        if field.name in IMAGE_COLUMNS:
            values += [plain.make_plain(value) for value in table.column(index).to_pylist()]
        elif field.name in IMAGES_COLUMNS:
            for images in table.column(index).to_pylist():
                values.append([plain.make_plain(image) for image in images])
        else:
            continue
        table = table.set_column(index, field, pa.array(values, field.type))
    return table


class RowView(Generic[R]):
    """Row of a table that can show itself.

    Its fields by name, ``row`` itself, ``show()`` its card.
    """

    def __init__(self, table: Table[R], row: R) -> None:
        self.table, self.row = table, row

    def __getattr__(self, name: str) -> Any:
        if name == "row":  # not set yet while copying
            raise AttributeError(name)
        return getattr(self.row, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.table.columns]

    def __repr__(self) -> str:
        from pairwright.flows.versions.show_rows import say_row

        return say_row(self.row)

    def show(self) -> "Card":
        """Return the row's card: images, texts, and everything made from it.

        ``save`` writes it to a file.
        """
        from pairwright.flows.versions.show_rows import show_card

        return show_card(self.table.version, self.table.name, self.row)

    def _repr_html_(self) -> str:
        from pairwright.flows.versions.show_rows import show_rows

        return show_rows(self.table.version, self.table.name, [self.row], total=1)
