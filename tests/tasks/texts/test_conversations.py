"""Rows of every table as conversations, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from pairwright.prompts import load, load_wordings
from pairwright.schemas import rows
from pairwright.tasks.texts.conversations import converse, turns_of
from tests.fixtures.rows import row_of

TURNS = tuple(rows.Turn(role=role, text=role) for role in ("user", "assistant") * 2)
ABOUT: dict[str, Any] = {"source": "s", "subject": "p"}
COMPARISON = row_of(rows.ComparisonRow, "c", **ABOUT, conversation=TURNS, model="m")
DIFFERENCE = row_of(rows.DifferenceRow, "d", **ABOUT, text="A ball came.")


def test_a_conversation_is_that_of_its_row() -> None:
    question = row_of(rows.QuestionRow, "q", **ABOUT, question="How many balls?", answer="Two.")
    caption = row_of(rows.CaptionRow, "k", **ABOUT, text="A ball on a table.")
    asked = "Image 1: <image>\nImage 2: <image>\nHow many balls?"
    assert turns_of(COMPARISON) == TURNS
    assert turns_of(replace(COMPARISON, conversation=TURNS[:3])) == TURNS[:2], "nobody answered"
    assert turns_of(question) == (
        rows.Turn(role="user", text=asked),
        rows.Turn(role="assistant", text="Two."),
    )
    described = rows.Turn(role="assistant", text="A ball on a table.")
    assert turns_of(caption) == (
        rows.Turn(role="user", text=load("describe_image").render()),
        described,
    )
    preference = row_of(
        rows.PreferenceRow, "f", **ABOUT, prompt=TURNS[:1], chosen="assistant", rejected="No."
    )
    assert turns_of(preference) == TURNS[:2]


@pytest.mark.parametrize(("writer", "kind"), [("given", "given"), ("scene-graph", "ask")])
def test_a_difference_is_asked_for_in_one_of_its_wordings(writer: str, kind: str) -> None:
    asked, said = turns_of(replace(DIFFERENCE, model=writer))
    assert asked.text in {wording.text for wording in load_wordings("ask_difference").kinds[kind]}
    assert (asked.role, said) == ("user", rows.Turn(role="assistant", text="A ball came."))
    assert turns_of(replace(DIFFERENCE, model=writer)) == (asked, said), "always in the same"


def test_its_images_and_its_split_go_with_it() -> None:
    shown = [
        row_of(rows.ImageRow, n, source="s", image=b"%d" % n, licence=f"l{n}") for n in range(2)
    ]
    split = row_of(rows.SplitRow, "x", source="s", component="c", split="test")
    pair = row_of(rows.PairRow, "pair", source="s")
    row = converse(COMPARISON, pair, shown, split)
    assert (*row.prompt, rows.Turn(role="assistant", text=row.chosen)) == TURNS
    assert (row.images, row.image_keys) == ((b"0", b"1"), (shown[0].key, shown[1].key))
    assert (row.licences, row.component, row.split) == (("l0", "l1"), "c", "test")
    assert (row.key, row.source_key, row.subject, row.chosen_model) == (
        COMPARISON.key,
        pair.key,
        "p",
        "m",
    )
    assert (row.rejected, row.negatives, row.rejected_images) == ("", (), ())
