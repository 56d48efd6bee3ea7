"""What TRL's own collator makes of the rows that are exported for it."""

from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, preference
from tests.fixtures.families_of_models import write_qwen2_vl


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory):
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(write_qwen2_vl(tmp_path_factory.mktemp("qwen")))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    return lambda folder: datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))


def test_trl_collates_the_rows_with_their_images(tmp_path: Path, processor, load) -> None:
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    rows = [preference(n, images=1 + n % 2, rejected_images=2) for n in range(4)]
    tally = export_some(tmp_path / "out", rows, form="trl")
    assert tally.rows == 4
    loaded = load(tmp_path / "out")["train"]
    assert loaded.column_names == ["prompt", "chosen", "rejected", "images"]
    batch = DataCollatorForVisionPreference(processor)([dict(row) for row in loaded])
    # Images of 56 x 56 pixels are 4 x 4 patches, and 2 x 2 of those make a token: 4 tokens each. Of
    # the rows, two have
    # one image and two have two, and each is shown to the chosen and to the rejected text.
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4]] * 12
    token = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert (batch["input_ids"] == token).sum(dim=1).tolist() == [4, 8, 4, 8] * 2
    said = [
        processor.tokenizer.decode(ids[mask.bool()], skip_special_tokens=True).strip()
        for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)
    ]
    assert said == [row.chosen for row in rows] + [row.rejected for row in rows]


def test_images_keep_their_bytes_and_the_first_slot_is_the_first_image(
    tmp_path: Path, load
) -> None:
    row = replace(
        preference(1),
        prompt=(Turn(role="user", text="First <image>, then <image>\nWhat differs?"),),
    )
    export_some(tmp_path / "out", [row], form="trl")
    loaded = load(tmp_path / "out")["train"].cast_column(
        "images", datasets.List(datasets.Image(decode=False))
    )[0]
    assert tuple(image["bytes"] for image in loaded["images"]) == row.images
    assert loaded["prompt"][0]["content"] == [
        {"type": "text", "text": "First "},
        {"type": "image", "text": None},
        {"type": "text", "text": ", then "},
        {"type": "image", "text": None},
        {"type": "text", "text": "\nWhat differs?"},
    ]


def test_rows_that_trl_cannot_hold_are_counted_and_named(tmp_path: Path) -> None:
    good = preference(1)
    rows = [
        good,
        replace(good, rejected=" "),
        replace(good, rejected=good.chosen),
        replace(good, chosen=""),
        replace(good, prompt=(Turn(role="user", text="one <image> only"),)),
        replace(good, chosen="It shows <image>."),
        replace(good, prompt=(*good.prompt, Turn(role="assistant", text="a"))),
    ]
    tally = export_some(tmp_path / "out", rows, form="trl")
    assert tally.rows == 1
    assert dict(tally.unheld) == {
        "no rejected text": 1,
        "the rejected text is the chosen one": 1,
        "no chosen text": 1,
        "the prompt has <image> in its words": 1,
        "an answer has the mark of an image, a video or a sound in its words": 1,
        "user and assistant do not take turns in the prompt": 1,
    }
    readme = (tmp_path / "out/README.md").read_text()
    assert "* 1 row is left out: no rejected text." in readme
    assert "it lacks rejected images" in readme
    with pytest.raises(ConfigError, match=r"--format trl: .*\(1\).*counterfactuals\.enabled=true"):
        export_some(tmp_path / "none", rows[1:2], form="trl")
    assert not (tmp_path / "none").exists()
