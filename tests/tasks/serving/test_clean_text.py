"""What models write around an answer is taken off; the answer itself stays as it is."""

import pytest

from pairwright.tasks.serving.clean_text import clean_text

CAPTION = (
    "The photograph shows a boy and a red mug on a table. In the background one sees a wall and a "
    "shelf with books."
)
SUMMARY = "Commonalities: Both show boats.\n\nDifferences:\n1. Object types: A ship."
AROUND = {
    "thoughts": [
        "<think>\nLet me see.\n</think>\n\n{}",
        "Let me see.\n</think>\n\n{}",
        "<think>Let me see.</think> {}",
        "Let me see.</think>{}",
        "<thinking>Let me see.</thinking>\n{}",
        "<thought>Let me see.</thought>{}",
        "[THINK]Let me see.[/THINK]{}",
        "\u25c1think\u25b7Let me see.\u25c1/think\u25b7{}",
        "<seed:think>Let me see.</seed:think>{}",
        "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant"
        "<|channel|>final<|message|>{}<|return|>",
        "analysisLet me see.assistantfinal{}",
        "<|channel>thought\nLet me see.<channel|>{}",
        "<think>Let me see.</think><answer>{}</answer>",
        "<think></think>\n\n{}",
        "Reasoning: the mug is red.\n\n**Answer:** {}",
        "Okay, let me see. A mug.\n\nFinal answer: {}",
        "<|start|>assistant<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>B<|end|><|start|>assistant<|channel|>final <|constrain|>json"
        "<|message|>{}<|return|>",
        "<|inner_prefix|>Let me see.<|inner_suffix|>{}",
        "<|START_THINKING|>See.<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
        "<seed:think>See.<seed:cot_budget_reflect>10</seed:cot_budget_reflect></seed:think>{}",
        "See.\n</think>\n\n<response>\n{}\n</response>\n",
    ],
    "fence": [
        "```\n{}\n```",
        "```text\n{}\n```\n",
        "~~~\n{}\n~~~",
        "Here is the description:\n\n```\n{}\n```\nNote: I guessed.",
        "```markdown\n{}\n```\n\nThis description follows the template exactly.",
    ],
    "frame": [
        r"\boxed{{}}",
        r"The final answer is: $\boxed{{}}$.",
        r"$$\boxed{\text{{}}}$$",
        "<description>{}</description>",
        "<caption>\n{}\n</caption>",
        "<p>{}</p>",
    ],
    "role": [
        "ASSISTANT: {}",
        "Answer: {}",
        "**Answer:** {}",
        "### Response:\n{}",
        "AI: {}",
        "Final Answer: {}",
        "Caption: {}",
        "user\nDescribe the image.\nassistant\n{}",
        "Template: '{}'",
        "**Image Description**\n\n{}",
        "Description of the difference: {}",
        "## Description\n\n{}",
    ],
    "emphasis": ["**{}**", "*{}*", "`{}`", "_{}_"],
    "quotation marks": ['"{}"', "\u201c{}\u201d", "'{}'"],
    "tokens": [
        "{}</s>",
        "{}<|im_end|>",
        "{}<end_of_turn>\n",
        "<s> {} </s>",
        "<|im_start|>assistant\n{}<|im_end|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n{}<|eot_id|>",
        "<|begin_of_box|>{}<|end_of_box|>",
        "[ASSISTANT]: {}",
        "{} /no_think",
        "/think\n{}",
        "{}<eos>",
        "{}<|im_end|>\n<|endoftext|>",
        "{}<pad><pad>",
        "{}[|endofturn|]",
        "{}<|im_end|>\n<|im_start|>user\nAnd the next?",
        "{}</s>[INST] And the next? [/INST]",
    ],
    "preface": [
        "Sure! Here is the description:\n\n{}",
        "Here is the caption: {}",
        "Certainly! Here's a detailed description of the image: {}",
        "Here's a detailed description of the image:\n\n{}",
        "Sure, here is the description you asked for: {}",
        "Certainly! {}",
    ],
    "remarks": [
        "{}\n\nNote: I based this on the visible content.",
        "{} Note: I based this on the visible content.",
        "{}\n\n*(Note: I guessed.)*",
        "{}\n\nUser: And the next?\nAssistant: It shows a dog.",
        "{}\n\n---\nI hope this helps! Let me know if you need more.",
        "{}\nPlease note that this is based on the captions.",
        "{}\n\nConfidence: 0.9",
        "{}\n###",
    ],
    "emoji": ["{} \U0001f60a", "{}\u2728\ufe0f"],
    "invisible characters": ["\ufeff{}", "{}\u200e", "\u200b{}"],
}


