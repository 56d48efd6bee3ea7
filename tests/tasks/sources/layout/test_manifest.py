"""What a record says, whatever types its fields have."""

import pytest

from pairwright.tasks.sources.layout.manifest import (
    MAX_TEXTS,
    caption_fields,
    clean_text,
    parse_json,
    text_of,
    texts_of,
)


def test_texts_of_one_field_or_several_each_once():
    record = {"caption": " a ", "captions": ["b", "a", "", 7, None, ["c"]], "text": {"en": "d"}}
    assert texts_of(record, *caption_fields("")) == ("a", "b")
    assert texts_of(record, *caption_fields("captions")) == ("b", "a")
    assert texts_of({"caption": [str(number) for number in range(5000)]}, "caption")[-1] == str(MAX_TEXTS - 1)


@pytest.mark.parametrize(
    ("value", "text"), [("x ", "x"), (7, "7"), (True, ""), (0.5, ""), (None, ""), ([], ""), (10**18, ""), (-3, "-3")]
)
def test_a_word_is_a_text_or_a_whole_number(value, text):
    assert text_of({"group": value}, "group") == text


def test_the_first_field_that_says_something_counts():
    assert text_of({"licence": " ", "license": "CC0-1.0"}, "licence", "license") == "CC0-1.0"


def test_half_surrogates_are_replaced():
    assert clean_text("a\ud83d") == "a?"
    assert clean_text("😀") == "😀"


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000, b"9" * 5000, b""])
def test_what_is_no_json_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)


def test_a_byte_order_mark_is_no_part_of_a_text():
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
