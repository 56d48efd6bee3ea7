"""Write triplets for image editing, as trainers of InstructPix2Pix read them from Parquet.

The first three columns are those that diffusers' ``train_instruct_pix2pix.py`` takes without
options: ``input_image``, ``edit_prompt``, ``edited_image``; ``failed_image`` is the failed edit.
"""

from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.form import ExportSettings, Form
from pairwright.tasks.export.triplets import check_instruction, make_triplets

IMAGES = ("input_image", "edited_image", "failed_image")
FEATURES: parquet.Feature = {
    "input_image": parquet.IMAGE,
    "edit_prompt": parquet.TEXT,
    "edited_image": parquet.IMAGE,
    "failed_image": parquet.IMAGE,
    "task": parquet.TEXT,
    "key": parquet.TEXT,
    "pair": parquet.TEXT,
}


def _to_records(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> list[parquet.Record]:
    records: list[parquet.Record] = []
    for triplet in make_triplets(row):
        record = {
            "input_image": triplet.source,
            "edit_prompt": triplet.instruction,
            "edited_image": triplet.edited,
            "failed_image": triplet.failed,
            "task": triplet.task,
            "key": triplet.key,
            "pair": row.subject,
        }
        records.append(record)
    return records


def _check(record: parquet.Record, processor: Any) -> None:  # noqa: ARG001 - as for every form
    check_instruction(record["edit_prompt"])


FORM = Form(
    name="edit",
    about="triplets for image editing, with the failed edit: Parquet as InstructPix2Pix reads it",
    cannot=(
        "It holds edits: instructions that a source gives with its pairs, the only thing added, "
        "taken away or exchanged between two rendered scenes, and the removals behind rejected "
        "images. Additions and removals give both directions. It lacks descriptions and rejected "
        "texts."
    ),
    opens=parquet.open_records(parquet.arrow_schema(FEATURES), _to_records),
    check=parquet.read_parquet(_check, images=IMAGES),
    packages=("datasets",),
    use=(
        "```bash\n"
        "accelerate launch train_instruct_pix2pix.py --dataset_name FOLDER \\\n"
        "    --pretrained_model_name_or_path MODEL --seed 0\n"
        "```\n\n"
        "`failed_image` is empty where there is no failed edit."
    ),
    owns=frozenset({"data"}),
    knows_pairs=True,
)
