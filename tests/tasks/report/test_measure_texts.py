"""What was written, by numbers counted by hand: repetition, verbs, refusals, axes, checks."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import pytest

from pairwright.schemas.checks import AGAINST, NO_RATING, NOTHING_AFFIRMED, SEEN_IN_SAME
from pairwright.schemas.rows import Dropped, Turn
from pairwright.tasks.report.measure_texts import (
    UNLABELLED,
    Repetition,
    count_axes,
    count_variety,
    group_verbs,
    measure_checks,
    measure_differences,
    measure_summaries,
    measure_variety,
    says_something,
    strip_sentence,
)
from pairwright.tasks.report.tables import CHECKS, Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_served import LINE_SERVED, make_served


class Given(Tables):
    """One table in place of a build's."""

    def __init__(self, create, *rows):
        self.connection = duckdb.connect()
        self.connection.execute(create)
        self.connection.executemany(f"INSERT INTO {create.split()[2]} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def has(self, name):
        return True

    @contextmanager
    def database(self, **columns):
        yield self.connection


def repetition(*texts):
    create = "CREATE TABLE described (text VARCHAR, verbs VARCHAR[], attempts INT, no_change BOOL)"
    return measure_differences(Given(create, *([text, [], 1, False] for text in texts)), []).sentences


def axes(*lists):
    return count_axes(Given("CREATE TABLE comparisons (number INT, axes VARCHAR[])", *map(list, enumerate(lists))))


def test_the_first_of_equal_sentences_is_unique():
    assert repetition("a b", "a b", "a b", "c", "d", "d") == Repetition(total=6, unique=3)
    assert repetition("a b", "a b", "a b", "c", "d", "d").share == pytest.approx(3 / 6)
    assert Repetition(total=767_697, unique=744_128).repeated == 23_569
    assert f"{Repetition(total=767_697, unique=744_128).share:.2%}" == "3.07%"
    assert repetition("a  b\n", " a b").unique == 1
    assert repetition("a b", "A b", "a b.", "a, b").unique == 4
    assert repetition("", None).unique == 1


def test_verbs_are_counted_under_the_form_of_the_list():
    found = {"shows": 2, "showed": 1, "having": 4, "featuring": 1, "sings": 1}
    assert group_verbs(found) == {"has": 4, "shows": 3, "features": 1, "sings": 1}


@pytest.fixture(scope="module")
def whole():
    return make_whole(3, 3)


def measured(tmp_path, made, until="differences"):
    with build_handmade(tmp_path, made, until=until) as (build, counts):
        return measure_differences(Tables(build), counts)


def test_descriptions_of_a_dataset(tmp_path, whole):
    rows = whole.of("differences")
    assert len(rows) >= 5
    texts = ["One.", "One. ", "Two.", "Nothing differs.", "Nothing differs."]
    rows = [
        replace(row, text=text, verbs=("shows", "showing"), attempts=1 + n % 2, no_change=text.startswith("Nothing"))
        for n, (row, text) in enumerate(zip(rows, texts, strict=False))
    ]
    pairs = [row.key for row in whole.of("pairs") if row.key not in {one.source_key for one in rows}]
    refused = [
        Dropped(source_key=pairs[0], reason="cut off", detail="length"),
        Dropped(source_key=pairs[1], reason="too long (differences.max_words=120)"),
        Dropped(source_key=pairs[2], reason="no captions"),
    ]
    made = Handmade({**whole.tables, "differences": [*rows, *refused]})
    found = measured(tmp_path, made)
    assert found.sentences == Repetition(total=5, unique=3)
    assert found.changed == Repetition(total=3, unique=2)
    assert set(found.most) == {("One.", 2), ("Nothing differs.", 2)}
    assert found.verbs == {"shows": 10}
    assert found.listed == 49
    # Refused: the first answers of rows 1 and 3, which came good, and of two pairs that have none.
    assert (found.again, found.lost, found.asked) == (2, 2, 7)
    assert found.refused == {"cut off": 1, "too long (differences.max_words=120)": 1}
    assert found.share_refused == pytest.approx(4 / 7)


def test_where_all_were_refused_it_says_so(tmp_path, whole):
    made = Handmade(dict(whole.tables))
    made.tables["differences"] = [Dropped(source_key=row.key, reason="empty half") for row in whole.of("pairs")]
    found = measured(tmp_path, made)
    assert found.sentences.total == 0
    assert found.share_refused == 1
    assert found.most == []


def test_variety_counts_words_pairs_of_words_and_skeletons():
    found = count_variety(["The red mug is gone.", "A blue box is gone. Two mugs, not three.", "The dog is gone."])
    assert found.counted == {
        "words": Repetition(total=5 + 9 + 4, unique=13),  # again: is, gone, is, gone, the
        "2-grams": Repetition(total=4 + 8 + 3, unique=13),  # again: (is, gone), twice
        "sentence skeletons": Repetition(total=4, unique=3),
    }
    assert found.texts == 3
    assert found.commonest == ("… gone.", 2)


@pytest.mark.parametrize(
    ("sentence", "skeleton"),
    [
        ("The first image shows a small red metal ball on the left.", "the first image …."),
        ("The first image depicts a box with its lid open, two mugs and a car.", "the first image …."),
        ("On a wooden table-top, the lamp was replaced by no car, a cone or 12 rings.", "… was replaced by …."),
        ("3. The sign reading 'STOP' now stands to the left of the box.", "… now stands …."),
        ("A dog lies in front of the green car with its lid closed.", "a dog lies …."),
        ("Reddish carpets.", "reddish carpets."),
    ],
)
def test_a_skeleton_leaves_out_what_scenes_name(sentence, skeleton):
    assert strip_sentence(sentence) == skeleton


def test_variety_is_of_different_chosen_texts_else_of_descriptions(tmp_path, whole):
    chosen = ["It is gone.", "It is gone.", " "]
    rows = [
        replace(row, chosen=text)
        for row, text in zip(whole.of("preferences"), chosen * len(whole.tables), strict=False)
    ]
    with build_handmade(tmp_path, Handmade({**whole.tables, "preferences": rows}), until="preferences") as (build, _):
        found = measure_variety(Tables(build))
    assert (found.texts, found.counted["words"]) == (1, Repetition(total=3, unique=3))
    with build_handmade(tmp_path / "described", whole, until="differences") as (build, _):
        found = measure_variety(Tables(build))
    assert found.texts == len({row.text for row in whole.of("differences")})
    with build_handmade(tmp_path / "mined", whole, until="pairs") as (build, _):
        assert measure_variety(Tables(build)) is None


def test_axes_of_statements():
    found = axes(["counts, locations", "counts"], [""], [], ["attributes", "", "of the moon"])
    assert found == {"counts": 1, "locations": 1, "attributes": 1, UNLABELLED: 2}
    assert axes([], []) == {}


def test_comparisons_of_a_dataset(tmp_path):
    made = make_whole(3, 3)
    turns = tuple(Turn(role=role, text=text) for role, text in (("user", "q"), ("assistant", "a"), ("user", "which?")))
    rows = [
        replace(
            row,
            commonalities=("Both show a table.",) if n else ("Both show a very old table.", "Both are warm."),
            differences=("One two three.", "Four."),
            axes=("object types", "counts, attributes") if n else ("object types", ""),
            conversation=(*turns, Turn(role="assistant", text="AB"[n % 2])) if n < 3 else turns[:2],
        )
        for n, row in enumerate(made.of("comparisons"))
    ]
    many = len(rows)
    with build_handmade(tmp_path, Handmade({**made.tables, "comparisons": rows}), until="comparisons") as (build, _):
        found = measure_summaries(Tables(build))
    assert found.rows == many
    assert found.common_words == pytest.approx((9 + 4 * (many - 1)) / many)
    assert found.difference_words == 4
    assert found.axes == {
        "object types": many,
        "attributes": many - 1,
        "counts": many - 1,
        "actions": 0,
        "locations": 0,
        "relative positions": 0,
        UNLABELLED: 1,
    }
    assert found.per_summary == pytest.approx((3 * (many - 1) + 1) / many)
    assert (found.asked, found.answers) == (3, {"A": 2, "B": 1})


@pytest.fixture(scope="module")
def made():
    return make_served(4, 3)


@pytest.fixture(scope="module")
def checks(made, tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("checks"), made, until="judged", line=LINE_SERVED) as (build, _):
        return {check.name: check for name in CHECKS for check in measure_checks(Tables(build), name)}


def test_passed_and_failed_with_reasons_and_scores(made, checks):
    assert list(checks) == ["swapped", "same", "grounded", "judged"]
    rows = [row for name in ("controlled", "grounded", "judged") for row in made.of(name)]
    for name, check in checks.items():
        own = [row for row in rows if row.check == name]
        failed = Counter(row.why for row in own if not row.passed)
        assert (check.rows, check.passed, check.why) == (len(own), len(own) - failed.total(), dict(failed))
        assert check.against == sum(number for why, number in failed.items() if why in AGAINST)
        assert check.meaning
    assert checks["same"].share == 1
    grounded = checks["grounded"].scores
    counts = {name: int(words.rpartition("(")[2].strip(")")) for _, name, words in grounded.legend}
    rows = made.of("grounded")
    assert counts == {
        "passed": sum(row.passed for row in rows),
        "failed": sum(row.why in AGAINST for row in rows),
    }
    assert any(row.why == NOTHING_AFFIRMED for row in rows)
    assert checks["same"].scores is None, "all have one score"
    assert checks["judged"].scores.unit == "rating"
    assert all(says_something(why) for why in (*AGAINST, SEEN_IN_SAME))
    assert not any(says_something(why) for why in ("", NO_RATING, NOTHING_AFFIRMED))
