"""The choice among descriptions: only what passed everything, the best of it, and why there is
none."""

import json
from dataclasses import replace
from itertools import permutations

import pytest

from pairwright.schemas import checks
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.rows import CheckRow, Dropped
from pairwright.tasks.captioning.choose_differences import TABLES, choose_differences
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import pair_row
from tests.fixtures.rows import row_of

PAIR, OTHER = pair_row("a", "b"), pair_row("a", "c")
TABLE_OF = {
    "swapped": "controlled",
    "same": "controlled",
    **{name: name for name in ("grounded", "judged")},
}


def written(key, *, attempts=1, pair=PAIR):
    row = description("shows a dog", f"shows a cat {key}", subject=pair.key)
    return replace(row, key=key, attempts=attempts)


def check(name, row, score=1.0, why=""):
    outcome = {"check": name, "passed": not why, "score": score, "why": why}
    return row_of(
        CheckRow, name, row.key, source=row.key, subject=row.subject, description=row.key, **outcome
    )


def choose(described, found, *, tables=TABLES, pair=PAIR):
    outcomes = {name: {} for name in tables}
    for row in found:
        table = outcomes[TABLE_OF[row.check]]
        table[row.subject] = (*table.get(row.subject, ()), row)
    by_pair = {pair.key: tuple(described)}
    return next(
        iter(choose_differences([pair], DifferencesConfig(), described=by_pair, **outcomes))
    )


def passed(row, *, judged=4.0, grounded=0.1, swapped=0.5):
    return [
        check("swapped", row, swapped),
        check("same", row),
        check("grounded", row, grounded),
        check("judged", row, judged),
    ]


def test_what_passed_is_taken_under_its_own_key_with_its_scores():
    row = written("one")
    found = choose([row], passed(row))
    assert found == replace(row, source_key=PAIR.key, checks=found.checks)
    scores = {"grounded": 0.1, "judged": 4.0, "same": 1.0, "swapped": 0.5}
    assert json.loads(found.checks) == scores


BETTER = [
    ({"judged": 5.0, "grounded": 0.0, "swapped": 0.1}, 9, "z"),
    ({"judged": 4.0, "grounded": 0.3, "swapped": 0.1}, 9, "y"),
    ({"judged": 4.0, "grounded": 0.2, "swapped": 0.9}, 9, "x"),
    ({"judged": 4.0, "grounded": 0.2, "swapped": 0.4}, 1, "w"),
    ({"judged": 4.0, "grounded": 0.2, "swapped": 0.4}, 2, "a"),
    ({"judged": 4.0, "grounded": 0.2, "swapped": 0.4}, 2, "b"),
]


@pytest.mark.parametrize("number", range(len(BETTER)))
def test_the_best_of_several(number):
    """The list falls from best to worst: judge, grounding, swapped pair, attempts, key."""
    rest = BETTER[number:]
    rows = [written(key, attempts=attempts) for _, attempts, key in rest]
    found = [
        row for (scores, _, _), of in zip(rest, rows, strict=True) for row in passed(of, **scores)
    ]
    for order in list(permutations(rows))[:12]:
        assert choose(order, found).key == rest[0][2]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([("swapped", checks.NOT_TURNED_ROUND)], checks.NOT_TURNED_ROUND),
        ([("judged", checks.LOW_RATING)], checks.LOW_RATING),
        (
            [("judged", checks.LOW_RATING), ("grounded", checks.BOTH_UNGROUNDED)],
            checks.BOTH_UNGROUNDED,
        ),
    ],
)
def test_the_reason_is_that_of_the_failed_check(found, reason):
    row = written("one")
    why = dict(found)
    outcomes = [check(one.check, row, one.score, why.get(one.check, "")) for one in passed(row)]
    dropped = choose([row], outcomes)
    assert isinstance(dropped, Dropped)
    assert (dropped.source_key, dropped.reason) == (PAIR.key, reason)
    assert row.text in dropped.detail


def test_a_check_without_an_outcome_is_not_passed():
    row = written("one")
    dropped = choose([row], [one for one in passed(row) if one.check != "grounded"])
    assert dropped.reason == "no outcome: grounded"
    # The outcomes of another description of the pair do not count.
    assert choose([row], passed(written("two"))).reason == "no outcome: controlled"


def test_each_text_of_people_is_a_description_of_its_own():
    texts = ("the dog  is gone", "The dog is gone.", "there is no dog any more")
    pair = replace(PAIR, human_differences=texts, instruction="remove the dog")
    both = DifferencesConfig.model_validate({"writer": ["given", "served"]})
    made = written("x", pair=pair)
    rows = list(choose_differences([pair], both, described={pair.key: (made,)}))
    assert [row.text for row in rows] == [
        "The dog is gone.",
        "there is no dog any more",
        "remove the dog",
        made.text,
    ]
    assert [row.model for row in rows] == ["given"] * 3 + [made.model]
    assert {row.subject for row in rows} == {row.source_key for row in rows} == {pair.key}
    assert len({row.key for row in rows}) == 4
    assert rows[0].halves == (rows[0].text, rows[0].text)
    assert list(choose_differences([pair], both, described={})) == rows[:3]
    alone = DifferencesConfig.model_validate({"writer": "given"})
    assert list(choose_differences([pair], alone)) == rows[:3]
    (none,) = choose_differences([PAIR], alone)
    assert none == Dropped(source_key=PAIR.key, reason="nobody wrote about its difference")


def test_one_machine_writes():
    with pytest.raises(ValueError, match="both scene-graph and served"):
        DifferencesConfig.model_validate({"writer": "served,scene-graph"})
