"""Write what TRL's ``DPOTrainer`` takes for a vision preference: prompt, chosen, rejected and images, in Parquet.

A message's content is a list, with a slot per image in the prompt, which the trainer fills in order.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.checks.parquet import read_trl
from pairwright.tasks.export.form import Form, Setting, Sizes
from pairwright.tasks.export.hf_schema import IMAGES, MESSAGES, answer, arrow_schema, image_cell
from pairwright.tasks.export.place_images import PLACE, place_images, rejected_text
from pairwright.tasks.export.write_shards import SplitWriters

SCHEMA = arrow_schema({"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "images": IMAGES})


@dataclass(frozen=True)
class TrlWriter:
    """Write preferences between texts."""

    files: SplitWriters

    def add(self, row: PreferenceRow) -> None:
        """Write a row.

        Raises:
            UnheldError: it has no rejected text, or words in its prompt that stand for an image.
        """
        record = {
            "prompt": [_message(turn) for turn in place_images(row, [PLACE])],
            "chosen": answer(row.chosen),
            "rejected": answer(rejected_text(row)),
            "images": [image_cell(*both) for both in zip(row.images, row.image_keys, strict=True)],
        }
        self.files.add(row.split, record)

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.files.sizes()


def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn with a slot where each image is."""
    content: list[dict[str, Any]] = []
    for number, text in enumerate(turn.text.split(PLACE)):
        content += [{"type": "image", "text": None}] if number else []
        content += [{"type": "text", "text": text}] if text else []
    return {"role": turn.role, "content": content}


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[TrlWriter]:
    """Give what writes into a folder."""
    with SplitWriters(folder / "data", SCHEMA, bytes_per_file=setting.bytes_per_file) as files:
        yield TrlWriter(files)


FORM = Form(
    name="trl",
    about="vision preferences for TRL's DPOTrainer, Parquet",
    cannot=(
        "TRL shows both answers the same images, so rejected images are not in it; nor are further negatives, licences "
        "and how a text was made."
    ),
    opens=opened,
    check=read_trl,
    collates=True,
    use=(
        "```python\n"
        'dataset = datasets.load_dataset("FOLDER")\n'
        "trainer = trl.DPOTrainer(\n"
        '    model, args=trl.DPOConfig(max_length=None), train_dataset=dataset["train"], processing_class=processor\n'
        ")\n"
        "```\n\n"
        "`max_length=None`: a limit would cut image tokens."
    ),
    owns=frozenset({"data"}),
)
