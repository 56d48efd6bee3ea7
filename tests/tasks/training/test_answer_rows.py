"""A model's answers: what it is given, and what is taken for its answer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from pairwright.tasks.training.answer_rows import answer_rows, say_answers
from pairwright.tasks.training.collate import Loaded, load_example
from pairwright.tasks.training.examples import Needs, make_example
from pairwright.tasks.training.load_model import load_processor
from tests.fixtures.families_of_models import write_gemma3, write_qwen2_vl
from tests.fixtures.preferences_to_train import preference


def loaded(number: int, images: int) -> Loaded:
    return load_example(make_example(preference(number, images=images), Needs()), 448 * 448)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")


def test_answers_do_not_depend_on_the_others_of_a_batch(qwen: Path) -> None:
    model, processor = AutoModelForImageTextToText.from_pretrained(qwen).eval(), load_processor(qwen)
    items = [loaded(0, 1), loaded(1, 2), loaded(2, 0)]
    together = answer_rows(model, processor, items, most_tokens=6)
    assert together == [answer_rows(model, processor, [item], most_tokens=6)[0] for item in items]
    assert len(set(together)) > 1
    assert answer_rows(model, processor, []) == []


def test_the_mark_of_the_beginning_is_given_once(tmp_path: Path) -> None:
    """Gemma's template writes it, and its tokenizer would, too."""
    from tokenizers.processors import TemplateProcessing

    folder = write_gemma3(tmp_path / "gemma")
    model: Any = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = load_processor(folder)
    mark = processor.tokenizer.bos_token_id
    processor.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", mark)]
    )
    assert processor.tokenizer("a")["input_ids"][0] == mark
    given: list[torch.Tensor] = []
    model.get_input_embeddings().register_forward_hook(lambda layer, words, result: given.append(words[0]))
    answer_rows(model, processor, [loaded(0, 1)], most_tokens=1)
    assert (given[0] == mark).sum() == 1


def test_an_answer_that_had_not_ended_is_cut(qwen: Path) -> None:
    """The model's first token is made its end: then a single token is a whole answer."""
    model: Any = AutoModelForImageTextToText.from_pretrained(qwen).eval()
    processor = load_processor(qwen)
    (said,) = say_answers(model, processor, [loaded(0, 1)], most_tokens=3)
    assert said.cut
    made: list[int] = []
    generate = model.generate
    model.generate = lambda **given: made.extend((found := generate(**given))[0, -1:].tolist()) or found
    say_answers(model, processor, [loaded(0, 1)], most_tokens=1)
    model.generation_config.eos_token_id = made
    (said,) = say_answers(model, processor, [loaded(0, 1)], most_tokens=3)
    assert not said.cut
    (said,) = say_answers(model, processor, [loaded(0, 1)], most_tokens=1)
    assert not said.cut, "it has ended with the last token that was allowed"
