"""The form of a comparison: what a server that is held to it can write is what the validator reads."""

import re
from random import Random

import pytest

from pairwright.tasks.captioning.compare_pairs import LABELS, comparison_grammar
from pairwright.tasks.texts.comparisons import Comparison, read_axes, read_comparison

REGEX = comparison_grammar().regex
PROSE = "Commonalities: Both images show boats. The sky is grey.\n\nDifferences:\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{PROSE}1. Object types: A ship.",
        f'{PROSE}1. Object types: A 2.5 m long sign, e.g. one that reads "Stop."',
        f" {PROSE}1. Object actions: It sails.\n2. Object types: A ship! And a pier.",
        "Commonalities:\n1. Both show boats.\n2. Both show a pier.\n\nDifferences:\n1. Counting the objects: Two, é.",
        PROSE + "\n".join(f"{n}. {label}: A ship." for n, label in enumerate(LABELS, 1)),
    ],
)
def test_what_it_allows(text):
    assert re.fullmatch(REGEX, text)
    assert isinstance(read_comparison(text), Comparison)


@pytest.mark.parametrize(
    "text",
    [
        f"{PROSE}1. Object types: A ship",
        f"{PROSE}1. Object types: A ship...",
        f"{PROSE}1. Object types: {'It is a ship. ' * 6}".strip(),
        f"{PROSE}2. Object types: A ship.",
        f"{PROSE}1. Colours: A ship.",
        f"Sure! {PROSE}1. Object types: A ship.",
        f"{PROSE}1. Object types: A ship.\n\nI hope this helps!",
        PROSE + "\n".join(f"{n}. Object types: A ship." for n in range(1, 8)),
        "Commonalities:\n\nDifferences:\n1. Object types: A ship.",
    ],
)
def test_what_it_refuses(text):
    assert not re.fullmatch(REGEX, text)


def test_axes_may_be_left_out_in_any_way():
    rng = Random(0)
    for _ in range(100):
        labels = rng.sample(LABELS, rng.randint(1, 6))
        text = PROSE + "\n".join(f"{n}. {label}: Image 1 has {n} ships." for n, label in enumerate(labels, 1))
        assert re.fullmatch(REGEX, text)
        read = read_comparison(text)
        assert [item.axes for item in read.differences] == [read_axes(label) for label in labels]
