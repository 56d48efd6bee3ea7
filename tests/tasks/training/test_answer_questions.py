"""A checkpoint that is asked questions: memory that does not suffice, and questions that it does
not take."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

import pairwright.tasks.training.answer_questions as module
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Turn
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_questions import (
    Generated,
    LocalModel,
    answer_questions,
    generate_answers,
)
from pairwright.tasks.training.collate import Loaded, load_example
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.fit_preferences import fit_preferences
from pairwright.tasks.training.freeze_rows import Needs, make_example
from pairwright.tasks.training.load_model import load_processor
from tests.fixtures.families_of_models import write_gemma3, write_qwen2_vl
from tests.fixtures.pictures import picture
from tests.fixtures.preferences_to_train import encoded, preference
from tests.fixtures.runs_to_train import preferences, settings, write_run


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return LocalModel(
        find_model(str(write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen"))), 448 * 448
    )


def question(
    number: int, image: bytes = b"", text: str = "", most: int = 4
) -> tuple[str, Question]:
    shown = image or picture(number, size=(56, 56))
    words = text or f"<image>\nWhat is in picture {number}?"
    return str(number), Question(prompt="test", text=words, images=(shown,), max_tokens=most)


def asked(
    local: LocalModel, folder: Path, *questions: tuple[str, Question], batch: int = 8
) -> dict[str, Reply]:
    with Answers(folder / "answers") as answers:
        return {
            reply.name: reply
            for reply in answer_questions(questions, answers, local=local, batch=batch)
        }


def test_batches_are_halved_until_they_fit(
    local: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [question(number) for number in range(7)]
    alone = asked(local, tmp_path / "alone", *questions, batch=1)
    sizes: list[int] = []
    real = module.generate_answers

    def short_of_memory(
        model: Any, processor: Any, items: Any, *, most_tokens: int
    ) -> list[Generated]:
        sizes.append(len(items))
        if len(items) > 2:
            raise MemoryError("out of memory")
        return real(model, processor, items, most_tokens=most_tokens)

    monkeypatch.setattr(module, "generate_answers", short_of_memory)
    assert asked(local, tmp_path / "together", *questions, batch=7) == alone
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert len({reply.text for reply in alone.values()}) > 1


def test_what_a_model_does_not_take_is_refused_alone(local: LocalModel, tmp_path: Path) -> None:
    strip = picture(1, size=(1000, 2))  # its processor wants sides of at most 200 to 1
    found = asked(
        local,
        tmp_path,
        question(0),
        question(1, strip),
        question(2, b"no image"),
        question(3, text="<image>\nSay <|im_end|> now."),
        question(4, most=2),
    )
    states = {name: reply.state for name, reply in found.items()}
    assert states == {
        "0": "answered",
        "1": "refused",
        "2": "no image",
        "3": "refused",
        "4": "answered",
    }
    assert "im_end" in found["3"].detail


def test_a_cut_answer_is_said_to_be_cut_also_when_it_is_kept(
    local: LocalModel, tmp_path: Path
) -> None:
    first = asked(local, tmp_path, question(0))
    assert first["0"].cut
    assert not first["0"].text.startswith("\0")
    assert asked(local, tmp_path, question(0)) == first


def loaded(number: int, images: int) -> Loaded:
    return load_example(make_example(preference(number, images=images), Needs()), 448 * 448)


def test_answers_do_not_depend_on_the_others_of_a_batch(qwen: Path) -> None:
    model, processor = (
        AutoModelForImageTextToText.from_pretrained(qwen).eval(),
        load_processor(qwen),
    )
    items = [loaded(0, 1), loaded(1, 2), loaded(2, 0)]
    together = generate_answers(model, processor, items, most_tokens=6)
    assert together == [
        generate_answers(model, processor, [item], most_tokens=6)[0] for item in items
    ]
    assert len(set(together)) > 1
    assert generate_answers(model, processor, []) == []


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
    model.get_input_embeddings().register_forward_hook(
        lambda layer, words, result: given.append(words[0])
    )
    generate_answers(model, processor, [loaded(0, 1)], most_tokens=1)
    assert (given[0] == mark).sum() == 1


def test_an_answer_that_had_not_ended_is_cut(qwen: Path) -> None:
    """The model's first token is made its end: then a single token is a whole answer."""
    model: Any = AutoModelForImageTextToText.from_pretrained(qwen).eval()
    processor = load_processor(qwen)
    (said,) = generate_answers(model, processor, [loaded(0, 1)], most_tokens=3)
    assert said.cut
    made: list[int] = []
    generate = model.generate
    model.generate = lambda **given: (
        made.extend((found := generate(**given))[0, -1:].tolist()) or found
    )
    generate_answers(model, processor, [loaded(0, 1)], most_tokens=1)
    model.generation_config.eos_token_id = made
    (said,) = generate_answers(model, processor, [loaded(0, 1)], most_tokens=3)
    assert not said.cut
    (said,) = generate_answers(model, processor, [loaded(0, 1)], most_tokens=1)
    assert not said.cut, "it has ended with the last token that was allowed"


