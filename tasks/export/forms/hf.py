"""Write ``data/*.parquet`` that ``datasets.load_dataset`` reads: every column of a preference, TRL's messages."""

from pathlib import Path
from types import TracebackType
from typing import Self

from schemas.rows import PreferenceRow
from tasks.export.form import Form, Setting, Sizes
from tasks.export.hf_schema import SCHEMA, to_record
from tasks.export.write_card import write_card
from tasks.export.write_shards import SplitWriters


class HfWriter:
    """Write preferences with all that is known of them."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self._files = SplitWriters(folder / "data", SCHEMA, bytes_per_file=setting.bytes_per_file)

    def __enter__(self) -> Self:
        self._files.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def add(self, row: PreferenceRow) -> None:
        """Write a row."""
        self._files.add(row.split, to_record(row))

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self._files.sizes()


FORM = Form(
    name="hf",
    about="Parquet with every column, for datasets.load_dataset",
    cannot="It holds preferences only: conversations about commonalities and differences are in llava.",
    opens=HfWriter,
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data"}),
    card=write_card,
)
