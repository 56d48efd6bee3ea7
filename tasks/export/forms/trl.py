"""Write vision preferences for TRL's ``DPOTrainer``, in Parquet.

A message's content is a list; in the prompt it has a slot per image, which the trainer fills in
order.
"""

from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.form import (
    IMAGE_MARK,
    ExportSettings,
    Form,
    mark_images,
    rejected_text,
    require,
    split_parts,
    wrap_row_errors,
)


def _to_record(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> parquet.Record:
    prompt: list[parquet.Record] = []
    for turn in mark_images(row, [IMAGE_MARK]):
        content = [{"text": None, **part} for part in split_parts(turn.text)]
        prompt.append({"role": turn.role, "content": content})
    return {
        "prompt": prompt,
        "chosen": parquet.answer_messages(row.chosen),
        "rejected": parquet.answer_messages(rejected_text(row)),
        "images": parquet.image_cells(row.images, row.image_keys),
    }


def _check(row: parquet.Record, processor: Any) -> None:
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    require(row["rejected"], "no rejected text")
    parquet.check_messages(row)
    with wrap_row_errors("TRL's collator refuses it"):
        DataCollatorForVisionPreference(processor)([row])


FORM = Form(
    name="trl",
    about="vision preferences for TRL's DPOTrainer, Parquet",
    cannot=(
        "TRL shows both answers the same images, so it lacks rejected images; "
        "it also lacks further negatives, licences and how a text was made."
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
        "    model, args=trl.DPOConfig(max_length=None), "
        'train_dataset=dataset["train"], processing_class=processor\n'
        ")\n"
        "```\n\n"
        "`max_length=None`, since a limit would cut image tokens."
    ),
    owns=frozenset({"data"}),
)
