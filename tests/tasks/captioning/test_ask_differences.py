"""Differences from a served model: what it is shown and told, what is refused, what is kept."""

import re
from functools import partial

import pytest

from pairwright.prompts.difference_prompts import difference_regex
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.rows import DifferenceRow, Dropped
from pairwright.tasks.captioning.describe_differences import describe_differences
from tests.fixtures.asking import ask_stage, assert_no_tokens, assert_seeds
from tests.fixtures.chat_server import IMAGE, Reply
from tests.fixtures.coloured import (
    BLUE,
    GREEN,
    PAIR,
    RED,
    by_key,
    captions_of,
    colour_of,
    pair_of,
)
from tests.fixtures.injections import ATTACK

START = "The difference between the two images is that the first image"
QUOTED = re.compile(
    rf"'{START} (\w+) \[object description\], "
    r"while the second image (\w+) \[object description\]\.'\.$"
)


def text(first="shows a red wall", second="depicts a blue wall"):
    return f"{START} {first}, while the second image {second}."


def verbs_of(request):
    return QUOTED.search(request.text).groups()


def painter(request):
    """Answer in the template that the prompt quotes, with its verbs."""
    colours = map(colour_of, request.images)
    return text(*map("{} a {} wall".format, verbs_of(request), colours))


def numbered(request):
    return text(second=f"depicts blue wall number {request.number}")


EVERY = captions_of(RED, BLUE, GREEN)


def describe(answer, pairs=(PAIR,), *, captions=EVERY, **values):
    tables = {"images": by_key(RED, BLUE, GREEN), "captions": captions}
    config = partial(DifferencesConfig, writer="served", **values)
    return ask_stage(answer, describe_differences, pairs, config, **tables)


def test_each_pair_is_described_as_it_is_seen_in_its_order() -> None:
    pairs = [PAIR, pair_of(BLUE, RED), pair_of(BLUE, GREEN)]
    rows, _ = describe(painter, pairs)
    assert [(row.first_half, row.second_half) for row in rows] == [
        ("a red wall", "a blue wall"),
        ("a blue wall", "a red wall"),
        ("a blue wall", "a green wall"),
    ]
    keys = [pair.key for pair in pairs]
    assert [row.subject for row in rows] == [row.source_key for row in rows] == keys


def test_rows_are_complete() -> None:
    [row], [request] = describe(painter, max_tokens=77)
    assert isinstance(row, DifferenceRow)
    assert row.text == painter(request)
    assert row.verbs == verbs_of(request)
    assert (row.attempts, row.finish_reason, row.model) == (1, "stop", "tiny")
    assert (row.claims, row.checks, row.known, row.no_change) == ("[]", "", "captions", False)
    assert len(row.key) == 32
    assert row.key != PAIR.key
    [served] = row.served
    assert (served.prompt, served.revision) == ("difference_from_captions", "r1")
    assert served.seed == request.seed
    assert request.body["max_tokens"] == 77
    assert request.grammar == {"regex": difference_regex()}
    assert re.fullmatch(difference_regex(), row.text)


CAPTIONED = (
    "First image could be described as: A plain red wall. "
    "Second image could be described as: A plain blue wall."
)
BEGINNING = "Given the first and the second images, describe the difference between the two images."
EDITED = (
    "Given the first image and a prompt, the second image is generated based on them. Describe "
    "the difference between the two images. Here is the prompt: paint it blue."
)
HUMAN = "Here is the difference: the wall was painted."
PAINTED = {"human_differences": ("the wall was painted.",)}
BLANK = {"human_differences": (" ", "the wall was painted")}
TOKEN = captions_of(RED, BLUE, blue="<|im_end|>")


@pytest.mark.parametrize(
    ("known", "fields", "captions", "start"),
    [
        ("captions", {}, EVERY, f"{BEGINNING} {CAPTIONED}"),
        ("human difference", PAINTED, EVERY, f"{BEGINNING} {CAPTIONED} {HUMAN}"),
        ("human difference", BLANK, {}, f"{BEGINNING} {HUMAN}"),
        ("edit", {"instruction": "paint it blue"}, EVERY, f"{EDITED} {CAPTIONED}"),
        ("edit", {"instruction": "paint it blue."}, captions_of(BLUE), EDITED),
        pytest.param("", {}, captions_of(RED), BEGINNING, id="a missing caption"),
        pytest.param("", {}, TOKEN, BEGINNING, id="a caption of tokens"),
    ],
)
def test_the_instruction_is_the_papers_for_what_is_known(known, fields, captions, start) -> None:
    [row], [request] = describe(painter, [pair_of(RED, BLUE, **fields)], captions=captions)
    start = f"{IMAGE}{IMAGE}{start} Generate the description strictly according to the template: '"
    assert request.text.startswith(start)
    assert QUOTED.search(request.text).start() == len(start) - 1
    assert row.known == known
    assert row.served[0].prompt.startswith("difference_from_")
    assert request.turns == []


def test_one_that_was_cut_off_may_be_longer_the_next_time() -> None:
    def cut(request):
        return painter(request)[: request.body["max_tokens"]]

    [row], requests = describe(cut, max_tokens=100)
    assert [request.body["max_tokens"] for request in requests] == [100, 200]
    assert row.text == painter(requests[1])
    [row], _ = describe(lambda request: Reply(text(), finish_reason="length"), max_tokens=100)
    assert row.reason == "cut off (differences.max_tokens=100)", "the setting, not twice of it"


LONG = " ".join(f"wall{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(140))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (text(second="depicts a wall of Dr"), "no full stop"),
        (text("paints a red wall"), "verb not in the list"),
        (text(f"shows {LONG}"), "too long (differences.max_words=120)"),
    ],
    ids=["no full stop", "another verb", "too long"],
)
def test_a_refused_answer_is_retried_with_other_seed_and_verbs(answer, reason) -> None:
    [row], _ = describe(lambda request: answer if request.number else "Sorry.", max_attempts=2)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (PAIR.key, reason), "the last one"
    [row], requests = describe(lambda request: answer if request.number < 2 else painter(request))
    assert row.text == painter(requests[2])
    assert row.attempts == len(requests) == 3
    assert_seeds(requests, row)
    assert len({verbs_of(request) for request in requests}) == 3


def test_candidates_are_rows_of_their_own_attempts() -> None:
    rows, requests = describe(numbered, candidates=3)
    assert {row.text for row in rows} == {numbered(request) for request in requests}
    assert len({row.key for row in rows}) == 3
    assert {row.source_key for row in rows} == {row.subject for row in rows} == {PAIR.key}
    seeds = [[request.seed] for request in requests]
    assert [[served.seed for served in row.served] for row in rows] == seeds

    def answer(request):
        return painter(request) if request.number == 2 else "No."

    [row], requests = describe(answer, candidates=3, max_attempts=2)
    assert len(requests) == len({request.seed for request in requests}) == 5
    assert (row.attempts, row.served[0].seed) == (1, requests[2].seed)


def test_untrusted_texts_reach_the_model_as_data() -> None:
    attack = f"{ATTACK} Here is the difference: none."
    pair = pair_of(RED, BLUE, human_differences=(f"{attack} human",))
    captions = captions_of(RED, BLUE, red=f"{attack} one", blue=f"{attack} two")
    [row], [request] = describe(painter, [pair], captions=captions)
    assert_no_tokens(request)
    assert "\n" not in request.text
    assert request.text.count("Here is the difference:") == 1
    assert re.findall(r"none\. (\w+)", request.text) == ["one", "two", "human"]
    assert row.known == "human difference"
