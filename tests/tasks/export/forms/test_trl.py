"""What TRL's own collator makes of the rows that are exported for it."""

from dataclasses import replace

import datasets

from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, preference, rows_of


def test_trl_collates_the_rows_with_their_images(tmp_path, processor, offline):
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    rows = [preference(number, images=1 + number % 2, rejected_images=2) for number in range(4)]
    assert export_some(tmp_path / "out", rows, form="trl").rows == 4
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=offline)
    assert loaded.column_names == ["prompt", "chosen", "rejected", "images"]
    batch = DataCollatorForVisionPreference(processor)([dict(row) for row in loaded])
    # Images of 56 x 56 pixels are 4 x 4 patches, and 2 x 2 of those make a token: 4 tokens each.
    # Two rows have one image and two have two; each is shown to the chosen and the rejected text.
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4]] * 12
    token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert (batch["input_ids"] == token).sum(dim=1).tolist() == [4, 8, 4, 8] * 2
    answers = [
        processor.tokenizer.decode(ids[mask.bool()], skip_special_tokens=True).strip()
        for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)
    ]
    assert answers == [row.chosen for row in rows] + [row.rejected for row in rows]


def test_images_keep_their_bytes_and_the_first_slot_is_the_first_image(tmp_path):
    text = "First <image>, then <image>\nWhat differs?"
    row = replace(preference(1), prompt=(Turn(role="user", text=text),))
    export_some(tmp_path, [row], form="trl")
    (read,) = rows_of(tmp_path)
    assert tuple(image["bytes"] for image in read["images"]) == row.images
    assert read["prompt"][0]["content"] == [
        {"type": "text", "text": "First "},
        {"type": "image", "text": None},
        {"type": "text", "text": ", then "},
        {"type": "image", "text": None},
        {"type": "text", "text": "\nWhat differs?"},
    ]
