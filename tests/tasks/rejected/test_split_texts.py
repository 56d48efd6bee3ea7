"""Preferred texts are split by a served model, whose statements say what the text says and nothing
else."""

import json
from functools import partial

import pytest

from pairwright.schemas.rows import Dropped, PreferenceRow
from pairwright.schemas.writing import StatementsConfig
from pairwright.tasks.rejected.split_texts import BY_RULES, split_texts
from tests.fixtures.asking import ask_stage
from tests.fixtures.chat_server import Reply, Status
from tests.fixtures.descriptions import description
from tests.fixtures.rows import row_of

CHOSEN = "A tall man with a dog is walking past a bakery. He wears a red coat."
ROW = row_of(PreferenceRow, "row", source="row", subject="image", chosen=CHOSEN)
RULES = ("A tall man with a dog is walking past a bakery.", "He wears a red coat.")
FACTS = ["A tall man walks past a bakery.", "The man has a dog.", "The man wears a red coat."]


def split(answer, row=ROW):
    (*found,), asked = ask_stage(
        lambda _: answer, split_texts, [row], partial(StatementsConfig, enabled=True)
    )
    return found, asked


def test_statements_are_those_of_the_model():
    (row,), (asked,) = split(json.dumps({"sentences": FACTS}))
    assert (row.text, row.sentences, row.model, row.why) == (CHOSEN, tuple(FACTS), "tiny", "")
    assert (row.source_key, row.subject, [one.prompt for one in row.served]) == (
        ROW.key,
        "image",
        ["split_sentences"],
    )
    assert CHOSEN in asked.text
    assert not asked.images


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            json.dumps({"sentences": [*FACTS[:2], "The man wears a long red coat."]}),
            "say something else",
        ),
        (json.dumps({"sentences": FACTS[:2]}), "say something else"),
        ("Sure!", "say something else"),
        (
            Reply(json.dumps({"sentences": FACTS}), finish_reason="length"),
            "cut off (statements.max_tokens=",
        ),
        (Status(400), "refused"),
    ],
    ids=["a word of its own", "a sentence lost", "no statements", "cut off", "refused"],
)
def test_else_texts_are_split_where_sentences_end_and_that_is_said(answer, why):
    (row,), _ = split(answer)
    assert (row.sentences, row.model) == (RULES, "rules")
    assert row.reason.startswith(BY_RULES)
    assert why in row.reason


def test_each_half_is_split_without_what_it_denies():
    difference = description("shows a red ball, and no box", "has two blue cubes", subject="pair")
    rows, asked = split(json.dumps({"sentences": ["There is a red ball."]}), difference)
    assert [(row.text, row.model) for row in rows] == [
        ("a red ball", "tiny"),
        ("two blue cubes", "rules"),
    ]
    assert len(asked) == 2
    (dropped,), asked = split("", description("has no ball", "has no box", subject="pair"))
    assert isinstance(dropped, Dropped)
    assert not asked
