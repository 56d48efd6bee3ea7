"""Write vision preferences for TRL's ``DPOTrainer``: prompt, chosen, rejected and images, in Parquet.

A message's content is a list; in the prompt it has a slot per image, which the trainer fills in order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import Form, Setting, place_images, rejected_text
from pairwright.tasks.export.parquet import (
    IMAGES,
    MESSAGES,
    Record,
    answer,
    arrow_schema,
    image_cell,
    import_consumer,
    open_parquet,
    read_messages,
    read_rows,
)
from pairwright.tasks.export.sample import PLACE, Sample, as_parts, naming_row, need


def _to_record(row: PreferenceRow, setting: Setting) -> Record:  # noqa: ARG001 - as for every form
    return {
        "prompt": [
            {"role": turn.role, "content": [{"text": None, **part} for part in as_parts(turn.text)]}
            for turn in place_images(row, [PLACE])
        ],
        "chosen": answer(row.chosen),
        "rejected": answer(rejected_text(row)),
        "images": [image_cell(*both) for both in zip(row.images, row.image_keys, strict=True)],
    }


def _check(folder: Path, processor: Any) -> Iterator[Sample]:
    import_consumer("trl")
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    collate: Any = DataCollatorForVisionPreference(processor)
    for where, row in read_rows(folder, lists=("images",)):
        need(true=bool(row["rejected"]), where=where, why="no rejected text")
        sample = read_messages(where, row)
        with naming_row(where, "TRL's collator refuses it"):
            collate([{**row, "images": list(sample.images)}])
        yield sample


FORM = Form(
    name="trl",
    about="vision preferences for TRL's DPOTrainer, Parquet",
    cannot=(
        "TRL shows both answers the same images, so it lacks rejected images; it also lacks further negatives, "
        "licences and how a text was made."
    ),
    opens=open_parquet(
        arrow_schema({"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "images": IMAGES}), _to_record
    ),
    check=_check,
    collates=True,
    use=(
        "```python\n"
        'dataset = datasets.load_dataset("FOLDER")\n'
        "trainer = trl.DPOTrainer(\n"
        '    model, args=trl.DPOConfig(max_length=None), train_dataset=dataset["train"], processing_class=processor\n'
        ")\n"
        "```\n\n"
        "`max_length=None`, since a limit would cut image tokens."
    ),
    owns=frozenset({"data"}),
)
