"""Conversations about two images: read from JSON, each round checked by its words."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.captioning.ask_questions import QuestionAnswer, check_round, read_rounds

ROUNDS = (
    QuestionAnswer("What is red in Image 1?", "The wall in Image 1 is red.", "first"),
    QuestionAnswer("How do the images differ?", "One is red, the other blue.", "both"),
)
RED, BOTH = map(asdict, ROUNDS)
WITHOUT_IMAGE = tuple(QuestionAnswer(each.question, each.answer) for each in ROUNDS)
SHORT = [{"Q": each["question"], "A": each["answer"]} for each in (RED, BOTH)]
AGAIN = {**RED, "question": "what is red in  image 1?", "answer": "Nothing."}
OBJECT = json.dumps({"rounds": [RED, BOTH]})


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        pytest.param(OBJECT, ROUNDS, id="an object"),
        pytest.param(json.dumps({"conversation": [RED, BOTH]}), ROUNDS, id="another name"),
        pytest.param(json.dumps([RED, BOTH], indent=2), ROUNDS, id="a list"),
        pytest.param(f"```json\n{json.dumps([RED, BOTH])}\n```", ROUNDS, id="a fence"),
        pytest.param(f"Sure! Here:\n{OBJECT}\nI hope this helps!", ROUNDS, id="words around"),
        pytest.param(json.dumps(RED), ROUNDS[:1], id="one round"),
        pytest.param(json.dumps(SHORT), WITHOUT_IMAGE, id="short names"),
        pytest.param(json.dumps([RED, BOTH, AGAIN]), ROUNDS, id="twice"),
    ],
)
def test_layouts(text, rounds) -> None:
    assert read_rounds(text) == rounds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rounds"),
        ('{"rounds": [1, null, "What?", []]}', "no rounds"),
        pytest.param("[" * 100_000, "no rounds", id="endless"),
        ("Q: What is red?\nA: The wall.", "no rounds"),
        (OBJECT[:-40], "no rounds"),
        ("I'm sorry, but I cannot do that.", "declined"),
    ],
)
def test_no_rounds(text, reason) -> None:
    assert read_rounds(text).reason == reason


def check(question, answer, about=""):
    """Return the image that a round is about, or why it is refused."""
    result = check_round(QuestionAnswer(question, answer, about))
    return result.about if isinstance(result, QuestionAnswer) else result.reason


def of_the_second(text):
    for old, new in (("Image 1", "Image 2"), ("first", "second"), ("picture 1", "picture 2")):
        text = text.replace(old, new)
    return text


MANY = "How many different colours do the flowers in picture 1 have?"


@pytest.mark.parametrize("about", ["", "first", "both"])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is red in Image 1?", "The wall is red."),
        ("What is the man in the first image doing?", "The man in the first image is reading."),
        (MANY, "They have three colours."),
        ("Are both dogs in Image 1 brown?", "Yes, the dogs in Image 1 are brown."),
        ("Describe the boat in Image 1.", "It is white."),
    ],
)
def test_questions_about_one_image(question, answer, about) -> None:
    assert check(question, answer, about) == "first"
    other = of_the_second(question), of_the_second(answer), of_the_second(about)
    assert check(*other) == "second"


UNLIKE = "What colour has the car in the first image, unlike in the other image?"


@pytest.mark.parametrize("about", ["", "first", "both"])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is in Image 1 that is not in Image 2?", "A dog."),
        ("How does the dog in Image 1 differ?", "It is brown."),
        ("What is red in Image 1?", "The wall is red, while that of Image 2 is blue."),
        ("What do both images show?", "A wall."),
        ("Which image shows more people?", "Image 1 shows more."),
        ("Compared to Image 1, what is larger?", "The boat is larger."),
        (UNLIKE, "It is red."),
    ],
)
def test_questions_about_both_images(question, answer, about) -> None:
    assert check(question, answer, about) == "both"


COLOUR, WHICH = "What colour is the wall?", "What is red in Image 1?"


@pytest.mark.parametrize(
    ("question", "answer", "about", "reason"),
    [
        (COLOUR, "It is red.", "first", "does not say which image"),
        (COLOUR, "The wall in Image 2 is red.", "both", "does not say which image"),
        ("What colour is the wall in Image 1?", "It is red.", "second", "says the wrong image"),
        ("", "It is red.", "both", "empty question or answer"),
        (WHICH, " ", "first", "empty question or answer"),
        (WHICH, "The wall in...", "first", "no full stop"),
        ("The wall in Image 1", "It is red.", "first", "not a question"),
        (f"According to the caption, {WHICH}", "It is red.", "first", "speaks of captions"),
        (WHICH, "I cannot see Image 1.", "first", "declined"),
        ("What is red in Image 1 <image>?", "The wall is red.", "first", "control tokens"),
        (WHICH, "The wall is red. " * 9 + "Yes.", "first", "repeats itself"),
        ("And what is red in Image 2?", "The wall is red.", "second", "leans on another round"),
        ("What is he doing in Image 2?", "He is reading.", "second", "leans on another round"),
    ],
)
def test_refused_rounds(question, answer, about, reason) -> None:
    assert check(question, answer, about) == reason


@given(st.text(st.sampled_from('"{}[],:qa1. \nabout?!image'), max_size=80))
def test_whatever_is_written_is_read_or_refused(text) -> None:
    rounds = read_rounds(text)
    for each in () if isinstance(rounds, RefusedText) else rounds:
        assert isinstance(check_round(each), QuestionAnswer | RefusedText)


def test_checks_of_english_words_are_off_for_another_language() -> None:
    parsed = QuestionAnswer("Was zeigt das erste Bild", "Einen roten Ball auf einem Tisch", "first")
    assert check_round(parsed, "German") == parsed
    assert isinstance(check_round(parsed), RefusedText)
    empty = QuestionAnswer("Was ist anders?", "<|im_end|>")
    assert isinstance(check_round(empty, "German"), RefusedText)
