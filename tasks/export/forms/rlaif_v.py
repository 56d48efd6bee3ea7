"""Write the columns of RLAIF-V-Dataset: one image, a question, a chosen and a rejected answer, in Parquet.

A row about two images gets a new one with both side by side, since the form has one image per row. That is the only
place of any export where an image is not the source's bytes; it is a PNG, so no pixel changes.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.parquet import read_rlaif_v
from pairwright.tasks.export.form import Form, Setting, Sizes, UnheldError
from pairwright.tasks.export.hf_schema import TEXT, arrow_schema, image_cell
from pairwright.tasks.export.place_images import PLACE, place_images, rejected_text
from pairwright.tasks.export.stitch_images import stitch_images
from pairwright.tasks.export.write_shards import SplitWriters
from pairwright.tasks.store.images import RefusedImageError

SCHEMA = arrow_schema(
    {
        "ds_name": TEXT,
        "image": {"_type": "Image"},
        "question": TEXT,
        "chosen": TEXT,
        "rejected": TEXT,
        "origin_dataset": TEXT,
        "origin_split": TEXT,
        "idx": TEXT,
        "image_path": TEXT,
    }
)


@dataclass(frozen=True)
class RlaifVWriter:
    """Write preferences between texts about one image."""

    files: SplitWriters
    name: str

    def add(self, row: PreferenceRow) -> None:
        """Write a row.

        Raises:
            UnheldError: it has no rejected text, several questions, or an image that does not decode.
        """
        turns, rejected = place_images(row, [PLACE]), rejected_text(row)
        if len(turns) > 1:
            raise UnheldError("the prompt has several turns")
        image = image_cell(_one_image(row), "-".join(row.image_keys))
        record = {
            "ds_name": self.name,
            "image": image,
            "question": " ".join(turns[0].text.replace(PLACE, " ").split(" ")).strip(),
            "chosen": row.chosen,
            "rejected": rejected,
            "origin_dataset": ", ".join(dict.fromkeys(row.sources)),
            "origin_split": json.dumps({"model": row.chosen_model, "type": row.rejected_maker}, ensure_ascii=False),
            "idx": row.key,
            "image_path": image["path"],
        }
        self.files.add(row.split, record)

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.files.sizes()


def _one_image(row: PreferenceRow) -> bytes:
    if len(row.images) == 1:
        return row.images[0]
    try:
        return stitch_images(row.images)
    except RefusedImageError as error:
        raise UnheldError(f"an image cannot be put beside another: {error.reason}") from error


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[RlaifVWriter]:
    """Give what writes into a folder."""
    with SplitWriters(folder / "data", SCHEMA, bytes_per_file=setting.bytes_per_file) as files:
        yield RlaifVWriter(files, setting.name)


FORM = Form(
    name="rlaif-v",
    about="the columns of RLAIF-V-Dataset, Parquet: one image per row",
    cannot=(
        "It has one image per row: of a pair a new PNG with both, the first on the left. Rejected images, further "
        "negatives, prompts of several turns and log-probabilities (logps) are not in it."
    ),
    opens=opened,
    check=read_rlaif_v,
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data"}),
)
