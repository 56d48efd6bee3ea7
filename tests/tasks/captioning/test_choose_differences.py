"""The choice among descriptions: only what passed everything, the best of it, or why none did."""

import json
from dataclasses import replace
from itertools import permutations

import pytest

from pairwright.schemas.checks import BOTH_UNGROUNDED, CHECK_TABLES, LOW_RATING, NOT_TURNED_ROUND
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped
from pairwright.tasks.captioning.choose_differences import choose_differences
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import pair_row
from tests.fixtures.rows import row_of

PAIR = pair_row("a", "b")
TABLE_OF = {"swapped": "controlled", "same": "controlled"}
SCORES = {
    "swapped": 0.5,
    "same": 1.0,
    "grounded": 0.1,
    "regions": 1.0,
    "confirmed": 0.9,
    "judged": 4.0,
}


def written(key, *, attempts=1, pair=PAIR):
    row = description("shows a dog", f"shows a cat {key}", subject=pair.key)
    return replace(row, key=key, attempts=attempts)


def checks_of(row, why=None, **scores):
    """Return the outcomes of all checks of a description; ``why``: reasons of those that fail."""
    why = why or {}
    names = {"source": row.key, "subject": row.subject, "description": row.key}
    return [
        row_of(CheckRow, name, row.key, **names, check=name, score=score, **verdict)
        for name, score in (SCORES | scores).items()
        for verdict in [{"passed": name not in why, "why": why.get(name, "")}]
    ]


def choose(described, outcomes):
    tables = {name: {} for name in CHECK_TABLES}
    for row in outcomes:
        table = tables[TABLE_OF.get(row.check, row.check)]
        table[row.subject] = (*table.get(row.subject, ()), row)
    by_pair = {PAIR.key: tuple(described)}
    (row,) = choose_differences([PAIR], DifferencesConfig(), described=by_pair, **tables)
    return row


def test_what_passed_is_taken_under_its_own_key_with_its_scores() -> None:
    row = written("1")
    chosen = choose([row], checks_of(row))
    assert chosen == replace(row, source_key=PAIR.key, checks=chosen.checks)
    assert json.loads(chosen.checks) == SCORES


def test_a_check_that_was_off_has_no_score() -> None:
    row = written("1")
    outcomes = [
        replace(check, why="regions: it names no thing") if check.check == "regions" else check
        for check in checks_of(row)
    ]
    chosen = choose([row], outcomes)
    assert json.loads(chosen.checks).keys() == SCORES.keys() - {"regions"}


BETTER = [
    ("z", 9, {"judged": 5.0, "grounded": 0.0, "swapped": 0.1}),
    ("y2", 9, {"judged": 4.0, "confirmed": 0.9, "grounded": 0.0, "swapped": 0.1}),
    ("y", 9, {"judged": 4.0, "confirmed": 0.8, "grounded": 0.3, "swapped": 0.1}),
    ("x", 9, {"judged": 4.0, "confirmed": 0.8, "grounded": 0.2, "swapped": 0.9}),
    ("w", 1, {"judged": 4.0, "confirmed": 0.8, "grounded": 0.2, "swapped": 0.4}),
    ("a", 2, {"judged": 4.0, "confirmed": 0.8, "grounded": 0.2, "swapped": 0.4}),
    ("b", 2, {"judged": 4.0, "confirmed": 0.8, "grounded": 0.2, "swapped": 0.4}),
]
"""From best to worst: by judge, statements, grounding, swapped pair, attempts and key."""


@pytest.mark.parametrize("number", range(len(BETTER)))
def test_the_best_of_several(number) -> None:
    rows = {key: written(key, attempts=attempts) for key, attempts, _ in BETTER[number:]}
    outcomes = [row for key, _, scores in BETTER[number:] for row in checks_of(rows[key], **scores)]
    for order in list(permutations(rows.values()))[:12]:
        assert choose(order, outcomes).key == BETTER[number][0]


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ({"swapped": NOT_TURNED_ROUND}, NOT_TURNED_ROUND),
        ({"judged": LOW_RATING}, LOW_RATING),
        ({"judged": LOW_RATING, "grounded": BOTH_UNGROUNDED}, BOTH_UNGROUNDED),
    ],
)
def test_the_reason_is_that_of_the_failed_check(why, reason) -> None:
    row = written("1")
    dropped = choose([row], checks_of(row, why))
    assert isinstance(dropped, Dropped)
    assert (dropped.source_key, dropped.reason) == (PAIR.key, reason)
    assert row.text in dropped.detail


def test_a_check_without_an_outcome_is_not_passed() -> None:
    row = written("1")
    without = [check for check in checks_of(row) if check.check != "grounded"]
    assert choose([row], without).reason == "no outcome: grounded"
    of_another = checks_of(written("2"))
    assert choose([row], of_another).reason == "no outcome: controlled"


def test_each_text_of_people_is_a_description_of_its_own() -> None:
    texts = ("the dog  is gone", "The dog is gone.", "there is no dog any more")
    pair = replace(PAIR, human_differences=texts, instruction="remove the dog")
    both = DifferencesConfig.model_validate({"writer": ["given", "served"]})
    served = written("x", pair=pair)
    rows = list(choose_differences([pair], both, described={pair.key: (served,)}))
    human = ["The dog is gone.", "there is no dog any more", "remove the dog"]
    assert [row.text for row in rows] == [*human, served.text]
    assert [row.model for row in rows] == ["given"] * 3 + [served.model]
    assert {row.subject for row in rows} == {row.source_key for row in rows} == {pair.key}
    assert len({row.key for row in rows}) == 4
    assert rows[0].halves == (rows[0].text, rows[0].text)
    assert list(choose_differences([pair], both, described={})) == rows[:3]
    alone = DifferencesConfig.model_validate({"writer": "given"})
    assert list(choose_differences([pair], alone)) == rows[:3]
    (none,) = choose_differences([PAIR], alone)
    assert none == Dropped(source_key=PAIR.key, reason="nobody wrote about its difference")


def test_a_composed_description_beside_served_ones_needs_no_check() -> None:
    composed = replace(written("1"), model="scene-graph")
    both = DifferencesConfig.model_validate({"writer": "scene-graph,served"})
    [row] = choose_differences([PAIR], both, described={PAIR.key: (composed,)}, controlled={})
    assert isinstance(row, DifferenceRow)
    described = {PAIR.key: (written("1"),)}
    [dropped] = choose_differences([PAIR], both, described=described, controlled={})
    assert dropped.reason == "no outcome: controlled"
