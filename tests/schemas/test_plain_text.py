import json

import pytest

from pairwright.schemas.plain_text import plain_text, to_json_line


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("A red ball.", "a red  ball"),
        ("there's a car", "There s a car!"),
        ("well-known", "well known"),
        ("ＲＥＤ ball", "red ball"),
        ("straße", "STRASSE"),
        ("a\tred\u200bball", "a red ball"),
    ],
)
def test_texts_that_are_one(first, second):
    assert plain_text(first) == plain_text(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a red ball", "a red bell"),
        ("5 balls", "6 balls"),
        ("a + b", "a b"),
        ("कि", "की"),  # marks are not punctuation
        ("...", "!!!"),
        ("", "."),
        ("red ball", "ball red"),
    ],
)
def test_texts_that_are_not(first, second):
    assert plain_text(first) != plain_text(second)


def test_a_line_is_one_line_for_all_readers() -> None:
    record = {"text": "one\u2028two\u2029three\x85four\nfive\u00e9"}
    line = to_json_line(record)
    assert len(line.splitlines()) == 1
    assert json.loads(line) == record
    assert "\u00e9" in line
