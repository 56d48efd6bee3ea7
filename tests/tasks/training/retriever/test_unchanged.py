"""Which texts may say that nothing changed."""

import pytest

from pairwright.tasks.training.retriever.unchanged import may_say_no_change


@pytest.mark.parametrize(
    "text",
    [
        "no change was made",
        "there is no change",
        "the two scenes seem identical",
        "the scene is the same as before",
        "the scene remains the same",
        "nothing has changed",
        "nothing was modified",
        "no change has occurred",
        "there is no difference",
        "There didn't appear to be any changes.",
        "there doesn’t seem to be any difference",
        "Both images\nare the same.",
        "they look exactly the same",
        "The difference between the two images is that the first image has a red box on a table, while the second "
        "image displays the same scene, unchanged, lit by cool light from the right.",
        "no visible differences " * 10_000,
    ],
)
def test_texts_that_may(text):
    assert may_say_no_change(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "the red car is gone",
        "a person is no longer there",
        "the second image shows the same table with a blue ball",
        "the car that was next to the truck moved",
        "everything is the same except that the dog is gone",
        "the images are identical but for a red ball",
        "there is no red ball in the second image",
        "x" * 100_000,
    ],
)
def test_texts_that_do_not(text):
    assert not may_say_no_change(text)