def prompt(text: str) -> tuple[Turn, ...]:
    return (Turn(role="user", text=text),)


def test_unanswerable_rows_do_not_stop_a_run(
    tmp_path: Path,
) -> None:
    """A control token, an image that the processor refuses, a long prompt, no image at all: the
    others are answered."""
    model = write_qwen2_vl(tmp_path / "qwen")
    rows = preferences(4, held_out=6)
    strip = encoded(1, size=(1000, 2))
    odd = {
        4: replace(rows[4], prompt=prompt("<|vision_start|><|image_pad|><|vision_end|>What?")),
        5: replace(rows[5], images=(strip,) * len(rows[5].images)),
        6: replace(rows[6], prompt=prompt("long " * 900)),
        7: replace(rows[7], images=(b"no image",) * len(rows[7].images)),
    }
    config = settings("dpo", model, optimiser={"max_steps": 1}, model={"max_length": 800})
    job = write_run(tmp_path, config, rows=[odd.get(place, row) for place, row in enumerate(rows)])
    assert fit_preferences(job).finished
    lines = (job.run.folder / "samples/samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [rows[8].key, rows[9].key]


def test_write_answers_covers_all_rows_and_long_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an untrained model says has no end: it is cut at twice the longest reference."""
    rows = preferences(4, held_out=10)
    rows[6] = replace(rows[6], chosen="It is red, and red, and red.")
    model, allowed = write_qwen2_vl(tmp_path / "qwen"), list[int]()

    def say(*words: Any, most_tokens: int) -> list[Generated]:
        allowed.append(most_tokens)
        return generate_answers(*words, most_tokens=most_tokens)

    monkeypatch.setattr(module, "MOST_TOKENS", 4)
    monkeypatch.setattr(module, "generate_answers", say)
    optimiser = {"max_steps": 1, "per_device_train_batch_size": 6}
    job = write_run(
        tmp_path,
        settings("sft", model, optimiser=optimiser, output={"write_answers": True}),
        rows=rows,
    )
    assert fit_preferences(job).finished
    tokenizer = AutoTokenizer.from_pretrained(model)
    longest = (
        max(len(tokenizer(row.chosen)["input_ids"]) for row in rows[4:]) + 1
    )  # the mark of the end
    assert set(allowed) == {2 * longest}
    samples = [
        json.loads(line)
        for line in (job.run.folder / "samples/samples.jsonl").read_text().splitlines()
    ]
    assert [sample["key"] for sample in samples] == [row.key for row in rows[4:12]]
    assert any(sample["cut"] for sample in samples)
    said, true = (
        [json.loads(line) for line in (job.run.answers / f"{name}.jsonl").read_text().splitlines()]
        for name in ("predictions", "references")
    )
    assert (
        [one["id"] for one in said] == [one["id"] for one in true] == [row.key for row in rows[4:]]
    )
    assert [one["text"] for one in said][:8] == [sample["answer"] for sample in samples]
    assert [one["text"] for one in true] == [row.chosen for row in rows[4:]]
