"""Small checkpoints: the library's own loaders take them, and the same texts give the same
bytes."""

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.tasks.training.tiny_model import SIZES, write_tiny_model

TEXTS = (
    "Compare the two images and say how they differ.",
    "The first image shows a red ball, while the second image shows a blue cube.",
    "The first image shows a blue ball, while the second image shows no ball.",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("models"), TEXTS)


@pytest.fixture(scope="module")
def processor(written):
    return AutoProcessor.from_pretrained(written, local_files_only=True)


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("size", SIZES)
def test_all_weights_load_and_none_is_missing(size, tmp_path):
    folder = write_tiny_model(tmp_path, TEXTS, size=size)
    loaded = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    model, report = loaded
    assert type(model).__name__ == "Qwen2VLForConditionalGeneration"
    assert not any(report.values())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_same_texts_give_the_same_bytes_in_any_order_and_another_process(written, tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from pairwright.tasks.training.tiny_model import write_tiny_model as write;"
        "print(write(Path(sys.argv[1]), sys.argv[2:]))"
    )
    report = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *reversed(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    again = Path(report.stdout.strip())
    assert again.name == written.name
    assert files(again) == files(written)
    assert [path.name for path in tmp_path.iterdir()] == [again.name]  # nothing is left beside it


def test_other_texts_seed_or_size_give_another_model(written, tmp_path):
    others = [
        write_tiny_model(tmp_path, (*TEXTS, "no difference")),
        write_tiny_model(tmp_path, TEXTS, seed=1),
        write_tiny_model(tmp_path, TEXTS, size="small"),
    ]
    assert len({written.name, *(other.name for other in others)}) == 4
    assert files(others[1])["model.safetensors"] != files(written)["model.safetensors"]
    assert files(others[1])["tokenizer.json"] == files(written)["tokenizer.json"]


def test_the_template_puts_images_where_they_stand(processor):
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    answers = [{"role": "assistant", "content": "One."}]
    first, second = ({"type": "text", "text": text} for text in "AB")
    mixed = {"role": "user", "content": [first, {"type": "image"}, second, {"type": "image"}]}
    assert processor.apply_chat_template([mixed, *answers]) == (
        f"<|im_start|>user\nA{image}B{image}<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n"
    )
    leading = {"role": "user", "content": [{"type": "image"}, {"type": "image"}, first]}
    assert processor.apply_chat_template([leading], add_generation_prompt=True) == (
        f"<|im_start|>user\n{image}{image}A<|im_end|>\n<|im_start|>assistant\n"
    )
