"""Small checkpoints: the library's own loaders take them, the same texts give the same bytes, and they learn."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import StoreError
from pairwright.tasks.training.tiny_model import SIZES, write_tiny_model

TEXTS = (
    "Compare the two images and say how they differ.",
    "The first image shows a red ball, while the second image shows a blue cube.",
    "The first image shows a blue ball, while the second image shows no ball.",
)
RED, BLUE = (Image.new("RGB", (256, 192), colour) for colour in ("red", "blue"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models"), TEXTS)


@pytest.fixture(scope="module")
def processor(written: Path) -> Any:
    return AutoProcessor.from_pretrained(written, local_files_only=True)


def load(folder: Path) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder, local_files_only=True)


def conversation(processor: Any, answer: str = "") -> str:
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": TEXTS[0]}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    return prompt + (f"{answer}<|im_end|>" if answer else "")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("size", SIZES)
def test_all_weights_load_and_none_is_missing(size: str, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, TEXTS, size=size)
    loaded: Any = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    model, told = loaded
    assert type(model).__name__ == "Qwen2VLForConditionalGeneration"
    assert not any(told.values())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_same_texts_give_the_same_bytes_in_any_order_and_another_process(written: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from pairwright.tasks.training.tiny_model import write_tiny_model as write;"
        "print(write(Path(sys.argv[1]), sys.argv[2:]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *reversed(TEXTS)], capture_output=True, text=True, check=True
    )
    again = Path(told.stdout.strip())
    assert again.name == written.name
    assert files(again) == files(written)
    assert [path.name for path in tmp_path.iterdir()] == [again.name]  # nothing is left beside it


def test_other_texts_seed_or_size_give_another_model(written: Path, tmp_path: Path) -> None:
    others = [
        write_tiny_model(tmp_path, (*TEXTS, "no difference")),
        write_tiny_model(tmp_path, TEXTS, seed=1),
        write_tiny_model(tmp_path, TEXTS, size="small"),
    ]
    assert len({written.name, *(other.name for other in others)}) == 4
    assert files(others[1])["model.safetensors"] != files(written)["model.safetensors"]
    assert files(others[1])["tokenizer.json"] == files(written)["tokenizer.json"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file is in the way")
    with pytest.raises(StoreError, match=str(tmp_path)):
        write_tiny_model(tmp_path / "models", TEXTS)


def test_the_template_puts_images_where_they_stand(processor: Any) -> None:
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    said = [{"role": "assistant", "content": "One."}]
    mixed = [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B"}, {"type": "image"}]
    assert processor.apply_chat_template([{"role": "user", "content": mixed}, *said]) == (
        f"<|im_start|>user\nA{image}B{image}<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n"
    )
    assert conversation(processor) == (f"<|im_start|>user\n{image}{image}{TEXTS[0]}<|im_end|>\n<|im_start|>assistant\n")


def test_the_model_learns_to_tell_images_apart_and_says_so(written: Path, processor: Any) -> None:
    answers = ("The first image shows a red ball.", "The first image shows a blue cube.")
    pairs = ((RED, BLUE), (BLUE, RED))
    batch = processor(
        text=[conversation(processor, answer) for answer in answers],
        images=[image for pair in pairs for image in pair],
        return_tensors="pt",
        padding=True,
    )
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    labels[:, : len(processor(text=[conversation(processor)], images=[RED, BLUE])["input_ids"][0])] = -100
    torch.manual_seed(0)
    model = load(written)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for _ in range(40):
        loss = model(**batch, labels=labels).loss
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[0] > 4
    assert losses[-1] < 0.1
    asked = processor(text=[conversation(processor)] * 2, images=[RED, BLUE, BLUE, RED], return_tensors="pt")
    told = model.generate(**asked, max_new_tokens=30)[:, asked["input_ids"].shape[1] :]
    assert processor.batch_decode(told, skip_special_tokens=True) == list(answers)
