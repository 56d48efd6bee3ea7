"""Texts cut to fit: at clause ends where there are any, no piece too long, nothing lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.models.cut_texts import cut_text


def count(text: str) -> int:
    """Count as a tokenizer of bytes would that knows all words of up to five letters."""
    return 2 + sum(1 if len(word) <= 5 else len(word.encode()) for word in text.split())


@pytest.mark.parametrize(
    ("text", "most", "pieces"),
    [
        ("a red ball", 5, ["a red ball"]),
        ("a  red\nball ", 5, ["a red ball"]),
        ("", 5, []),
        # Six words fit: the comma behind the fourth is in the second half.
        ("one two three four, five six seven eight", 8, ["one two three four,", "five six seven eight"]),
        # The comma behind the second is not.
        ("one two, three four five six seven", 8, ["one two, three four five six", "seven"]),
        # A clause begins where "while" does.
        ("a dog sits here while two cats run", 8, ["a dog sits here", "while two cats run"]),
        ("a b c d e f g", 5, ["a b c", "d e f", "g"]),
        # Nine letters are nine tokens: the word is cut to what fits for certain, a quarter of five.
        ("a bcdefghij k", 7, ["a b c d e", "f g h i j", "k"]),
        ("a fig; nuts, and eggs lie there", 7, ["a fig; nuts,", "and eggs lie there"]),
    ],
)
def test_where_texts_are_cut(text: str, most: int, pieces: list[str]) -> None:
    assert list(cut_text(text, count, most)) == pieces


@settings(max_examples=200)
@given(st.text(max_size=200), st.integers(6, 30))
def test_no_piece_is_too_long_and_nothing_is_lost(text: str, most: int) -> None:
    pieces = cut_text(text, count, most)
    assert all(count(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_an_endless_word_takes_no_time() -> None:
    counted: list[int] = []
    pieces = cut_text("x" * 20_000, lambda text: counted.append(len(text)) or count(text), 77)
    assert sum(len(piece.replace(" ", "")) for piece in pieces) == 20_000
    assert max(counted) < 2000, "it is never handed to the tokenizer whole"
