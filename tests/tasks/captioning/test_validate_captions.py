"""Why descriptions are refused, and what is let through."""

import pytest

from pairwright.tasks.captioning.validate_captions import MOST_WORDS, RefusedCaption, refuse_caption

GOOD = "A red car stands in front of a white house. Two children play on the lawn beside a large oak tree."
ACCEPTED = {
    "plain": GOOD,
    "in quotation marks at its end": GOOD.removesuffix(".") + ' with a sign "Keep off."',
    "a number first": "3.5 metres of snow lie on the roof of a small wooden house beside a frozen lake.",
    "two alike sentences": f"{GOOD} A red car stands in front of a white house.",
    "a sorry sign": GOOD + ' A sign on the door reads "Sorry, we are closed".',
    "many like things": "On it are a red cup, a blue cup, a green cup, a white cup and a black cup in a row.",
}
REFUSED = {
    "empty": ["", "  \n"],
    "cut off": [GOOD.removesuffix("."), GOOD + " A bird", GOOD + " A bird,"],
    "the model declines": [
        "I'm sorry, I can't help with identifying or describing people in this image.",
        "I cannot see any image. Please upload the image that you would like me to describe in detail.",
        f"As an AI language model, I am unable to view images. {GOOD}",
    ],
    "more than one paragraph": [f"{GOOD}\n\n{GOOD}", GOOD.replace(". ", ".\n"), f"{GOOD}\r{GOOD}"],
    "not a description": [
        f"Sure! {GOOD}",
        f"Here is a detailed description of the image: {GOOD}",
        f"**Scene.** {GOOD}",
        f"1. {GOOD}",
        f"# Title. {GOOD}",
        f"Description: {GOOD}",
    ],
    "repeats itself": [
        "A dog stands there. A cat is beside it. A dog stands there. It is a sunny day. A dog stands there.",
        "There is a red cup" + ", a blue cup and a plate" * 8 + ".",
    ],
    "too short": ["A red car.", "A red car stands in front of a white house today."],
    "too long": [" ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(MOST_WORDS)) + " end."],
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    assert refuse_caption(ACCEPTED[case]) is None


@pytest.mark.parametrize(("reason", "text"), [(reason, one) for reason, many in REFUSED.items() for one in many])
def test_refused(reason, text):
    refused = refuse_caption(text)
    assert refused is not None
    assert refused.reason == reason


def test_a_long_answer_is_cut_off_even_with_a_full_stop():
    assert refuse_caption(GOOD, finish_reason="length") == RefusedCaption("cut off", "length")
