"""Refuted texts: a description of the pair that a check speaks against, the closest first, never one that is true."""

from dataclasses import replace

import pytest

from pairwright.schemas.checks import LOW_RATING, NO_RATING, NONE_IN_SWAPPED, SEEN_IN_SAME
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped, Served, make_key
from pairwright.tasks.rejected.refute_texts import refute_texts
from tests.fixtures.descriptions import description, person_said, rejected_text
from tests.fixtures.graphs import graph, pair_row, rows_of, thing
from tests.fixtures.rows import row_of

CONFIG = RejectedTextsConfig()
PAIR = pair_row(make_key("one"), make_key("two"))
CHOSEN = description("shows a red ball on a table", "shows a table", subject=PAIR.key)


def sibling(first, second, **values):
    """Make another description of the same pair, with a key of its own."""
    row = description(first, second, subject=PAIR.key)
    return replace(row, key=make_key(row.text), **values)


CLOSE = sibling("shows a blue ball on a table", "shows a table")
FAR = sibling("depicts three dogs in a park", "depicts an empty park")


def check(row, why=LOW_RATING, *, name="judged", score=1.0, passed=False):
    outcome = {"check": name, "passed": passed, "score": score, "why": why}
    return row_of(CheckRow, row.key, name, source=row.key, subject=PAIR.key, description=row.key, **outcome)


def refute(described, *, chosen=CHOSEN, pair=PAIR, images=(), **checks):
    tables = {name: {pair.key: tuple(rows)} for name, rows in {"described": described, **checks}.items()}
    (found,) = refute_texts([chosen], CONFIG, pairs={pair.key: pair}, images=dict(images), **tables)
    return found


def test_a_description_that_failed_becomes_a_rejected_text():
    served = (Served(prompt="p", model="m", revision="", seed=1, prompt_tokens=1, completion_tokens=1, latency=0.5,
                     finish_reason="stop"),)  # fmt: skip
    failed = replace(CLOSE, served=served)
    assert refute([CHOSEN, failed], judged=[check(failed), check(CHOSEN, "", passed=True)]) == rejected_text(
        CHOSEN, "refuted", CLOSE.text, note="judge: low rating (1)", served=served
    )


def test_the_closest_comes_first_with_all_that_speaks_against_it():
    for described in ([CHOSEN, FAR, CLOSE], [CLOSE, FAR, CHOSEN]):
        found = refute(described, judged=[check(FAR), check(CLOSE)])
        assert (found.text, found.skipped_true) == (CLOSE.text, 0)
    found = refute(
        [CHOSEN, CLOSE],
        controlled=[check(CLOSE, NONE_IN_SWAPPED, name="swapped", score=0.0)],
        judged=[check(CLOSE, score=2.0)],
    )
    assert found.note == "swapped pair: no difference (0); judge: low rating (2)"
    for found in (refute([CHOSEN, CLOSE]), refute([]), refute([CHOSEN], judged=[check(CHOSEN)])):
        assert found.reason == "no description failed"


@pytest.mark.parametrize("table", ["controlled", "grounded", "judged"])
def test_any_check_alone_will_do(table):
    assert refute([CHOSEN, CLOSE], **{table: [check(CLOSE)]}).text == CLOSE.text


@pytest.mark.parametrize("why", [NO_RATING, SEEN_IN_SAME])
def test_what_only_found_nothing_out_refutes_nothing(why):
    assert refute([CHOSEN, CLOSE], judged=[check(CLOSE, why)]) == Dropped(
        source_key=CHOSEN.key, reason="no description failed"
    )


def test_what_was_said_otherwise_is_passed_over():
    same = sibling("depicts the red ball on the table", "shows a table")
    found = refute([CHOSEN, same, FAR], judged=[check(same), check(FAR)])
    assert (found.text, found.skipped_true) == (FAR.text, 1)
    dropped = refute([CHOSEN, same], judged=[check(same)])
    assert (dropped.reason, dropped.detail) == ("all that failed are as true", "1 failed")
    passed = sibling("has the blue ball on a table", "has a table")
    assert refute([CHOSEN, CLOSE, passed], judged=[check(CLOSE)]).reason == "all that failed are as true"
    both = refute([CHOSEN, CLOSE, passed], judged=[check(CLOSE), check(passed, NO_RATING)])
    assert both.text == CLOSE.text
    pair = replace(PAIR, human_differences=("A blue ball was taken off the table.",))
    assert refute([CHOSEN, CLOSE], pair=pair, judged=[check(CLOSE)]).reason == "all that failed are as true"


def test_scene_graphs_know_better_than_checks():
    (pair,), images = rows_of([(graph(thing(colour="blue")), graph())])
    rows = [replace(row, subject=pair.key) for row in (CHOSEN, CLOSE, FAR)]
    tables = {"pair": pair, "images": images, "chosen": rows[0]}
    checks = [replace(check(row), subject=pair.key) for row in rows[1:]]
    claims = (Claim(side=0, kind="exists", selector=Selector(shape="ball", colour="blue")),)
    known = replace(rows[1], claims=description("a b", "c d", claims=claims).claims)
    assert isinstance(known, DifferenceRow)
    assert refute([rows[0], known], judged=checks, **tables).reason == "all that failed are as true"
    assert refute([rows[0], known, rows[2]], judged=checks, **tables).text == FAR.text


def test_beside_a_person_s_text_the_template_would_give_itself_away():
    row = person_said("the ball is gone", subject=PAIR.key)
    assert refute([CLOSE], chosen=row, judged=[check(CLOSE)]).reason == "no description failed"
