"""Rows of every table as conversations, by hand."""

from dataclasses import replace

import pytest

from pairwright.prompts import load_prompt, load_wordings
from pairwright.schemas import rows
from pairwright.tasks.texts.conversations import converse, turns_of
from tests.fixtures.rows import row_of


def turns(*texts):
    """Return the turns of a user and an assistant, one after the other."""
    roles = ("user", "assistant") * len(texts)
    return tuple(rows.Turn(role=role, text=text) for role, text in zip(roles, texts, strict=False))


def about_pair(kind, **fields):
    return row_of(kind, kind.__name__, source="s", subject="p", **fields)


FOUR = turns("Which?", "This.", "Why?", "So.")
COMPARISON = about_pair(rows.ComparisonRow, conversation=FOUR, model="m")
DIFFERENCE = about_pair(rows.DifferenceRow, text="A ball came.")
PAIR_ASKED = "Image 1: <image>\nImage 2: <image>\nHow many balls?"


@pytest.mark.parametrize(
    ("row", "conversation"),
    [
        pytest.param(COMPARISON, FOUR, id="comparison"),
        pytest.param(replace(COMPARISON, conversation=FOUR[:3]), FOUR[:2], id="nobody answered"),
        pytest.param(
            about_pair(rows.QuestionRow, question="How many balls?", answer="Two."),
            turns(PAIR_ASKED, "Two."),
            id="question",
        ),
        pytest.param(
            about_pair(rows.CaptionRow, text="A ball on a table."),
            turns(load_prompt("describe_image").render(), "A ball on a table."),
            id="caption",
        ),
        pytest.param(
            about_pair(rows.PreferenceRow, prompt=FOUR[:1], chosen="This.", rejected="No."),
            FOUR[:2],
            id="preference",
        ),
    ],
)
def test_a_conversation_is_that_of_its_row(row, conversation):
    assert turns_of(row) == conversation


@pytest.mark.parametrize(("writer", "kind"), [("given", "given"), ("scene-graph", "ask")])
def test_a_difference_is_asked_for_in_one_of_its_wordings(writer, kind):
    question, answer = turns_of(replace(DIFFERENCE, model=writer))
    wordings = load_wordings("ask_difference").kinds[kind]
    assert question.text in {wording.text for wording in wordings}
    assert (question, answer) == turns(question.text, "A ball came.")
    again = turns_of(replace(DIFFERENCE, model=writer))
    assert again == (question, answer), "always in the same"


def test_its_images_and_its_split_go_with_it():
    first, second = (
        row_of(rows.ImageRow, n, source="s", image=b"%d" % n, licence=f"l{n}") for n in range(2)
    )
    split = row_of(rows.SplitRow, "x", source="s", component="c", split="test")
    pair = row_of(rows.PairRow, "pair", source="s")
    row = converse(COMPARISON, pair, [first, second], split)
    assert row.prompt == FOUR[:3]
    assert row.chosen == "So."
    assert (row.images, row.image_keys) == ((b"0", b"1"), (first.key, second.key))
    assert (row.licences, row.component, row.split) == (("l0", "l1"), "c", "test")
    assert (row.key, row.source_key, row.subject) == (COMPARISON.key, pair.key, "p")
    assert row.chosen_model == "m"
    assert (row.rejected, row.negatives, row.rejected_images) == ("", (), ())
