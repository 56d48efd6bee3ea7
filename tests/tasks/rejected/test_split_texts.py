"""Preferred texts are split by a served model, or by rules where its answer will not do."""

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


def statements(*sentences):
    return json.dumps({"sentences": sentences})


def split(answer, row=ROW):
    config = partial(StatementsConfig, enabled=True)
    return ask_stage(lambda _: answer, split_texts, [row], config)


def test_statements_are_those_of_the_model() -> None:
    (row,), (asked,) = split(statements(*FACTS))
    assert (row.text, row.sentences, row.model, row.why) == (CHOSEN, tuple(FACTS), "tiny", "")
    assert (row.source_key, row.subject) == (ROW.key, "image")
    assert [served.prompt for served in row.served] == ["split_sentences"]
    assert CHOSEN in asked.text
    assert not asked.images


LONG_COAT = statements(*FACTS[:2], "The man wears a long red coat.")
CUT_OFF = Reply(statements(*FACTS), finish_reason="length")


MISFITS = {
    "a word of its own": (LONG_COAT, "say something else"),
    "a sentence lost": (statements(*FACTS[:2]), "say something else"),
    "no statements": ("Sure!", "say something else"),
    "cut off": (CUT_OFF, "cut off (statements.max_tokens="),
    "refused": (Status(400), "refused"),
}


@pytest.mark.parametrize(("answer", "why"), MISFITS.values(), ids=MISFITS)
def test_else_texts_are_split_where_sentences_end_and_that_is_said(answer, why) -> None:
    (row,), _ = split(answer)
    assert (row.sentences, row.model) == (RULES, "rules")
    assert row.reason.startswith(BY_RULES)
    assert why in row.reason


def test_each_half_is_split_without_what_it_denies() -> None:
    difference = description("shows a red ball, and no box", "has two blue cubes", subject="pair")
    rows, asked = split(statements("There is a red ball."), difference)
    texts = [(row.text, row.model) for row in rows]
    assert texts == [("a red ball", "tiny"), ("two blue cubes", "rules")]
    assert len(asked) == 2
    (dropped,), asked = split("", description("has no ball", "has no box", subject="pair"))
    assert isinstance(dropped, Dropped)
    assert not asked
