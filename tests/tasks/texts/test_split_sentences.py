"""What a model split a text into is taken where it says what the text says, and nothing else."""

import json

import pytest

from pairwright.tasks.texts.split_sentences import read_sentences

DESCRIPTION = (
    "A tall man with two small dogs is walking past a bakery. He wears a red coat. "
    "No cars can be seen."
)
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
    [
        answer(FACTS),
        json.dumps(FACTS),
        f"```json\n{answer(FACTS)}\n```",
        f"  {answer(FACTS + FACTS[:1])}\n",
    ],
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


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_an_unfaithful_split_is_not_taken(text):
    assert read_sentences(text, DESCRIPTION) == ()


def test_words_may_be_refused_that_the_text_lacks():
    """By default a quarter of a statement's words may be the model's own."""
    assert read_sentences(answer(FACTS), DESCRIPTION, least_known=1.0) == tuple(FACTS)
    own = answer(["A tall young man walks past a bakery.", *FACTS[1:]])
    assert read_sentences(own, DESCRIPTION)
    assert read_sentences(own, DESCRIPTION, least_known=1.0) == ()
