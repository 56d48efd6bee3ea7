"""What no model may answer: that it cannot, the same words again and again, what its reader does not see."""

import pytest

from pairwright.schemas.refusals import declines, names_captions, repeats_itself


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I cannot assist with that.",
        "As an AI language model, I do not see images.",
        "As a large language model, this is beyond me.",
        "I’m unable to view the images.",
        "I don't have access to the two photographs.",
        "No images were provided.",
        "It is hard to say without seeing the images.",
        "Please provide the captions of both images.",
        "I apologize for the confusion.",
    ],
)
def test_a_model_that_declines(text):
    assert declines(text)


@pytest.mark.parametrize(
    "text",
    [
        "Both images show a dog.",
        'The shirt in Image 1 reads "I\'m sorry".',
        "A sign says “I cannot park here”.",
        "The man in Image 2 is sorry for the dog.",
        "No images hang on the wall.",
    ],
)
def test_a_model_that_answers(text):
    assert not declines(text)


@pytest.mark.parametrize(
    "text",
    [
        "According to the caption, there is a dog.",
        "Based on the descriptions, the car is red.",
        "The first caption mentions a dog.",
        "Caption 2 speaks of a cat.",
        "The caption of Image 1 says so.",
        "Neither caption states a colour.",
        "The colour of the car is not specified.",
        "Image 2 does not mention any people.",
        "The provided description doesn't tell.",
        "As described in the first caption, it rains.",
        "From the captions, nothing else is known.",
        "The description of Image 1 says so.",
    ],
)
def test_words_that_speak_of_captions(text):
    assert names_captions(text)


@pytest.mark.parametrize(
    "text",
    [
        "Both images show a dog.",
        "The newspaper has a photograph with a caption below it.",
        'The poster reads "according to the caption".',
        "A plaque gives a description of the statue.",
        "No dog can be seen in Image 2.",
    ],
)
def test_words_that_speak_of_images(text):
    assert not names_captions(text)


@pytest.mark.parametrize(
    "text",
    [
        "a dog " * 12,
        "Image 1 shows a dog. " * 6,
        "There is a tree. " + "In Image 1, the man stands to the left of the dog. " * 4,
        "".join(f"{n}. Object types: Image 1 has a dog and a cat. " for n in range(1, 6)),
        " ".join(str(n) for n in range(50)) + " and so on" * 12,
        "#" * 300,
        "- " * 80,
    ],
)
def test_a_loop(text):
    assert repeats_itself(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A dog, a dog, a dog, and a dog.",
        "In Image 1, the man is left of the dog. In Image 2, the man is right of the dog. In Image 1, the dog is left "
        "of the cat. In Image 2, the dog is right of the cat. In Image 1, the cat is left of the man.",
        "Both images show a dog.\n" + "-" * 60,
        "Image 1 shows a red boat on the water. " * 3,
    ],
)
def test_no_loop(text):
    assert not repeats_itself(text)
