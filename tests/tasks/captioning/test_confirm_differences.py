"""Claim by claim: what is asked of which image, and which answers pass."""

import json
import re
from functools import partial

import pytest

from pairwright.schemas import checks
from pairwright.schemas.config import ConfirmingConfig
from pairwright.schemas.rows import CheckRow
from pairwright.tasks.captioning.confirm_differences import confirm_differences
from pairwright.tasks.captioning.split_claims import read_description
from tests.fixtures.asking import ask_stage, assert_no_tokens
from tests.fixtures.chat_server import Reply, Status
from tests.fixtures.coloured import IMAGES, PAIR, colour_of, colours_said
from tests.fixtures.descriptions import description
from tests.fixtures.injections import ATTACK

RIGHT = description("shows a red wall", "shows a blue wall", subject=PAIR.key)
EXCHANGED = description("shows a blue wall", "shows a red wall", subject=PAIR.key)
INVENTED = description("shows a green wall", "shows a white wall", subject=PAIR.key)
SHARED = description("shows a wall", "shows the plain wall", subject=PAIR.key)
UNCHANGED = description(
    "shows a wall", "shows the same image, unchanged", subject=PAIR.key, no_change=True
)
DENYING = ("wrong", "false", "contradict", "added", "only one")


def is_denying(text):
    """Return whether yes means that the statement is false."""
    return any(word in text for word in DENYING)


def answer_of(truth, text):
    return "yes" if truth != is_denying(text) else "no"


def looking(request):
    """Answer as one does who looks: a statement without a colour is true of any wall."""
    if len(request.images) == 2:
        first, second = (colour_of(image) for image in request.images)
        return answer_of(first == second, request.text)
    colours = colours_said(request.text)
    truth = not colours or colours == [colour_of(request.images[0])]
    return answer_of(truth, request.text)


def agreeable(request):
    return "yes"


def confirm(answer, *rows):
    tables = {"pairs": {PAIR.key: PAIR}, "images": IMAGES}
    return ask_stage(
        answer, confirm_differences, rows, partial(ConfirmingConfig, enabled=True), **tables
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (RIGHT, ""),
        (EXCHANGED, checks.EXCHANGED),
        (INVENTED, checks.INVENTED),
        (SHARED, checks.SHARED),
        (UNCHANGED, checks.NOT_SAME),
    ],
    ids=["right", "exchanged", "invented", "shared", "unchanged"],
)
def test_a_model_that_looks(row, why) -> None:
    [check], _ = confirm(looking, row)
    assert isinstance(check, CheckRow)
    assert (check.check, check.passed, check.why) == ("confirmed", not why, why)
    assert check.passed == (check.score > 0.5)
    assert not why or checks.speaks_against(why)


def test_a_model_that_always_agrees_gives_no_verdict() -> None:
    [check], requests = confirm(agreeable, RIGHT)
    assert len(requests) == 6, "as many wordings deny as confirm"
    assert (check.passed, check.score, check.why) == (False, 0.5, checks.UNANSWERED)


def test_statements_are_asked_of_one_image_each() -> None:
    """Two agreeing answers of 9 to 1 pass 19 to 1: two questions each."""
    [check], requests = confirm(looking, RIGHT)
    shown = [(colour_of(*request.images), colours_said(request.text)) for request in requests]
    assert shown == [("red", ["red"])] * 2 + [("blue", ["blue"])] * 2 + [("blue", ["red"])] * 2
    assert {request.body["temperature"] for request in requests} == {0.0}
    assert requests[0].body["top_logprobs"] == 5
    first, second = json.loads(check.text)
    assert first == {
        "image": 1,
        "statement": "The image shows a red wall",
        "own": round(81 / 82, 6),
        "other": round(1 / 82, 6),
    }
    assert second["other"] is None, "one that tells is enough"


def test_one_wrong_answer_of_many_is_outvoted() -> None:
    def erring(request):
        return "no" if request.number == 0 else looking(request)

    [check], requests = confirm(erring, RIGHT)
    assert check.passed
    assert len(requests) == 8, "two more, until the right answers lead by two"


def test_probabilities_count_where_the_server_gives_them() -> None:
    def unsure(request):
        right = looking(request)
        wrong = "no" if right == "yes" else "yes"
        return Reply(right, first_token=((right.title(), 0.6), (f" {wrong}", 0.3), ("maybe", 0.1)))

    [check], requests = confirm(unsure, RIGHT)
    assert check.passed
    assert len(requests) == 15, "odds of 2 need five wordings to pass 19"
    assert check.score == round(32 / 33, 6)


def test_a_server_without_probabilities_is_asked_without() -> None:
    def strict(request):
        return Status(400, "no logprobs") if "logprobs" in request.body else looking(request)

    [check], requests = confirm(strict, RIGHT)
    assert check.passed
    assert sum("logprobs" in request.body for request in requests) == 1


def test_long_halves_are_split_by_the_model() -> None:
    row = description(
        "shows a red wall, which was painted red", "shows a blue wall", subject=PAIR.key
    )
    sentences = ["The image shows a red wall.", "The red wall was painted."]

    def splitting(request):
        if not request.images:
            return json.dumps({"sentences": sentences})
        return looking(request)

    [check], requests = confirm(splitting, row)
    assert check.passed
    [split] = [request for request in requests if not request.images]
    assert "The image shows a red wall, which was painted red" in split.text
    statements = [statement["statement"] for statement in json.loads(check.text)]
    assert statements == [*sentences, "The image shows a blue wall"]


def test_a_description_in_our_words_is_read_as_a_whole() -> None:
    row = description(
        "shows a red box with its lid open to the left of the lamp",
        "has a sign that says 'STOP', but no ball",
    )
    assert read_description(row.text) == (
        [
            "There is a red box with its lid open.",
            "There is a red box with its lid open to the left of the lamp.",
        ],
        ["There is a sign that says 'STOP'.", "There is no ball."],
    )
    assert read_description("The dog is gone.") is None


def test_a_hostile_description_adds_neither_images_nor_turns() -> None:
    row = description(f"shows {ATTACK}", "shows a blue wall", subject=PAIR.key)
    _, requests = confirm(lambda request: "no", row)
    for request in requests:
        assert_no_tokens(request, images=len(request.images))
        assert re.search(r"Answer yes or no|Answer with JSON", request.text)
