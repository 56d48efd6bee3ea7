"""Common sentences: which texts of held-out pairs give nothing away, and what may deny a change."""

import pytest

from pairwright.tasks.texts.common_texts import find_common, may_say_no_change

NO_CHANGE = {
    True: [
        "the two scenes seem identical",
        "the scene remains the same",
        "nothing has changed",
        "no change has occurred",
        "There didn't appear to be any changes.",
        "there doesn’t seem to be any difference",
        "Both images\nare the same.",
        "The difference between the two images is that the first image has a red box on a table, "
        "while the second "
        "image displays the same scene, unchanged, lit by cool light from the right.",
        "no visible differences " * 10_000,
    ],
    False: [
        "",
        "the red car is gone",
        "the second image shows the same table with a blue ball",
        "everything is the same except that the dog is gone",
        "the images are identical but for a red ball",
        "there is no red ball in the second image",
        "x" * 100_000,
    ],
}


@pytest.mark.parametrize(
    ("may", "text"), [(may, text) for may, texts in NO_CHANGE.items() for text in texts]
)
def test_texts_that_may_say_that_nothing_changed(may, text):
    assert may_say_no_change(text) is may


def test_a_sentence_of_three_training_pairs_is_common():
    """Not one of three held-out pairs, nor one that a pair has three times."""
    texts = [("train", f"pair {number}", text) for number, text in enumerate(["No change!"] * 3)]
    texts += [("test", f"held {number}", "A ball left.") for number in range(3)]
    texts += [("train", "pair 9", text) for text in ("A cube.", "a cube", "A cube")]
    assert find_common(texts) == {"no change"}
