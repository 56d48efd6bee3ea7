"""Worth of texts and checks, counted by hand."""

from dataclasses import replace

import pytest

from pairwright.schemas.rows import CheckRow
from pairwright.tasks.audit.measure_audit import Point, audit_texts, draw_curve, measure_worth
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, pair_row, thing
from tests.fixtures.rows import row_of

BALL = graph(thing("a", shape="ball", colour="red"))
EMPTY = graph(changes=[{"type": "disappearance", "object_id": "a"}])
TRUE = ("shows a red ball", "shows no ball")
FALSE = ("shows no ball", "shows a red ball")
UNCLEAR = ("shows a red toy", "shows nothing there")


def texts_of(*cases):
    """Return audited texts of pairs, from halves, score of the judge and whether it is chosen."""
    described, checks, pairs, graphs, chosen = [], [], {}, {}, []
    for number, (halves, score, is_chosen) in enumerate(cases):
        pair = replace(pair_row(f"{number} 1", f"{number} 2"), change_types=("disappearance",))
        row = replace(description(*halves, subject=pair.key), key=str(number))
        about = {"source": row.key, "subject": pair.key, "description": row.key}
        check = row_of(
            CheckRow, str(number), row.key, **about, check="judged", score=score, passed=score >= 3
        )
        described.append(row)
        checks.append(check)
        pairs[pair.key], graphs[pair.key] = pair, (BALL, EMPTY)
        if is_chosen:
            chosen.append(row)
    return audit_texts(described, pairs, graphs, checks, chosen)


TEXTS = texts_of(
    (TRUE, 5.0, True),
    (TRUE, 4.0, True),
    (TRUE, 2.0, False),
    (FALSE, 3.0, True),
    (FALSE, 0.0, False),
    (UNCLEAR, 5.0, True),
)


def test_shares_of_true_texts() -> None:
    worth = measure_worth(TEXTS, pairs=8)
    assert (worth.pairs, worth.undescribed, worth.unclear) == (8, 2, 1)
    assert (worth.written.hits, worth.written.of, worth.written.value) == (3, 5, 0.6)
    assert (worth.chosen.hits, worth.chosen.of) == (2, 3)
    assert (worth.true_kept.hits, worth.true_kept.of) == (2, 3)
    assert (worth.false_kept.hits, worth.false_kept.of) == (1, 2)
    # Wilson, 1927: 3 of 5
    assert worth.written.interval == pytest.approx((0.2307, 0.8824), abs=1e-4)


def test_of_several_texts_that_pass_only_the_chosen_one_counts() -> None:
    texts = texts_of((TRUE, 5.0, True), (TRUE, 4.0, False), (FALSE, 4.0, False))
    worth = measure_worth(texts, pairs=3)
    assert (worth.chosen.hits, worth.chosen.of) == (1, 1)
    assert (worth.true_kept.hits, worth.false_kept.hits) == (2, 1)


def test_thresholds_and_the_line_that_takes_the_best() -> None:
    [check] = measure_worth(TEXTS, pairs=6).checks
    assert (check.name, check.setting) == ("judged", "judging.min_rating")
    assert [(p.threshold, p.true_kept, p.false_kept) for p in check.curve] == [
        (0.0, 1.0, 1.0),
        (2.0, 1.0, 0.5),
        (3.0, 0.6667, 0.5),
        (4.0, 0.6667, 0.0),
        (5.0, 0.3333, 0.0),
    ]
    assert check.advice.startswith("--set judging.min_rating=4 ")


def test_no_threshold_is_advised_where_none_tells() -> None:
    worth = measure_worth(texts_of((TRUE, 3.0, True), (FALSE, 5.0, True)), pairs=2)
    assert worth.checks[0].advice == ""


def test_kinds_that_a_writer_misses_come_first() -> None:
    [kind] = measure_worth(TEXTS, pairs=6).kinds
    assert (kind.name, kind.true.hits, kind.true.of) == ("disappearance", 3, 5)


def test_without_texts_no_share_is_made_up() -> None:
    worth = measure_worth([], pairs=3)
    assert worth.written.value is None
    assert worth.undescribed == 3


def test_examples_are_those_that_the_checks_got_wrong() -> None:
    examples = measure_worth(TEXTS, pairs=6).examples
    false_texts = [example for example in examples if example.verdict == "false"]
    assert [example.kept for example in false_texts] == [True, False]


def test_a_curve_counts_scores_at_least_as_high() -> None:
    assert draw_curve([1.0], [0.5]) == (
        Point(threshold=0.5, true_kept=1.0, false_kept=1.0),
        Point(threshold=1.0, true_kept=1.0, false_kept=0.0),
    )
