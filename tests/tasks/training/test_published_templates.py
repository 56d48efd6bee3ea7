"""Published chat templates, those that TRL ships: what is trained is what the template writes of
the whole conversation, token for token, or the model is refused with both."""

import re
from pathlib import Path

import pytest
import torch
import trl
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.training.chat_format import ChatFormat
from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.freeze_rows import Example
from pairwright.tasks.training.losses import CHOSEN
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.template_arguments import set_arguments
from tests.fixtures.examples_to_pack import Loaded

FILES = Path(trl.__file__).parent / "chat_templates"
NAMES = sorted(path.stem for path in FILES.glob("*.jinja") if "_training" not in path.stem)
NEMOTRON = {name for name in NAMES if name.startswith("nemotron")}
REFUSED = {"deepseek_r1_distill", "deepseekv3", *NEMOTRON}
"""Their prompt begins a thought that a finished answer does not have."""
TEXT_ONLY = {
    *("cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gptoss"),
    *("lfm2", "lfm2_v2", "llama3", "llama3_1", "llama3_2", "phi3", "phi3_5"),
    *("qwen2_5", "qwen3", "qwen3_instruct_2507", *NEMOTRON),
}
OPENINGS = {
    "glm4moe": "\n<think></think>\n",
    "gptoss": "<|channel|>final<|message|>",
    "muse_glimmer": " to=user<|message|>",
    "qwen3": "<think>\n\n</think>\n\n",
    "qwen3_5_think": "\n</think>\n\n",
    "qwen3_6": "\n</think>\n\n",
    "qwen3_8": "\n</think>\n\n",
}
"""What they write between the prompt and the answer."""
OWN_END = {"glm4moe"}
"""They write nothing behind the last answer: the tokenizer's end token follows it."""
BY_ANSWER = {
    *("glm4moe", "gptoss", "phi3", "phi3_5", "qwen3", "qwen3_5_nothink", "qwen3_5_think"),
    "qwen3_6",
}
"""They write an earlier answer in another way than the last one."""
TOKENS = re.compile(r"<[｜|/\w▁]+>|\[/?INST\]")
TURNS = ("What is new?", "A red ball. It is new.", "Which is brighter?", "The second one.")


def processor_of(qwen, name, **arguments):
    """Return a tiny processor with a template, and the tokens that the template spells."""
    processor = AutoProcessor.from_pretrained(qwen)
    processor.chat_template = (FILES / f"{name}.jinja").read_text()
    tokens = sorted(set(TOKENS.findall(processor.chat_template)))
    processor.tokenizer.add_tokens(tokens, special_tokens=False)
    processor.tokenizer.bos_token = "<|endoftext|>"
    set_arguments(processor, arguments)
    return processor


def conversation(*texts):
    turns = [Turn(role=("user", "assistant")[n % 2], text=text) for n, text in enumerate(texts)]
    example = Example(
        key="0" * 32, turns=tuple(turns[:1]), images=(), chosen=texts[1], then=tuple(turns[2:])
    )
    return Loaded(example, (), ())


def whole_text(processor, name, texts):
    """Return a conversation as the template writes it."""
    messages = []
    for number, text in enumerate(texts):
        content = text if name in TEXT_ONLY else [{"type": "text", "text": text}]
        messages.append({"role": ("user", "assistant")[number % 2], "content": content})
    return processor.apply_chat_template(messages)


def tokenise(processor, text):
    return processor.tokenizer(text, add_special_tokens=False)["input_ids"]


def assert_as_written(batch, index, processor, name, texts):
    """Check that prompt and answer are the conversation up to the end of the answer."""
    (answer,) = batch.answers[index]
    trained = [*batch.prompts[index], *answer.ids]
    whole = tokenise(processor, whole_text(processor, name, texts))
    if name in OWN_END:
        assert trained.pop() == processor.tokenizer.eos_token_id
        assert trained == whole
    assert trained == whole[: len(trained)]
    assert processor.tokenizer.decode(whole[len(trained) :]).strip() in ("", "<|im_end|>")


