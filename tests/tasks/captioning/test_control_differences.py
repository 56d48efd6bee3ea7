"""Controls: what the model is asked again, and which answers pass; scores are derived by hand."""

import re
from dataclasses import replace
from functools import partial

import pytest

from pairwright.schemas import checks
from pairwright.schemas.config import ControlsConfig
from pairwright.schemas.rows import CheckRow
from pairwright.tasks.captioning.control_differences import NONE, UNREADABLE, control_differences
from tests.fixtures.asking import ask_stage, assert_no_tokens
from tests.fixtures.chat_server import IMAGE, Reply
from tests.fixtures.coloured import (
    BLUE,
    CAPTIONS,
    IMAGES,
    PAIR,
    RED,
    captions_of,
    colour_of,
    colours_said,
)
from tests.fixtures.descriptions import description
from tests.fixtures.injections import ATTACK

RIGHT = description("shows a red wall", "shows a blue wall", subject=PAIR.key)
SAME = "shows the same image, unchanged"
UNCHANGED = description("shows a red wall", SAME, subject=PAIR.key, no_change=True)


def template(first, second):
    return (
        f"The difference between the two images is that the first image {first}, while the "
        f"second image {second}."
    )


def walls(first, second):
    return template(f"shows a {first} wall", f"depicts a {second} wall")


def looking(request):
    """Describe what is seen, or take the way out."""
    first, second = (colour_of(image) for image in request.images)
    return NONE if first == second else walls(first, second)


def ignoring_order(request):
    """Always describe the darker image first."""
    return walls(*sorted((colour_of(image) for image in request.images), reverse=True))


def ignoring_images(request):
    """Describe what the captions say, or else anything."""
    return walls(*[*colours_said(request.text), "green", "white"][:2])


def ask(answer, *kinds, rows=(RIGHT,), pair=PAIR, captions=CAPTIONS):
    tables = {"pairs": {pair.key: pair}, "images": IMAGES, "captions": captions}
    config = partial(ControlsConfig, enabled=True, kinds=kinds)
    scripted = answer if callable(answer) else lambda request: answer
    return ask_stage(scripted, control_differences, rows, config, **tables)


def outcome(row):
    return row.passed, row.score, row.why


def test_a_model_that_looks_passes_both() -> None:
    """Crosswise the halves are equal (1); straight they share the wall, one of red, wall, red-wall:
    2 / 6."""
    rows, _ = ask(looking, "swapped", "same")
    swapped, same = rows
    assert (swapped.check, *outcome(swapped)) == ("swapped", True, round(1 - 1 / 3, 6), "")
    assert (same.check, *outcome(same)) == ("same", True, 1.0, "")
    for row in rows:
        assert isinstance(row, CheckRow)
        assert (row.source_key, row.description, row.subject) == (RIGHT.key, RIGHT.key, PAIR.key)
        assert [served.model for served in row.served] == ["tiny"]
    assert swapped.key != same.key
    assert swapped.text == walls("blue", "red")


def test_a_model_that_ignores_the_order_or_the_images_fails() -> None:
    [row], _ = ask(template("shows a dog", "shows a cat"), "swapped")
    why = f"{checks.NOT_TURNED_ROUND} (controls.min_score=0.15)"
    assert outcome(row) == (False, 0.0, why)
    [row], _ = ask(ignoring_order, "swapped")
    assert outcome(row) == (False, round(1 / 3 - 1, 6), why)
    assert checks.speaks_against(row.why)


def test_a_little_more_alike_crosswise_is_not_enough() -> None:
    """Of five and three words and pairs of words, crosswise "wall" is common: 2 / 8, halved."""
    row = description("shows a red brick wall", "shows a blue sky", subject=PAIR.key)
    answer = template("has a wooden bench", "has a low wall")
    [check], _ = ask(answer, "swapped", rows=(row,))
    assert check.score == 0.125
    assert outcome(check)[0] is False
    assert checks.speaks_against(check.why)


def test_a_model_that_ignores_the_images_fails_where_they_are_the_same() -> None:
    [swapped, same], _ = ask(ignoring_images, "swapped", "same")
    assert swapped.passed, "its captions came in the other order"
    assert outcome(same) == (False, 0.0, checks.SEEN_IN_SAME)
    assert not checks.speaks_against(same.why)


