"""Sentences by their ends, without losing a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.sentences import ends_short, split_by_rules

SPLIT = {
    "full stops": "A cat sits. | A dog runs! | Is it late? | Yes.",
    "titles": "Dr. Smith meets Mrs. Brown and Prof. Lee. | They talk.",
    "initials": "J. A. Smith stands there. | He waits.",
    "letters with full stops": "The U.S. Army tent is green. | A flag of the U.S. | The pole is white.",
    "decimals": "The sign says $3.50 for 1.5 l. | 50 people wait.",
    "times": "It is 5 p.m. on the clock. | It closes at 6 p.m. | The door is open.",
    "streets": "St. Mary's stands on Main St. near a tree. | Cars park on Main St. | The church is old.",
    "numbers": "Bus No. 5 is red. | It has a no. 5 on its side.",
    "and so on": "There are cups, plates, etc. on a table. | Next are forks, spoons, etc. | The cloth is white.",
    "for example": "Tools, e.g. A-clamps, hang there, i.e. Everything is in order. | A drill lies below.",
    "quotations": 'A sign reads "Open." | Another says "No entry!" | "Mat" it says.',
    "a quotation goes on": '"Stop!" it says on the sign. | A car stops.',
    "brackets": "A man (left) waves. | (His hat is red.) | He smiles.",
    "dots": "A road goes on... | Two cars follow.",
    "ends together": "Really?! | The cat is gone.",
    "a list": "1. The cat is red. | 2. The dog is blue.",
    "small letters": "An iPhone lies there. it is on. | A cup.",
    "capitals with accents": "Un café. | Élan is written there.",
    "several lines": "A cat\n sits. | \n\nA dog runs.",
    "no end": "A cat without a full stop",
    "nothing": "",
}


@pytest.mark.parametrize("case", SPLIT)
def test_split_by_rules(case):
    parts = SPLIT[case].split(" | ")
    wanted = tuple(" ".join(part.split()) for part in parts if part)
    assert split_by_rules(" ".join(parts)) == wanted


PIECES = st.sampled_from(
    [
        "A",
        "cat",
        "Dr.",
        "St.",
        "U.S.",
        "3.5",
        "1.",
        "No.",
        "e.g.",
        "The",
        '"Stop."',
        "(See",
        "it.)",
        "...",
        "?!",
        "é.",
        "\n",
        ".",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.lists(PIECES, max_size=12).map(" ".join), st.text(max_size=60)))
def test_no_text_is_lost(text):
    sentences = split_by_rules(text)
    assert " ".join(sentences) == " ".join(text.split())
    assert all(sentences)


@pytest.mark.parametrize(
    ("text", "short"),
    [("It shows Dr.", True), ("a sign '(e.g.", True), ("It shows a doctor.", False), ("", False), ("at 5 p.m.", False)],
)
def test_ends_short(text, short):
    assert ends_short(text) is short
