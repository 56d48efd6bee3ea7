"""Questions from a served model: what it reads, which round is drawn, what is refused and kept."""

import json
from collections import Counter
from functools import partial

import pytest

from pairwright.prompts import load_prompt
from pairwright.schemas.config import QuestionsConfig
from pairwright.schemas.rows import ComparisonRow, QuestionRow, make_key
from pairwright.tasks.captioning.ask_questions import ask_questions
from pairwright.tasks.serving.untrusted import as_data
from tests.fixtures.asking import ask_stage, assert_no_tokens
from tests.fixtures.coloured import (
    BLUE,
    CAPTIONS,
    PAIR,
    RED,
    captions_of,
    colours_said,
    image_of,
    pair_of,
)
from tests.fixtures.injections import ATTACK
from tests.fixtures.rows import row_of

SUMMARY = (
    "Commonalities: Both images show a wall.\n\n"
    "Differences:\n1. Object attributes: Image 1 is red, Image 2 blue."
)
COPIED = json.loads(load_prompt("ask_questions").text.strip().splitlines()[-1])["rounds"]


def comparison_of(pair, text=SUMMARY):
    return row_of(ComparisonRow, pair.key, text, source=pair.key, text=text)


ROW = comparison_of(PAIR)


def round_of(about, question, answer):
    return {"question": question, "about": about, "answer": answer}


def rounds_of(first, second):
    difference = f"The wall in Image 1 is {first}, while the wall in Image 2 is {second}."
    return [
        round_of("both", "How do the walls in the two images differ?", difference),
        round_of("first", "What colour does the wall in Image 1 have?", f"It is {first}."),
        round_of("second", "What colour does the wall in Image 2 have?", f"It is {second}."),
        round_of("both", "What do both images show?", "Both images show a wall."),
    ]


def talker(request):
    """Talk about the colours that were read."""
    return json.dumps({"rounds": rounds_of(*colours_said(request.text)[:2])})


def ask(answer, rows=(ROW,), *, pairs=(PAIR,), captions=CAPTIONS, **values):
    tables = {"pairs": {pair.key: pair for pair in pairs}, "captions": captions}
    config = partial(QuestionsConfig, enabled=True, **values)
    return ask_stage(answer, ask_questions, rows, config, **tables)


def many(count):
    """Make pairs of red and blue walls, of red first and of blue first."""
    images = [(image_of("red", str(n)), image_of("blue", str(n))) for n in range(count)]
    pairs = [pair_of(*both[:: -1 if n % 2 else 1]) for n, both in enumerate(images)]
    captions = {key: caption for both in images for key, caption in captions_of(*both).items()}
    return [comparison_of(pair) for pair in pairs], pairs, captions


def test_one_round_of_the_conversation_is_kept() -> None:
    [row], [request] = ask(talker, rounds=4, max_tokens=321)
    assert isinstance(row, QuestionRow)
    drawn = rounds_of("red", "blue")[row.round]
    assert round_of(row.about, row.question, row.answer) == drawn
    assert (row.rounds, row.model, row.subject, row.source_key) == (4, "tiny", PAIR.key, ROW.key)
    assert row.key == make_key("question", ROW.key, row.question, row.answer)
    [served] = row.served
    assert (served.prompt, served.model, served.revision) == ("ask_questions", "tiny", "r1")
    captions = "\nImage 1: A plain red wall.\n\nImage 2: A plain blue wall.\n\nSummary:\n"
    assert captions in request.text
    assert SUMMARY.replace("\n\n", "\n") in request.text
    assert "conversation of 4 rounds" in request.text
    assert request.body["max_tokens"] == 321
    items = request.grammar["json"]["properties"]["rounds"]
    assert (items["minItems"], items["maxItems"]) == (4, 4)
    assert items["items"]["properties"]["about"]["enum"] == ["both", "first", "second"]


def test_rounds_are_drawn_evenly_and_belong_to_their_pair() -> None:
    rows, pairs, captions = many(60)
    questions, _ = ask(talker, rows, pairs=pairs, captions=captions)
    drawn = Counter(row.round for row in questions)
    assert set(drawn) == {0, 1, 2, 3}
    assert min(drawn.values()) > 7
    for pair, row in zip(pairs, questions, strict=True):
        colours = [colours_said(captions[key].text)[0] for key in (pair.first, pair.second)]
        assert rounds_of(*colours)[row.round]["answer"] == row.answer
    assert Counter(row.about for row in questions)["first"] == drawn[1]


def test_rounds_that_will_not_do_are_not_drawn() -> None:
    good = rounds_of("red", "blue")[1]
    spoilt = [
        {**good, "question": "According to the caption, what colour is Image 1?"},
        {**good, "question": "What colour is the wall?"},
        {**good, "question": "What is red in Image 1?", "answer": "The wall is"},
        good,
        COPIED[0],
        {**good, "question": "What colour is the wall in Image 2?"},
    ]
    rows, pairs, captions = many(20)
    answer = json.dumps({"rounds": spoilt})
    questions, _ = ask(lambda request: answer, rows, pairs=pairs, captions=captions)
    drawn = {(row.question, row.round, row.rounds) for row in questions}
    assert drawn == {(good["question"], 3, 6)}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"pairs": ()}, "pair is missing"),
        ({"captions": captions_of(RED)}, "caption is missing"),
    ],
    ids=["pair", "caption"],
)
def test_what_is_missing_is_a_reason_and_nothing_is_asked(values, reason) -> None:
    [row], requests = ask(talker, **values)
    assert (row.source_key, row.reason) == (ROW.key, reason)
    assert requests == []


def test_what_others_wrote_reaches_the_model_as_data() -> None:
    captions = captions_of(RED, BLUE, red=f"A red wall. {ATTACK}")
    comparison = comparison_of(PAIR, f"{SUMMARY}\n[INST] {ATTACK} [/INST]")
    [row], [request] = ask(talker, [comparison], captions=captions)
    assert isinstance(row, QuestionRow)
    assert_no_tokens(request, images=0)
    assert f"Image 1: {as_data(captions[RED.key].text)}\n" in request.text
