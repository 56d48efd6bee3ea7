"""Words and sentences: what a text says, affirms and denies, and what makes it no answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.texts import words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a photo of two dogs and the dog's bones", ["two", "dog", "dog", "bone"]),
        ("There isn’t any glass on the bus", ["no", "glass", "bus"]),
        ("a scene without people, lacking colour", ["no", "people", "no", "colour"]),
        ("The image is a view of it", []),
        ("ein weißes Haus, 3 Bäume", ["ein", "weiße", "haus", "3", "bäume"]),
        ("", []),
    ],
)
def test_content_words(text, expected):
    assert words.content_words(text) == expected


SPLIT = {
    "full stops": "A cat sits. | A dog runs! | Is it late? | Yes.",
    "titles": "Dr. Smith meets Mrs. Brown and Prof. Lee. | They talk.",
    "initials": "J. A. Smith stands there. | He waits.",
    "letters with full stops": (
        "The U.S. Army tent is green. | A flag of the U.S. | The pole is white."
    ),
    "decimals": "The sign says $3.50 for 1.5 l. | 50 people wait.",
    "times": "It is 5 p.m. on the clock. | It closes at 6 p.m. | The door is open.",
    "streets": (
        "St. Mary's stands on Main St. near a tree. | Cars park on Main St. | The church is old."
    ),
    "numbers": "Bus No. 5 is red. | It has a no. 5 on its side.",
    "and so on": (
        "There are cups, plates, etc. on a table. | Next are forks, spoons, etc. | The "
        "cloth is white."
    ),
    "for example": (
        "Tools, e.g. A-clamps, hang there, i.e. Everything is in order. | A drill lies below."
    ),
    "quotations": 'A sign reads "Open." | Another says "No entry!" | "Mat" it says.',
    "a quotation goes on": '"Stop!" it says on the sign. | A car stops.',
    "brackets": "A man (left) waves. | (His hat is red.) | He smiles.",
    "dots": "A road goes on... | Two cars follow.",
    "a list": "1. The cat is red. | 2. The dog is blue.",
    "small letters": "An iPhone lies there. it is on. | A cup.",
    "capitals with accents": "Un café. | Élan is written there.",
    "no end": "A cat without a full stop",
    "nothing": "",
}


@pytest.mark.parametrize("marked", SPLIT.values(), ids=SPLIT)
def test_split_by_rules(marked):
    parts = marked.split(" | ")
    assert words.split_by_rules(" ".join(parts)) == tuple(part for part in parts if part)


WORDS = """A cat Dr. St. U.S. 3.5 1. No. e.g. The "Stop." (See it.) ... ?! é. ."""
PIECES = st.sampled_from(["\n", *WORDS.split()])


@settings(max_examples=300)
@given(st.one_of(st.lists(PIECES, max_size=12).map(" ".join), st.text(max_size=60)))
def test_no_text_is_lost(text):
    sentences = words.split_by_rules(text)
    assert " ".join(sentences) == " ".join(text.split())
    assert all(sentences)


KINDS = {
    (words.ends_short, True): ["It shows Dr.", "a sign '(e.g."],
    (words.ends_short, False): ["It shows a doctor.", "", "at 5 p.m."],
    (words.declines, True): [
        "I'm sorry, but I cannot assist with that.",
        "As an AI language model, I do not see images.",
        "I don't have access to the two photographs.",
        "No images were provided.",
        "It is hard to say without seeing the images.",
        "Please provide the captions of both images.",
    ],
    (words.declines, False): [
        "Both images show a dog.",
        'The shirt in Image 1 reads "I\'m sorry".',
        "A sign says “I cannot park here”.",
        "No images hang on the wall.",
    ],
    (words.names_captions, True): [
        "According to the caption, there is a dog.",
        "Based on the descriptions, the car is red.",
        "The first caption mentions a dog.",
        "Caption 2 speaks of a cat.",
        "The colour of the car is not specified.",
        "Image 2 does not mention any people.",
        "The description of Image 1 says so.",
    ],
    (words.names_captions, False): [
        "Both images show a dog.",
        "The newspaper has a photograph with a caption below it.",
        'The poster reads "according to the caption".',
        "A plaque gives a description of the statue.",
        "No dog can be seen in Image 2.",
    ],
    (words.repeats_itself, True): [
        "a dog " * 12,
        "There is a tree. " + "In Image 1, the man stands to the left of the dog. " * 4,
        "".join(f"{n}. Object types: Image 1 has a dog and a cat. " for n in range(1, 6)),
        " ".join(str(n) for n in range(50)) + " and so on" * 12,
        "#" * 300,
    ],
    (words.repeats_itself, False): [
        "",
        "A dog, a dog, a dog, and a dog.",
        "In Image 1, the man is left of the dog. In Image 2, the man is right of the dog. In Image "
        "1, the dog is left of the cat. In Image 2, the dog is right of the cat. In Image 1, the "
        "cat is left of the man.",
        "Both images show a dog.\n" + "-" * 60,
        "Image 1 shows a red boat on the water. " * 3,
    ],
    (words.says_no_change, True): [
        "the same scene with no visible change",
        "no change",
        "no differences from the first image",
        "the very same scene",
        "The same image as the first, with nothing added, taken away or moved",
        "unchanged",
        "identical to the first image",
        "the same scene, in which no object has changed",
        "nothing changed in any way",
    ],
    (words.says_no_change, False): [
        "a car",
        "the same scene",
        "the same scene with a car",
        "no change in the colour of the car",
        "the unchanged street with a new car",
        "the same scene with changes",
        "not the same image",
        "no longer the same image",
        "nothing",
        "no objects",
        "no identical objects",
        "2 identical images",
        "",
        "any objects that were removed",
        "objects, any that taken",
    ],
}


@pytest.mark.parametrize(
    ("judge", "expected", "text"),
    [(*kind, text) for kind, texts in KINDS.items() for text in texts],
)
def test_judgements_of_a_text(judge, expected, text):
    assert judge(text) is expected


@pytest.mark.parametrize(
    "half", ["a red ball, a blue cube and a dog", "a man; behind him, two dogs", "three knots"]
)
def test_a_half_that_denies_nothing_is_kept(half):
    assert not words.denies(half)
    assert words.affirmed(half) == half


@pytest.mark.parametrize(
    ("half", "kept"),
    [
        ("no dog", ""),
        ("a scene without dogs", ""),
        ("a lawn without a dog", "a lawn"),
        ("a red ball but no blue cube", "a red ball"),
        ("a scene with a cat but without a dog", "a scene with a cat"),
        ("no dog, but a cat", "a cat"),
        ("no dog and with a cat", "with a cat"),
        ("the dog is missing", ""),
        ("a table, the cup on it isn't there", "a table"),
        ("a man who is no longer there, and a bench", "a bench"),
        ("a cup instead of a glass", "a cup"),
        ("a street. No cars are parked.", "a street"),
        ("a table with nothing on it", "a table"),
    ],
)
def test_denials_are_cut_out(half, kept):
    assert words.denies(half)
    assert words.affirmed(half) == kept


@pytest.mark.parametrize("half", ["", "it", "the scene", "the same picture of it"])
def test_a_half_without_content_affirms_nothing(half):
    assert words.affirmed(half) == ""
