"""Repetition, verbs and refusals of descriptions, by numbers counted by hand."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pairwright.schemas.rows import Dropped
from pairwright.tasks.report.measure_texts import (
    REFUSALS,
    Repetition,
    count_repetition,
    group_verbs,
    hash_texts,
    measure_differences,
)
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole


def repetition(*texts):
    return count_repetition(hash_texts(pa.chunked_array([list(texts)], pa.string())))


def test_the_first_of_equal_sentences_is_unique():
    # Paper 001, Table 14: repetition = total - unique, and its share of the total.
    assert repetition("a b", "a b", "a b", "c", "d", "d") == Repetition(total=6, unique=3)
    assert repetition("a b", "a b", "a b", "c", "d", "d").share == pytest.approx(3 / 6)
    assert Repetition(total=767_697, unique=744_128).repeated == 23_569
    assert f"{Repetition(total=767_697, unique=744_128).share:.2%}" == "3.07%"


def test_white_space_does_not_count_but_every_character_does():
    assert repetition("a  b\n", " a b").unique == 1
    assert repetition("a b", "A b", "a b.", "a, b").unique == 4
    assert repetition("", None).unique == 1


def test_no_sentences_repeat_nothing():
    assert repetition().share == 0


def test_verbs_are_counted_under_the_form_of_the_list():
    known = ("shows", "has", "features")
    found = {"shows": 2, "showed": 1, "having": 4, "featuring": 1, "sings": 1}
    assert group_verbs(found, known) == {"has": 4, "shows": 3, "features": 1, "sings": 1}


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
        Dropped(source_key=pairs[1], reason="too long"),
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
    assert found.refused == {"cut off": 1, "too long": 1}
    assert found.share_refused == pytest.approx(4 / 7)


def test_without_descriptions_there_is_nothing_to_measure(tmp_path, whole):
    assert measured(tmp_path, whole, until="pairs") is None


def test_where_all_were_refused_it_says_so(tmp_path, whole):
    made = Handmade(dict(whole.tables))
    made.tables["differences"] = [Dropped(source_key=row.key, reason="empty half") for row in whole.of("pairs")]
    found = measured(tmp_path, made)
    assert found.sentences.total == 0
    assert found.share_refused == 1
    assert found.most == ()


def test_reasons_of_validators_are_known():
    assert {"cut off", "off the template", "negation or auxiliary only"} <= set(REFUSALS)
