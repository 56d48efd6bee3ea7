"""Write vision preferences for TRL's ``DPOTrainer``: prompt, chosen, rejected and images, in Parquet.

A message's content is a list; in the prompt it has a slot per image, which the trainer fills in
order.
"""

from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.form import (
    PLACE,
    ExportSettings,
    Form,
    as_parts,
    naming_row,
    need,
    place_images,
    rejected_text,
)


def _to_record(row: PreferenceRow, setting: ExportSettings) -> parquet.Record:  # noqa: ARG001 - as for every form
    return {
        "prompt": [
            {"role": turn.role, "content": [{"text": None, **part} for part in as_parts(turn.text)]}
            for turn in place_images(row, [PLACE])
        ],
        "chosen": parquet.answer(row.chosen),
        "rejected": parquet.answer(rejected_text(row)),
        "images": [
            parquet.image_cell(*both) for both in zip(row.images, row.image_keys, strict=True)
        ],
    }


def _check(row: parquet.Record, processor: Any) -> None:
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    need(row["rejected"], "no rejected text")
    parquet.check_messages(row)
    with naming_row("TRL's collator refuses it"):
        DataCollatorForVisionPreference(processor)([row])


FORM = Form(
    name="trl",
    about="vision preferences for TRL's DPOTrainer, Parquet",
    cannot=(
        "TRL shows both answers the same images, so it lacks rejected images; it also lacks further negatives, "
        "licences and how a text was made."
    ),
    opens=parquet.open_parquet(
        parquet.arrow_schema(
            {
                "prompt": parquet.MESSAGES,
                "chosen": parquet.MESSAGES,
                "rejected": parquet.MESSAGES,
                "images": parquet.IMAGES,
            }
        ),
        _to_record,
    ),
    check=parquet.read_parquet(_check),
    packages=("datasets", "trl"),
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
