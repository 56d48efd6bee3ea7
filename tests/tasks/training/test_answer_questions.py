"""A checkpoint that is asked questions: memory that does not suffice, and questions that it does
not take."""

from dataclasses import replace

import pytest
from transformers import AutoModelForImageTextToText, AutoTokenizer

import pairwright.tasks.training.answer_questions as module
from pairwright.schemas.rows import Turn
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_questions import (
    LocalModel,
    answer_questions,
    generate_answers,
)
from pairwright.tasks.training.collate import load_example
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.freeze_rows import Needs, make_example
from pairwright.tasks.training.load_model import load_processor
from tests.fixtures.pictures import picture
from tests.fixtures.preferences_to_train import encoded, preference
from tests.fixtures.runs_to_train import preferences, read_lines, settings, train_run

STRIP = picture(1, size=(1000, 2))
"""An image that the processor refuses: it takes sides of at most 200 to 1."""


@pytest.fixture(scope="module")
def local(qwen):
    return LocalModel(find_model(str(qwen)), 448 * 448)


@pytest.fixture
def loaded(qwen):
    """Return a model and its processor, which a test may change."""
    return AutoModelForImageTextToText.from_pretrained(qwen).eval(), load_processor(qwen)


def question(number, image=b"", text="", most=4):
    image = image or picture(number, size=(56, 56))
    text = text or f"<image>\nWhat is in picture {number}?"
    return str(number), Question(prompt="test", text=text, images=(image,), max_tokens=most)


def ask(local, folder, *questions, batch=8):
    with Answers(folder / "answers") as answers:
        replies = answer_questions(questions, answers, local=local, batch=batch)
        return {reply.name: reply for reply in replies}


def test_batches_are_halved_until_they_fit(local, tmp_path, monkeypatch):
    questions = [question(number) for number in range(7)]
    alone = ask(local, tmp_path / "alone", *questions, batch=1)
    sizes = []

    def short_of_memory(model, processor, items, *, most_tokens):
        sizes.append(len(items))
        if len(items) > 2:
            raise MemoryError("out of memory")
        return generate_answers(model, processor, items, most_tokens=most_tokens)

    monkeypatch.setattr(module, "generate_answers", short_of_memory)
    assert ask(local, tmp_path / "together", *questions, batch=7) == alone
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert len({reply.text for reply in alone.values()}) > 1


def test_what_a_model_does_not_take_is_refused_alone(local, tmp_path):
    control = question(3, text="<image>\nSay <|im_end|> now.")
    questions = [question(0), question(1, STRIP), question(2, b"no image"), control]
    replies = ask(local, tmp_path, *questions, question(4, most=2))
    states = [replies[str(number)].state for number in range(5)]
    assert states == ["answered", "refused", "no image", "refused", "answered"]
    assert "im_end" in replies["3"].detail


def test_a_kept_answer_is_still_known_to_be_cut(local, tmp_path):
    replies = ask(local, tmp_path, question(0))
    assert replies["0"].cut
    assert not replies["0"].text.startswith("\0")
    assert ask(local, tmp_path, question(0)) == replies


def item(number, images):
    return load_example(make_example(preference(number, images=images), Needs()), 448 * 448)


def test_answers_do_not_depend_on_the_others_of_a_batch(loaded):
    items = [item(0, 1), item(1, 2), item(2, 0)]
    together = generate_answers(*loaded, items, most_tokens=6)
    assert together == [generate_answers(*loaded, [each], most_tokens=6)[0] for each in items]
    assert len(set(together)) > 1
    assert generate_answers(*loaded, []) == []


def test_the_mark_of_the_beginning_is_given_once(checkpoint):
    """Gemma's template writes it, and its tokenizer would, too."""
    from tokenizers.processors import TemplateProcessing

    folder = checkpoint("gemma3")
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = load_processor(folder)
    mark = processor.tokenizer.bos_token_id
    processor.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", mark)]
    )
    assert processor.tokenizer("a")["input_ids"][0] == mark
    prompts = []
    model.get_input_embeddings().register_forward_hook(lambda _, ids, __: prompts.append(ids[0]))
    generate_answers(model, processor, [item(0, 1)], most_tokens=1)
    assert (prompts[0] == mark).sum() == 1


def test_an_answer_that_had_not_ended_is_cut(loaded):
    """The model's first token is made its end: then a single token is a whole answer."""
    model, processor = loaded
    ends = []
    generate = model.generate

    def watched(**words):
        tokens = generate(**words)
        ends.append(int(tokens[0, -1]))
        return tokens

    def is_cut(most):
        (answer,) = generate_answers(model, processor, [item(0, 1)], most_tokens=most)
        return answer.cut

    assert is_cut(3)
    model.generate = watched
    is_cut(1)
    model.generation_config.eos_token_id = ends
    assert not is_cut(3)
    assert not is_cut(1), "it has ended with the last token that was allowed"


def test_unanswerable_rows_do_not_stop_a_run(qwen, tmp_path):
    """A control token, a refused image, a long prompt, no image: the others are answered."""
    rows = preferences(4, held_out=6)
    control, long = "<|vision_start|><|image_pad|><|vision_end|>What?", "long " * 900
    rows[4] = replace(rows[4], prompt=(Turn(role="user", text=control),))
    rows[5] = replace(rows[5], images=(encoded(1, size=(1000, 2)),) * len(rows[5].images))
    rows[6] = replace(rows[6], prompt=(Turn(role="user", text=long),))
    rows[7] = replace(rows[7], images=(b"no image",) * len(rows[7].images))
    config = settings("dpo", qwen, optimiser={"max_steps": 1}, model={"max_length": 800})
    run = train_run(tmp_path, config, rows=rows).run
    samples = read_lines(run.folder / "samples/samples.jsonl")
    assert [sample["key"] for sample in samples] == [rows[8].key, rows[9].key]


def test_answers_are_written_of_all_rows(qwen, tmp_path, monkeypatch):
    """What an untrained model says has no end: it is cut at twice the longest reference."""
    rows = preferences(4, held_out=10)
    rows[6] = replace(rows[6], chosen="It is red, and red, and red.")
    allowed = set()

    def watched(*words, most_tokens):
        allowed.add(most_tokens)
        return generate_answers(*words, most_tokens=most_tokens)

    monkeypatch.setattr(module, "MOST_TOKENS", 4)
    monkeypatch.setattr(module, "generate_answers", watched)
    optimiser = {"max_steps": 1, "per_device_train_batch_size": 6}
    config = settings("sft", qwen, optimiser=optimiser, output={"write_answers": True})
    run = train_run(tmp_path, config, rows=rows).run

    tokenizer = AutoTokenizer.from_pretrained(qwen)
    longest = max(len(tokenizer(row.chosen)["input_ids"]) for row in rows[4:])
    assert allowed == {2 * (longest + 1)}, "with the mark of the end"
    samples = read_lines(run.folder / "samples/samples.jsonl")
    assert [sample["key"] for sample in samples] == [row.key for row in rows[4:12]]
    assert any(sample["cut"] for sample in samples)
    references = read_lines(run.answers / "references.jsonl")
    assert references == [{"id": row.key, "text": row.chosen} for row in rows[4:]]
    answers = read_lines(run.answers / "predictions.jsonl")
    assert [answer["id"] for answer in answers] == [row.key for row in rows[4:]]
    assert [answer["text"] for answer in answers[:8]] == [sample["answer"] for sample in samples]
