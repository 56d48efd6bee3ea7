"""Conversations about two images: read from JSON, each round checked by its words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.captioning.ask_questions import QuestionAnswer, check_round, read_rounds

RED = {
    "question": "What is red in Image 1?",
    "about": "first",
    "answer": "The wall in Image 1 is red.",
}
BOTH = {
    "question": "How do the images differ?",
    "about": "both",
    "answer": "One is red, the other blue.",
}
ROUNDS = (
    QuestionAnswer("What is red in Image 1?", "The wall in Image 1 is red.", "first"),
    QuestionAnswer("How do the images differ?", "One is red, the other blue.", "both"),
)
UNSAID = tuple(QuestionAnswer(one.question, one.answer) for one in ROUNDS)
LAYOUTS = {
    "an object": (json.dumps({"rounds": [RED, BOTH]}), ROUNDS),
    "another name": (json.dumps({"conversation": [RED, BOTH]}), ROUNDS),
    "a list": (json.dumps([RED, BOTH], indent=2), ROUNDS),
    "a fence": (f"```json\n{json.dumps([RED, BOTH])}\n```", ROUNDS),
    "words around": (
        f"Sure! Here it is:\n{json.dumps({'rounds': [RED, BOTH]})}\nI hope this helps!",
        ROUNDS,
    ),
    "one round": (json.dumps(RED), ROUNDS[:1]),
    "short names": (
        json.dumps([{"Q": one["question"], "A": one["answer"]} for one in (RED, BOTH)]),
        UNSAID,
    ),
    "twice": (
        json.dumps(
            [RED, BOTH, {**RED, "question": "what is red in  image 1?", "answer": "Nothing."}]
        ),
        ROUNDS,
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    text, rounds = LAYOUTS[name]
    assert read_rounds(text) == rounds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rounds"),
        ('{"rounds": [1, null, "What?", []]}', "no rounds"),
        ("[" * 100_000, "no rounds"),
        ("Q: What is red?\nA: The wall.", "no rounds"),
        ("I'm sorry, but I cannot do that.", "declined"),
    ],
)
def test_no_rounds(text, reason):
    assert read_rounds(text).reason == reason


def test_a_conversation_that_was_cut_off():
    text, _ = LAYOUTS["an object"]
    assert read_rounds(text, finish_reason="length") == RefusedText("cut off", "length")
    assert read_rounds(text[:-40]).reason == "no rounds"


def about(question, answer, said=""):
    found = check_round(QuestionAnswer(question, answer, said))
    return found.about if isinstance(found, QuestionAnswer) else found.reason


@pytest.mark.parametrize("said", ["", "first", "both"])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is red in Image 1?", "The wall is red."),
        ("What is the man in the first image doing?", "The man in the first image is reading."),
        (
            "How many different colours do the flowers in picture 1 have?",
            "They have three colours.",
        ),
        ("Are both dogs in Image 1 brown?", "Yes, the dogs in Image 1 are brown."),
        ("Describe the boat in Image 1.", "It is white."),
    ],
)
def test_questions_about_the_first_image(question, answer, said):
    assert about(question, answer, said) == "first"
    other = (
        question.replace("Image 1", "Image 2")
        .replace("first image", "second image")
        .replace("picture 1", "picture 2")
    )
    answer = answer.replace("first image", "second image").replace("Image 1", "Image 2")
    assert about(other, answer, {"first": "second"}.get(said, said)) == "second"


@pytest.mark.parametrize("said", ["", "first", "both"])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is in Image 1 that is not in Image 2?", "A dog."),
        ("How does the dog in Image 1 differ?", "It is brown."),
        ("What is red in Image 1?", "The wall is red, while that of Image 2 is blue."),
        ("What do both images show?", "A wall."),
        ("Which image shows more people?", "Image 1 shows more."),
        ("Compared to Image 1, what is larger?", "The boat is larger."),
        ("What colour has the car in the first image, unlike in the other image?", "It is red."),
    ],
)
def test_questions_about_both_images(question, answer, said):
    assert about(question, answer, said) == "both"


@pytest.mark.parametrize(
    ("question", "answer", "said", "reason"),
    [
        ("What colour is the wall?", "It is red.", "first", "does not say which image"),
        (
            "What colour is the wall?",
            "The wall in Image 2 is red.",
            "both",
            "does not say which image",
        ),
        ("What colour is the wall in Image 1?", "It is red.", "second", "says the wrong image"),
        ("", "It is red.", "both", "empty question or answer"),
        ("What is red in Image 1?", " ", "first", "empty question or answer"),
        ("What is red in Image 1?", "The wall in...", "first", "cut off"),
        ("The wall in Image 1", "It is red.", "first", "not a question"),
        (
            "According to the caption, what is red in Image 1?",
            "The wall is red.",
            "first",
            "speaks of captions",
        ),
        ("What is red in Image 1?", "I cannot see Image 1.", "first", "declined"),
        ("What is red in Image 1 <image>?", "The wall is red.", "first", "control tokens"),
        ("What is red in Image 1?", "The wall is red. " * 9 + "Yes.", "first", "repeats itself"),
        ("And what is red in Image 2?", "The wall is red.", "second", "leans on another round"),
        ("What is he doing in Image 2?", "He is reading.", "second", "leans on another round"),
    ],
)
def test_refused_rounds(question, answer, said, reason):
    assert about(question, answer, said) == reason


@given(st.text(st.sampled_from('"{}[],:qa1. \nabout?!image'), max_size=80))
def test_whatever_is_written_is_read_or_refused(text):
    rounds = read_rounds(text)
    for one in () if isinstance(rounds, RefusedText) else rounds:
        assert isinstance(check_round(one), QuestionAnswer | RefusedText)
