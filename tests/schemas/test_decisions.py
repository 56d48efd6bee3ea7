"""Decisions of a person about rows: what is read, which counts, and what an edit changes."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pairwright.schemas.decisions import (
    Decision,
    Decisions,
    edit_row,
    latest_decisions,
    parse_decision,
)
from pairwright.schemas.rows import Negative
from tests.fixtures.preferences_to_train import preference

KEY = "ab" * 16
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LINE = {"key": KEY, "verdict": "accept", "at": "2026-11-21T11:00:00.000Z"}
EMPTY = {"chosen": "", "rejected": "", "note": ""}


def decision(**changes: Any) -> Decision:
    line = {**LINE, **EMPTY, **changes}
    present = {name: value for name, value in line.items() if value is not None}
    return parse_decision(json.dumps(present), now=NOW)


def edit(**changes: Any) -> Decision:
    return decision(verdict="edit", **changes)


def test_what_a_page_sends_is_read() -> None:
    read = edit(chosen="Two\nlines", note="clearer", at="2026-11-21T13:30:00.250+02:00")
    at = datetime(2026, 11, 21, 11, 30, 0, 250_000, tzinfo=UTC)
    texts = {"chosen": "Two\nlines", "rejected": "", "note": "clearer"}
    assert read == Decision(key=KEY, verdict="edit", at=at, **texts)
    assert decision(at="2026-11-22T12:00:00Z").at.day == 22, "a clock may be a day ahead"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key": KEY[:-1]}, "key: "),
        ({"key": KEY.upper()}, "key: "),
        ({"key": None}, "key: "),
        ({"verdict": "maybe"}, "verdict: "),
        ({"verdict": ["accept"]}, "verdict: "),
        ({"score": 1}, "score: "),
        ({"at": "2026-11-21T11:00:00"}, "timezone"),
        ({"at": 1763719200}, "at: "),
        ({"at": "2026-11-22T12:00:01Z"}, "at: "),
        ({"note": "x" * 2001}, "note: .*2000"),
        ({"verdict": "edit", "chosen": "x" * 20_001}, "chosen: .*20000"),
        ({"verdict": "edit", "chosen": "bell\a"}, "U\\+0007"),
        ({"verdict": "edit", "chosen": "\x85"}, "U\\+0085"),
        ({"verdict": "edit"}, "chosen or rejected"),
        ({"verdict": "edit", "chosen": "a", "rejected": " a "}, "same"),
        ({"verdict": "accept", "chosen": "a"}, "edit"),
    ],
)
def test_anything_else_is_refused_with_its_reason(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decision(**changes)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 10_000, '{"key": "\\ud800"}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_decision(text, now=NOW)


def test_the_last_stored_counts_whatever_the_clocks_say() -> None:
    fast_clock = decision(at="2026-11-22T09:00:00Z")
    then = decision(verdict="reject", at="2026-11-21T11:00:00Z")
    assert latest_decisions([fast_clock, then]).by_key == {KEY: then}
    assert latest_decisions([then, fast_clock]).by_key == {KEY: fast_clock}
    undone = decision(verdict="none", at="2026-11-20T11:00:01Z")
    assert len(latest_decisions([fast_clock, then, undone])) == 0


def test_a_rejected_row_stays_rejected_with_another_rejected_text() -> None:
    row = replace(preference(1), key=KEY)
    grown = replace(row, key="cd" * 16, source_key="", rejected="Retrieved from a new pair.")
    other = replace(grown, chosen="Another description of the pair.")
    rejected = decision(verdict="reject").about(row)
    accepted = decision().about(row)
    assert latest_decisions([rejected]).decision_on(grown) == rejected
    assert latest_decisions([rejected]).decision_on(other) is None
    assert latest_decisions([accepted]).decision_on(grown) is None, "nobody saw this text"
    undone = decision(verdict="none", key=grown.key).about(grown)
    assert latest_decisions([rejected, undone]).decision_on(grown) is None


def test_a_decision_counts_for_a_row_of_the_same_texts() -> None:
    row = replace(preference(1), key=KEY)
    again = replace(row, key="cd" * 16, source_key="", split="test")
    edited = edit(chosen="By a person.").about(row)
    assert latest_decisions([edited]).decision_on(again) == edited
    assert (
        latest_decisions([edited, decision(verdict="none").about(row)]).decision_on(again) is None
    )


def test_a_decision_about_the_row_itself_goes_before_one_about_its_pair() -> None:
    row = replace(preference(1), key="aa" * 16, source_key="bb" * 16, subject="cc" * 16)
    by_key = {KEY: decision()}
    assert Decisions(by_key).decision_on(row) is None
    for key in (row.subject, row.source_key, row.key):
        by_key[key] = decision(key=key)
        assert Decisions(by_key).decision_on(row) is by_key[key]


ROW = replace(
    preference(1),
    key=KEY,
    chosen="Old.",
    chosen_model="m",
    rejected="Bad.",
    rejected_maker="swapped",
    negatives=(Negative(text="New.", maker="swapped", note="", score=1.0),),
    kind="list",
    description="The same.",
    claims="[1]",
    rejected_claims="[2]",
)


def test_an_edited_text_loses_what_was_known_of_the_old() -> None:
    assert edit_row(ROW, decision()) is ROW
    assert edit_row(ROW, edit(chosen="New.")) == replace(
        ROW,
        chosen="New.",
        chosen_model="m, edited by a person",
        negatives=(Negative(text="Old.", maker="before-edit", note="", score=0.0),),
        description="",
        claims="[]",
    )
    note = "edited by a person"
    expected = replace(ROW, rejected="Wrong.", rejected_note=note, rejected_claims="[]")
    assert edit_row(ROW, edit(rejected="Wrong.")) == expected


def test_a_rejected_text_is_only_given_to_the_row_that_it_was_written_for() -> None:
    texts = {"rejected": "Mined.", "rejected_maker": "mined"}
    mined = replace(preference(1), key="cd" * 16, source_key=KEY, **texts)
    edited = edit_row(mined, edit(chosen="New.", rejected="Wrong."))
    assert (edited.chosen, edited.rejected) == ("New.", "Mined.")
    assert edited.rejected_maker == "mined"