@pytest.mark.parametrize("text", [CAPTION, SUMMARY], ids=["a caption", "a summary"])
@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind, forms in AROUND.items() for form in forms]
)
def test_what_stands_around_is_taken_off_and_named(kind, form, text) -> None:
    cleaned = clean_text(form.replace("{{}}", f"{{{text}}}").replace("{}", text))
    assert cleaned.text == text
    assert kind in cleaned.removed


@pytest.mark.parametrize(
    "text",
    [
        CAPTION,
        SUMMARY,
        '"STOP" is on one sign, and the other says "GO"',
        'It\'s a dog. A sign reads "Thank you".',
        '{"question": "What is left? Note: look.", "answer": "A: **red**."}',
        '["a b.", "c d."]',
        "Differences:\n1. Object types: A ship.\n\nCommonalities: Both show boats.",
        "Certainly, the red cup is gone.",
        "-5",
        "Here is a bench: an old man sits on it.",
        "A sign in brackets reads <EXIT>.",
        "The first image shows *Starry Night*; the second one a bench.",
        "- A red cup.\n- A blue plate.",
        "The sign says \u201cOPEN\u201d.",
        "4",
        "Rating: 4/5",
        "\U0001f600 A smiling face is in Image 1.",
    ],
)
def test_an_answer_alone_stays_as_it_is(text) -> None:
    assert clean_text(text) == clean_text(clean_text(text).text)
    assert (clean_text(text).text, clean_text(text).removed) == (text, ())


DIFFERENCE = "The difference between the two images is that the first one shows a cup."


@pytest.mark.parametrize(
    "form",
    [
        *("Difference: {}", "**Differences:**\n{}", "### Differences\n{}", "The difference:\n\n{}"),
        *('"{}".', "> {}", "- {}", "\u2022 {}"),
    ],
)
def test_a_difference_alone_is_left(form) -> None:
    assert clean_text(form.replace("{}", DIFFERENCE)).text == DIFFERENCE


@pytest.mark.parametrize("text", ["<think>Let me", "Let me.</think>", "<think></think>\n"])
def test_thoughts_alone_leave_nothing(text) -> None:
    cleaned = clean_text(text)
    assert (cleaned.text, cleaned.removed) == ("", ("thoughts",))


def test_bold_words_lose_their_stars() -> None:
    assert clean_text("A **red** car beside a **blue** one.").text == (
        "A red car beside a blue one."
    )


def test_a_quoted_block_loses_its_marks() -> None:
    assert clean_text("> A red car.\n> A blue one.").text == "A red car.\nA blue one."


def test_json_is_found_in_thoughts_and_fence() -> None:
    text = '<think>Two.</think>\n```json\n[{"a": "b. Note: c."}]\n```'
    assert clean_text(text).text == '[{"a": "b. Note: c."}]'


FRAMES = (r"\boxed{", "<p>", "> ", "- ", "Here is the caption ", "<|im_end|>", "<pad> ", ". ")


@pytest.mark.parametrize(
    "unit", ["<think>", "</think>", "```\n", "**", '"', "Note: ", "\nUser:", *FRAMES]
)
def test_long_nonsense_is_read_in_no_time(unit) -> None:
    clean_text(unit * (20_000 // len(unit)) + "end.")