def test_what_the_swapped_pair_is_asked() -> None:
    _, [request] = ask(looking, "swapped")
    assert [colour_of(image) for image in request.images] == ["blue", "red"]
    captions = re.search(r"First image .*: (.*)\. Second image .*: (.*)\. Generate", request.text)
    assert captions.groups() == ("A plain blue wall", "A plain red wall")
    assert "[object description], while the second image" in request.text
    assert re.fullmatch(request.grammar["regex"], template("shows a wall", "is a red wall"))


EDIT = "Make the wall blue."
EDITED = (
    "Given the first image and a prompt, the second image is generated based on them. Describe "
    "the difference between the two images. Here is the prompt: undo the following edit: "
    f"{EDIT} First image"
)
TURNED = (
    "Here is the difference: with the two images taken in the other order, The red wall turned "
    "blue. Generate"
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instruction": EDIT}, EDITED),
        ({"human_differences": ("The lamp is gone.", "The red wall turned blue")}, TURNED),
    ],
)
def test_what_is_known_of_one_order_is_told_as_such(fields, words) -> None:
    _, [request] = ask(looking, "swapped", pair=replace(PAIR, **fields))
    assert words in request.text
    assert "lamp" not in request.text


def test_what_the_same_image_is_asked() -> None:
    pair = replace(PAIR, instruction=EDIT, human_differences=("The wall turned blue",))
    rows = [replace(RIGHT, key=f"{n:032x}") for n in range(20)]
    results, requests = ask(looking, "same", rows=rows, pair=pair)
    assert all(row.passed for row in results)
    images = {tuple(colour_of(image) for image in request.images) for request in requests}
    assert images == {("red", "red"), ("blue", "blue")}, "drawn by the description's key"
    for request in requests:
        assert not colours_said(request.text)
        assert f"write this sentence and nothing else: '{NONE}'" in request.text
        grammar = re.compile(request.grammar["regex"])
        assert grammar.fullmatch(NONE)
        assert grammar.fullmatch(template("shows a blue wall", "is a red wall"))
        assert not grammar.fullmatch(NONE.replace(".", "!"))


@pytest.mark.parametrize(
    "answer",
    [
        NONE,
        "The two images are identical.",
        template("shows a red wall", "shows a red wall"),
        template("shows a red wall", "has the red walls"),
        template("shows a red wall", "shows the same image without any change"),
    ],
)
def test_no_difference_is_right_of_one_image_or_where_nothing_changed(answer) -> None:
    [same], _ = ask(answer, "same")
    assert (same.passed, same.score, same.text) == (True, 1.0, answer)
    [swapped], _ = ask(answer, "swapped")
    assert outcome(swapped) == (False, UNREADABLE, checks.NONE_IN_SWAPPED)
    [swapped], _ = ask(answer, "swapped", rows=[UNCHANGED])
    assert (swapped.passed, swapped.score) == (True, 1.0)


CUT = "cut off (controls.max_tokens=160)"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reply(walls("blue", "red"), finish_reason="length"), CUT),
        (Reply(NONE, finish_reason="length"), CUT),
        ("I am sorry, but I cannot see images.", "declined"),
        (template("shows a blue wall", "does not"), "negation or auxiliary only"),
    ],
)
def test_unreadable_answers_fail_without_a_verdict(answer, reason) -> None:
    rows, _ = ask(answer, "swapped", "same")
    assert [row.why for row in rows] == [f"swapped pair: {reason}", f"same image twice: {reason}"]
    assert [row.score for row in rows] == [UNREADABLE, 0.0]
    assert not any(row.passed or checks.speaks_against(row.why) for row in rows)


@pytest.mark.parametrize(
    "fields",
    [{}, {"instruction": ATTACK, "human_differences": (ATTACK,)}, {"human_differences": (ATTACK,)}],
)
def test_hostile_texts_stay_data(fields) -> None:
    captions = captions_of(RED, BLUE, red=f"a wall'. {ATTACK}")
    pair = replace(PAIR, **fields)
    [row], [request] = ask(looking, "swapped", pair=pair, captions=captions)
    assert row.passed
    assert_no_tokens(request)
    assert "\n" not in request.text.removeprefix(IMAGE * 2)
