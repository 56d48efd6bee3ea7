"""Instructions about differences: the papers' words for what is known; and a form that validation
accepts."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs, load_prompt, natural_verbs
from pairwright.prompts.difference_prompts import PROMPTS, difference_regex, draw_verbs
from pairwright.tasks.texts.differences import Difference, read_difference


def test_all_prompts_are_named() -> None:
    assert len(set(PROMPTS)) == 8
    assert all(load_prompt(name).sha256 for name in PROMPTS)


@pytest.mark.parametrize(("paper", "verbs"), [(True, difference_verbs()), (False, natural_verbs())])
def test_two_different_verbs_are_drawn_and_all_of_them_sometimes(
    paper: bool, verbs: tuple[str, ...]
) -> None:
    drawn = [draw_verbs(Random(seed), paper=paper) for seed in range(400)]
    assert drawn == [draw_verbs(Random(seed), paper=paper) for seed in range(400)]
    assert all(first != second for first, second in drawn)
    assert {verb for both in drawn for verb in both} == set(verbs)


def text(first: str, second: str) -> str:
    start = "The difference between the two images is that the first image"
    return f"{start} {first}, while the second image {second}."


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("shows a red car", "consists of a blue car"),
        ("shows a man, a dog, white walls and 1,000 birds", "depicts none, wherever, whilst"),
        ("has a price of $3.50 in the U.S capital", 'shows a sign "STOP" (red), and 2.5 m of snow'),
        ('shows "STOP" on a sign', "has (1) a bus"),
        ("shows a café – “Löwe”", "shows the sign 出口 on a 4:3 screen; nothing else"),
    ],
)
def test_the_form_lets_descriptions_through(first: str, second: str) -> None:
    assert re.fullmatch(difference_regex(), text(first, second))


@pytest.mark.parametrize(
    "written",
    [
        text("includes a car", "shows a bus"),
        text("shows ", "shows a bus"),
        text("shows a car. It", "shows a bus"),
        text("shows a car", "shows a bus! It"),
        text("shows a car", "shows a\nbus"),
        text("shows [object description]", "shows a bus"),
        text("shows a car, while the second image shows a van", "shows a bus"),
        text("shows a car", "shows a bus, while the second image shows a van"),
        text("shows a car", "shows a bus").removesuffix("."),
        text("shows a car", "shows a bus") + " ",
    ],
)
def test_the_form_holds_answers_to_the_template(written: str) -> None:
    assert not re.fullmatch(difference_regex(), written)


@settings(max_examples=400)
@given(st.from_regex(re.compile(difference_regex()), fullmatch=True))
def test_what_the_form_admits_is_accepted_but_for_hollow_and_equal_halves(written: str) -> None:
    read = read_difference(written, difference_verbs())
    reason = "" if isinstance(read, Difference) else read.reason
    assert reason in ("", "negation or auxiliary only", "halves are equal"), written
