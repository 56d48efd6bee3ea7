"""Write triplets for image editing in the columns of OmniEdit-Filtered-1.2M.

``src_img``, ``edited_img`` and ``edited_prompt_list``, with ``task``, ``width`` and ``height`` of
the source image; ``failed_img`` is the failed edit. The scores of OmniEdit's judges are not there.
"""

from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.coco import size_of
from pairwright.tasks.export.form import ExportSettings, Form, require
from pairwright.tasks.export.triplets import check_instruction, make_triplets

IMAGES = ("src_img", "edited_img", "failed_img")
FEATURES: parquet.Feature = {
    "omni_edit_id": parquet.TEXT,
    "task": parquet.TEXT,
    "src_img": parquet.IMAGE,
    "edited_img": parquet.IMAGE,
    "edited_prompt_list": parquet.list_feature(parquet.TEXT),
    "width": parquet.value_feature("int64"),
    "height": parquet.value_feature("int64"),
    "failed_img": parquet.IMAGE,
    "pair": parquet.TEXT,
}


def _to_records(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> list[parquet.Record]:
    records: list[parquet.Record] = []
    for triplet in make_triplets(row):
        width, height = size_of(triplet.source["bytes"])
        record = {
            "omni_edit_id": triplet.key,
            "task": triplet.task,
            "src_img": triplet.source,
            "edited_img": triplet.edited,
            "edited_prompt_list": [triplet.instruction],
            "width": width,
            "height": height,
            "failed_img": triplet.failed,
            "pair": row.subject,
        }
        records.append(record)
    return records


def _check(record: parquet.Record, processor: Any) -> None:  # noqa: ARG001 - as for every form
    prompts = record["edited_prompt_list"]
    require(prompts, "no instruction")
    for prompt in prompts:
        check_instruction(prompt)
    (image,) = record["src_img"]
    require(image.size == (record["width"], record["height"]), "width and height are wrong")


FORM = Form(
    name="omniedit",
    about="triplets for image editing, with the failed edit: Parquet in OmniEdit's columns",
    cannot=(
        "It holds pairs with an instruction, as the format edit does, and no scores of judges "
        "(sc_score_1, pq_score, o_score)."
    ),
    opens=parquet.open_records(parquet.arrow_schema(FEATURES), _to_records),
    check=parquet.read_parquet(_check, images=IMAGES),
    packages=("datasets",),
    use='```python\ndataset = datasets.load_dataset("FOLDER", split="train")\n```',
    owns=frozenset({"data"}),
    knows_pairs=True,
)
