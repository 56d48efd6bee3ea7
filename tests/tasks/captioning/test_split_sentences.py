"""Sentences: by their ends, without losing a character; and what of a model's split is taken."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.captioning.split_sentences import ends_short, read_sentences, split_by_rules

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


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
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


DESCRIPTION = "A tall man with two small dogs is walking past a bakery. He wears a red coat. No cars can be seen."
FACTS = [
    "A tall man walks past a bakery.",
    "The man has two small dogs.",
    "The man wears a red coat.",
    "There are no cars.",
]


def answer(facts):
    return json.dumps({"sentences": facts})


@pytest.mark.parametrize(
    "text",
    [answer(FACTS), json.dumps(FACTS), f"```json\n{answer(FACTS)}\n```", f"  {answer(FACTS + FACTS[:1])}\n"],
    ids=["object", "list", "fence", "a fact twice"],
)
def test_a_faithful_split_is_taken(text):
    assert read_sentences(text, DESCRIPTION) == tuple(FACTS)


REFUSED = {
    "prose": "A tall man walks past a bakery.",
    "nothing": "",
    "cut off": answer(FACTS)[:-9],
    "no list": '{"sentences": "A tall man."}',
    "other names": '{"facts": ["A tall man."]}',
    "not texts": '{"sentences": [1, 2]}',
    "an empty list": answer([]),
    "an empty sentence": answer([*FACTS, ""]),
    "deeply nested": "[" * 100_000,
    "something added": answer([*FACTS, "A blue bicycle leans against the fence."]),
    "a sentence lost": answer(FACTS[:3]),
    "another sentence lost": answer([*FACTS[:2], FACTS[3]]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unfaithful_split_is_not_taken(case):
    assert read_sentences(REFUSED[case], DESCRIPTION) == ()
