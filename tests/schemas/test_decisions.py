import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pairwright.schemas.decisions import Decisions, edit_row, latest, parse_decision
from pairwright.schemas.rows import Negative
from tests.fixtures.preferences_to_train import preference

KEY = "ab" * 16
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def line(**changes) -> str:
    told = {
        "key": KEY,
        "verdict": "accept",
        "chosen": "",
        "rejected": "",
        "note": "",
        "at": "2026-11-21T11:00:00.000Z",
    }
    return json.dumps(
        {name: value for name, value in {**told, **changes}.items() if value is not None}
    )


def decision(**changes):
    return parse_decision(line(**changes), now=NOW)


def test_what_a_page_sends_is_read():
    found = decision(
        verdict="edit", chosen="Two\nlines", note="clearer", at="2026-11-21T13:30:00.250+02:00"
    )
    assert (found.key, found.verdict, found.chosen, found.rejected, found.note) == (
        KEY,
        "edit",
        "Two\nlines",
        "",
        "clearer",
    )
    assert found.at == datetime(2026, 11, 21, 11, 30, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key": KEY[:-1]}, "key: "),
        ({"key": KEY.upper()}, "key: "),
        ({"key": f"../{KEY[3:]}"}, "key: "),
        ({"key": None}, "key: "),
        ({"verdict": "maybe"}, "verdict: "),
        ({"verdict": ["accept"]}, "verdict: "),
        ({"score": 1}, "score: "),
        ({"at": "2026-11-21T11:00:00"}, "timezone"),
        ({"at": 1763719200}, "at: "),
        ({"at": "2026-11-23T12:00:01Z"}, "at: "),
        ({"note": "x" * 2001}, "note: .*2000"),
        ({"verdict": "edit", "chosen": "x" * 20_001}, "chosen: .*20000"),
        ({"verdict": "edit", "chosen": "bell\a"}, "U\\+0007"),
        ({"verdict": "edit", "chosen": "\x85"}, "U\\+0085"),
        ({"verdict": "edit"}, "chosen or rejected"),
        ({"verdict": "edit", "chosen": "a", "rejected": " a "}, "same"),
        ({"verdict": "accept", "chosen": "a"}, "edit"),
    ],
)
def test_anything_else_is_refused_with_its_reason(changes, why):
    with pytest.raises(ValueError, match=why):
        decision(**changes)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", "7", '"x"', "[" * 10_000, '{"key": "\\ud800"}']
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_decision(text, now=NOW)


def test_the_latest_counts_in_whatever_order_they_are_read():
    first, then = decision(verdict="reject"), decision(at="2026-11-21T11:00:00.001Z")
    assert latest([first, then]).by_key == latest([then, first]).by_key == {KEY: then}
    back = decision(verdict="none", at="2026-11-21T11:00:01Z")
    assert len(latest([back, first, then])) == 0
    same = decision(verdict="reject", note="at the same moment"), decision(verdict="accept")
    assert latest(same).by_key == latest(same[::-1]).by_key


def test_a_decision_about_the_row_itself_goes_before_one_about_its_pair():
    row = replace(preference(1), key="aa" * 16, source_key="bb" * 16, subject="cc" * 16)
    own, made_of, pair = (decision(key=key) for key in (row.key, row.source_key, row.subject))
    assert Decisions({one.key: one for one in (pair, made_of, own)}).about(row) is own
    assert Decisions({one.key: one for one in (pair, made_of)}).about(row) is made_of
    assert Decisions({pair.key: pair}).about(row) is pair
    assert Decisions({KEY: decision()}).about(row) is None


def test_an_edit_brings_its_texts_and_says_so():
    again = Negative(text="New.", maker="swapped", note="", score=1.0)
    row = replace(
        preference(1),
        key=KEY,
        chosen_model="m",
        rejected="Old.",
        rejected_maker="swapped",
        negatives=(again,),
        kind="list",
        description="The same.",
        claims="[1]",
        rejected_claims="[2]",
    )
    done = edit_row(row, decision(verdict="edit", chosen="New."))
    assert (done.chosen, done.chosen_model, done.rejected) == (
        "New.",
        "m, edited by a person",
        "Old.",
    )
    assert [(one.text, one.maker) for one in done.negatives] == [(row.chosen, "before-edit")]
    assert (done.kind, done.description, done.claims, done.rejected_claims) == (
        "list",
        "",
        "[]",
        "[2]",
    )
    done = edit_row(row, decision(verdict="edit", rejected="Wrong."))
    assert (done.chosen, done.chosen_model) == (row.chosen, "m")
    assert (done.rejected, done.rejected_maker, done.rejected_note) == (
        "Wrong.",
        "swapped",
        "edited by a person",
    )
    assert (done.description, done.claims, done.rejected_claims) == ("The same.", "[1]", "[]")
    assert edit_row(row, decision()) is row


def test_a_rejected_text_is_only_given_to_the_row_that_it_was_written_for():
    mined = replace(
        preference(1), key="cd" * 16, source_key=KEY, rejected="Mined.", rejected_maker="mined"
    )
    done = edit_row(mined, decision(verdict="edit", chosen="New.", rejected="Wrong."))
    assert (done.chosen, done.rejected, done.rejected_maker) == ("New.", "Mined.", "mined")


def test_a_clock_may_be_a_day_ahead():
    assert decision(at=(NOW + timedelta(days=1)).isoformat()).at == NOW + timedelta(days=1)
