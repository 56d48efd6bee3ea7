"""Write ``data/*.parquet`` that ``datasets.load_dataset`` reads: every column of a preference, TRL's messages."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.parquet import read_hf
from pairwright.tasks.export.croissant import FILE, write_croissant
from pairwright.tasks.export.form import Form, Setting, Sizes
from pairwright.tasks.export.hf_schema import SCHEMA, to_record
from pairwright.tasks.export.tally_rows import About, Tally
from pairwright.tasks.export.write_card import ASSETS, example_files, write_card
from pairwright.tasks.export.write_shards import SplitWriters


@dataclass(frozen=True)
class HfWriter:
    """Write preferences with all that is known of them."""

    files: SplitWriters

    def add(self, row: PreferenceRow) -> None:
        """Write a row."""
        self.files.add(row.split, to_record(row))

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.files.sizes()


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[HfWriter]:
    """Give what writes into a folder."""
    with SplitWriters(folder / "data", SCHEMA, bytes_per_file=setting.bytes_per_file) as files:
        yield HfWriter(files)


def describe(folder: Path, about: About, tally: Tally) -> None:
    """Write the Croissant file, and the images that the card shows."""
    (folder / FILE).write_text(write_croissant(about, tally), encoding="utf-8")
    for name, image in example_files(tally).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(image)


FORM = Form(
    name="hf",
    about="Parquet with every column, for datasets.load_dataset",
    cannot="It holds preferences only: conversations about commonalities and differences are in llava.",
    opens=opened,
    check=read_hf,
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data", ASSETS, FILE}),
    beside=describe,
    card=write_card,
)
