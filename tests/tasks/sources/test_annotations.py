"""Annotations are hostile: texts that are none, files and lines that are too long."""

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources import annotations
from pairwright.tasks.sources.annotations import (
    MAX_TEXTS,
    check_texts,
    check_word,
    load_json,
    load_lists,
    usable_texts,
)
from pairwright.tasks.sources.reader import RefusedEntryError


@pytest.mark.parametrize(
    ("value", "texts"),
    [([" a car ", "", " \n", "two"], ("a car", "two")), ("one", ("one",)), ("", ()), ([], ())],
)
def test_texts_are_stripped_and_blank_ones_left_out(value, texts) -> None:
    assert check_texts(value) == texts


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "captions are not texts"),
        ([["a"]], "captions are not texts"),
        pytest.param(["a"] * 1001, "too much text", id="many texts"),
        pytest.param("a" * 100_001, "too much text", id="a long text"),
        ("half a sign \ud83d", "text is not Unicode"),
    ],
)
def test_other_texts_are_refused(value, reason) -> None:
    with pytest.raises(RefusedEntryError) as refused:
        check_texts(value)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "JSON"),
        pytest.param(b"[" * 100_000, "JSON", id="deep"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "JSON", id="a long number"),
        (b"\xff\xff\xff", "JSON"),
        (b"[]", "object.* list"),
        (b'{"a": 3}', "a .*list.* int"),
    ],
)
def test_files_that_are_no_annotations_are_a_source_error(data, message, tmp_path) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(SourceError, match=rf"a\.json: .*{message}"):
        load_lists(tmp_path / "a.json")


def test_missing_and_oversized_files_are_a_source_error(tmp_path, monkeypatch) -> None:
    with pytest.raises(SourceError, match=r"a\.json: .*No such file"):
        load_json(tmp_path / "a.json", list)
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": [1]}')  # with a byte order mark
    assert load_lists(tmp_path / "a.json") == {"a": [1]}
    (tmp_path / "a.json").write_bytes(b"[1, 2]")
    monkeypatch.setattr(annotations, "MAX_FILE_BYTES", 5)
    with pytest.raises(SourceError, match=r"a\.json: .*6 bytes.* 5"):
        load_json(tmp_path / "a.json", list)


def test_long_lines_are_skipped_and_blank_ones_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(annotations, "MAX_LINE_BYTES", 8)
    (tmp_path / "a").write_bytes(b"1234567\n\n12345678\n123456789\n" + b"x" * 30 + b"\n  \nlast")
    lines = list(annotations.stream_lines(tmp_path / "a"))
    assert lines == [(1, b"1234567\n"), (3, b"12345678\n"), (4, None), (5, None), (7, b"last")]


def test_texts_of_a_value_whatever_its_type() -> None:
    values = [" b", "a", "", 7, None, ["c"], "x" * 100_001, "a\ud83d"]
    assert usable_texts(values) == ("b", "a", "a?")
    assert usable_texts({"en": "d"}) == usable_texts(None) == ()
    assert len(usable_texts([str(number) for number in range(5000)])) == MAX_TEXTS


@pytest.mark.parametrize(("value", "text"), [("x ", "x"), (7, "7"), (None, "")])
def test_a_word_is_a_text_or_a_whole_number(value, text) -> None:
    assert check_word({"group": value}, "group") == text
    assert check_word({"groups": None, "group": value}, "groups", "group") == text


@pytest.mark.parametrize("value", [True, 0.5, [], 10**18, "x" * 1001])
def test_another_word_is_refused(value) -> None:
    with pytest.raises(RefusedEntryError, match="damaged field"):
        check_word({"group": value}, "group")
