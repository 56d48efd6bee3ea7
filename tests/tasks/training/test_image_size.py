"""One size of images: in training, by the saved processor alone, and in the evaluation."""

import logging

import pytest
from PIL import Image
from transformers import AutoProcessor

from pairwright.flows.training import evaluate_model
from pairwright.schemas.rows import Turn
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_questions import LocalModel
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.freeze_rows import Example
from pairwright.tasks.training.image_size import (
    bound_pixels,
    grid_of,
    read_max_pixels,
    write_image_size,
)
from pairwright.tasks.training.load_model import load_processor
from tests.fixtures.pictures import picture

TURNS = (Turn(role="user", text="What is it?"),)
MAX_PIXELS = 448 * 448


def example(size):
    return Example(key="0" * 32, turns=TURNS, images=(picture(size=size),), chosen="A dog.")


def image_tokens(ids, processor):
    return list(ids).count(processor.tokenizer.convert_tokens_to_ids("<|image_pad|>"))


@pytest.fixture
def finished(folder):
    """Return a model's folder with the processor that a training saves."""
    processor = load_processor(folder)
    bound_pixels(processor, MAX_PIXELS)
    processor.save_pretrained(folder)
    write_image_size(folder, processor, MAX_PIXELS)
    return folder


@pytest.mark.parametrize("size", [(1600, 1200), (517, 387), (2400, 300), (448, 449), (300, 200)])
def test_tokens_are_equal_in_training_processor_and_evaluation(qwen, finished, size) -> None:
    processor = load_processor(qwen)
    bound_pixels(processor, MAX_PIXELS)
    loaded = load_example(example(size), MAX_PIXELS, grid=grid_of(processor))
    batch = Collator(processor, 8192)([loaded])["batch"]
    trained = image_tokens(batch.prompts[0], processor)

    saved = AutoProcessor.from_pretrained(finished)
    text = "<|vision_start|><|image_pad|><|vision_end|>"
    alone = saved(text=[text], images=[Image.new("RGB", size)], return_tensors="pt")
    assert image_tokens(alone["input_ids"][0].tolist(), saved) == trained

    local = LocalModel(find_model(str(finished)), read_max_pixels(finished), is_told=True)
    asked = load_example(example(size), local.max_pixels, grid=local.grid)
    assert asked.images[0].size == loaded.images[0].size
    if size == (1600, 1200):  # 504 x 364, 28 pixels to a token
        assert trained == 18 * 13


def test_other_bounds_of_a_processor_stay(qwen) -> None:
    processor = load_processor(qwen)
    lower, upper = grid_of(processor).min_pixels, grid_of(processor).max_pixels
    bound_pixels(processor, 10 * upper)
    assert (grid_of(processor).min_pixels, grid_of(processor).max_pixels) == (lower, upper)
    bound_pixels(processor, 784)
    assert (grid_of(processor).min_pixels, grid_of(processor).max_pixels) == (784, 784)


def test_processors_without_a_grid_are_left_alone(checkpoint, tmp_path) -> None:
    processor = load_processor(checkpoint("llava_onevision"))
    before = processor.image_processor.to_dict()
    bound_pixels(processor, 10_000)
    assert processor.image_processor.to_dict() == before
    assert grid_of(processor) is None
    write_image_size(tmp_path, processor, 10_000)
    assert read_max_pixels(tmp_path) == 10_000
    assert read_max_pixels(tmp_path / "none") == 0


def test_an_image_has_no_more_tiles_than_its_pixels(checkpoint, tmp_path) -> None:
    """A picture of 2:1 is cut into two tiles of 56 pixels and the whole, or it is one tile."""
    counts = []
    for max_pixels in (2 * 56 * 56, 56 * 56):
        processor = load_processor(checkpoint("internvl"))
        bound_pixels(processor, max_pixels)
        processor.save_pretrained(tmp_path)
        saved = AutoProcessor.from_pretrained(tmp_path)
        inputs = saved(text=["<IMG_CONTEXT>"], images=[Image.new("RGB", (112, 56))])
        counts.append(len(inputs["pixel_values"]))
    assert counts == [3, 1]


@pytest.mark.parametrize(("told", "used", "warned"), [(0, 200_704, 0), (50_176, 50_176, 1)])
def test_evaluation_takes_the_size_of_the_training(
    finished, tmp_path, monkeypatch, caplog, told, used, warned
) -> None:
    sizes = []

    def answer(questions, answers, *, local, batch):
        sizes.append((local.max_pixels, grid_of(local.chat.processor).max_pixels))
        return iter(())

    monkeypatch.setattr("pairwright.tasks.training.answer_questions.answer_questions", answer)
    config = evaluate_model.EvaluationConfig(
        model=str(finished), benchmark="cola", data=tmp_path, max_pixels=told
    )
    with caplog.at_level(logging.WARNING):
        respond, _ = evaluate_model._load_model(config)
    with Answers(tmp_path / "answers") as answers:
        list(respond([("0", Question(prompt="", text="What?"))], answers))
    assert sizes == [(used, used)]
    assert len(caplog.records) == warned
    assert all("200,704" in record.getMessage() for record in caplog.records)