def test_there_are_41():
    assert len(NAMES) == 41
    assert {*REFUSED, *TEXT_ONLY, *OPENINGS, *OWN_END} <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_an_answer_is_trained_as_the_template_writes_it(name, qwen):
    processor = processor_of(qwen, name)
    collator = Collator(processor, 4096)
    batch = collator([conversation(*TURNS[:2])])["batch"]
    assert not batch.refused
    assert_as_written(batch, 0, processor, name, TURNS[:2])
    assert collator.chat.frame.opening == OPENINGS.get(name, "")
    assert collator.chat.takes_parts == (name not in TEXT_ONLY)
    (answer,) = batch.answers[0]
    text = processor.tokenizer.decode(answer.loss_tokens)
    assert text.strip().startswith(TURNS[1]), "what the template writes before it bears no loss"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_both_answers_of_a_conversation_are_trained(name, qwen):
    """Where the template writes earlier answers in another way, each answer has a prompt."""
    processor = processor_of(qwen, name)
    batch = Collator(processor, 4096)([conversation(*TURNS)])["batch"]
    assert not batch.refused
    if name in BY_ANSWER:
        assert_as_written(batch, 0, processor, name, TURNS[:2])
        assert_as_written(batch, 1, processor, name, TURNS)
        assert batch.owners == [0, 0]
    else:
        assert_as_written(batch, 0, processor, name, TURNS)
        assert batch.owners == [0]
    texts = [processor.tokenizer.decode(own[0].loss_tokens) for own in batch.answers]
    trained = "".join(texts)
    assert [text in trained for text in TURNS] == [False, True, False, True]
    assert "think" not in trained


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_prompt_that_no_finished_answer_has_is_refused(name, qwen):
    with pytest.raises(ModelError) as error:
        Collator(processor_of(qwen, name), 4096)
    text = str(error.value)
    assert r"<think>\n'. Finished: '" in text
    assert ("enable_thinking" in text) == (name in NEMOTRON)


@pytest.mark.parametrize("name", sorted(NEMOTRON))
def test_an_argument_of_the_template_reconciles_them(name, qwen):
    processor = processor_of(qwen, name, enable_thinking=False)
    batch = Collator(processor, 4096)([conversation(*TURNS[:2])])["batch"]
    prompt = processor.tokenizer.decode(batch.prompts[0])
    assert prompt.endswith("<|im_start|>assistant\n<think></think>")
    assert_as_written(batch, 0, processor, name, TURNS[:2])


@pytest.mark.parametrize(
    ("name", "generated", "answer"),
    [
        ("qwen3", "<think>\nA ball?\n</think>\n\nA ball.<|im_end|>", "A ball."),
        ("qwen3", "A ball.<|im_end|>", "A ball."),
        ("qwen3", "<think>\nA ball, or", ""),
        ("qwen3_5_think", "A ball.<|im_end|>", "A ball."),
        ("gptoss", "A ball.<|return|>", "A ball."),
        ("gptoss", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
         "<|message|>A ball.<|return|>", "A ball."),
        ("deepseekv3", "I see it.\n</think>\n\nA ball.", "A ball."),
        ("deepseekv3", "I see it, or do I", ""),
    ],
)  # fmt: skip
def test_no_thoughts_stay_in_generated_answers(name, generated, answer, qwen):
    processor = processor_of(qwen, name)
    processor.tokenizer.add_special_tokens({"additional_special_tokens": ["<|return|>"]})
    read = ChatFormat(processor).read_answer(tokenise(processor, generated))
    assert read == answer


def test_images_go_into_a_text_only_template(qwen):
    processor = processor_of(qwen, "qwen2_5")
    reference = processor_of(qwen, "qwen2_5_vl")
    parts = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What differs?"}]
    messages = [{"role": "user", "content": parts}]
    texts = [ChatFormat(each).render_prompt(messages) for each in (processor, reference)]
    ends = [text.partition("<|im_start|>user")[2] for text in texts]
    assert ends[0] == ends[1]
    assert ends[0].count("<|image_pad|>") == 2


def test_the_log_probabilities_of_two_prompts_add_up(qwen):
    """Each answer is scored by hand, behind the conversation as the template writes it."""
    processor = processor_of(qwen, "qwen3_5_nothink")
    model = AutoModelForImageTextToText.from_pretrained(qwen).eval()
    model.resize_token_embeddings(len(processor.tokenizer))
    packed = pack_answers(Collator(processor, 4096)([conversation(*TURNS)])["batch"], model)
    scored = score_answers(model, packed)
    expected = 0.0
    tokens = 0
    for count in (2, 4):
        text = whole_text(processor, "qwen3_5_nothink", TURNS[:count]).removesuffix("\n")
        ids = tokenise(processor, text)
        size = len(tokenise(processor, f"{TURNS[count - 1]}<|im_end|>"))
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        expected += logits.gather(1, torch.tensor(ids)[1:, None])[-size:].sum()
        tokens += size
    assert scored.tokens[0, CHOSEN] == tokens
    torch.testing.assert_close(scored.logps[0, CHOSEN], expected, rtol=1e-5, atol=0)
