"""The tolerant reader of commonalities and differences, on layouts that language models were seen to write."""

import pytest

from schemas.comparisons import (
    AXES,
    Comparison,
    Item,
    RefusedComparison,
    read_axes,
    read_comparison,
)

PUBLISHED = """Commonalities: Both images show a group of people on a beach. In both, the sky is blue.

Differences:
1. Object types: Image 1 contains a surfboard, while Image 2 contains a kite.
2. Counting the objects: There are three people in Image 1. Image 2 shows five.
3. Object actions: The people in Image 1 are walking, whereas in Image 2 they are sitting.
4. Object locations: The surfboard is on the left in Image 1.
5. Relative positions between objects: In Image 1, the dog is in front of the man."""


def test_the_published_layout():
    read = read_comparison(PUBLISHED)
    assert isinstance(read, Comparison)
    assert read.commonalities == ("Both images show a group of people on a beach.", "In both, the sky is blue.")
    assert [item.axes for item in read.differences] == [
        ("object types",),
        ("counts",),
        ("actions",),
        ("locations",),
        ("relative positions",),
    ]
    assert read.differences[1].text == "There are three people in Image 1. Image 2 shows five."


def test_commonalities_as_a_list():
    text = PUBLISHED.replace(
        "Commonalities: Both images show a group of people on a beach. In both, the sky is blue.",
        "Commonalities:\n1. Object types: Both show people.\n2. Both have a blue sky.",
    )
    assert read_comparison(text).commonalities == ("Object types: Both show people.", "Both have a blue sky.")


@pytest.mark.parametrize("bullet", ["-", "*", "•"])
def test_bullets(bullet):
    items = f"{bullet} One is brown.\n{bullet} Colors: One is black."
    text = f"Commonalities:\n{bullet} Both show dogs.\n\nDifferences:\n{items}"
    read = read_comparison(text)
    assert read.commonalities == ("Both show dogs.",)
    assert read.differences == (Item((), "One is brown."), Item(("attributes",), "One is black."))


def test_unlabelled_items():
    items = "1. The primary subject matter is another: a ship.\n2. Image 1: no sail."
    text = f"Commonalities: Both show boats.\n\nDifferences:\n{items}"
    assert read_comparison(text).differences == (
        Item((), "The primary subject matter is another: a ship."),
        Item((), "Image 1: no sail."),
    )


def test_merged_axes():
    text = (
        "Commonalities: Both show boats.\n\nDifferences:\n1. Object types and attributes: A red ship.\n"
        "2. Object locations and relative positions between objects: It is left of the pier."
    )
    assert [item.axes for item in read_comparison(text).differences] == [
        ("object types", "attributes"),
        ("locations", "relative positions"),
    ]


def test_numbers_inside_sentences_do_not_split():
    text = (
        "Commonalities: Both show boats.\n\nDifferences:\n1. Object types: A ship is in Image 2 but not in Image "
        "1. Only Image 1 has 2. A pier.\n2. Counting the objects: Image 1 has three."
    )
    read = read_comparison(text)
    assert len(read.differences) == 2
    assert read.differences[0].text.endswith("Only Image 1 has 2. A pier.")


def test_where_items_have_lines_no_number_within_a_line_splits():
    items = "1. Object types: Image 1 ranks ships: 2. Titanic, 3. Olympic.\n2. Object actions: None sail."
    read = read_comparison(f"Commonalities: Both show boats.\n\nDifferences:\n{items}")
    assert [item.text for item in read.differences] == ["Image 1 ranks ships: 2. Titanic, 3. Olympic.", "None sail."]


def test_a_clause_that_names_an_image_is_no_label():
    item = "Looking at Image 1, the number of ships: three."
    read = read_comparison(f"Commonalities: Both show boats.\n\nDifferences:\n1. {item}")
    assert read.differences == (Item((), item),)


def test_everything_on_one_line():
    items = "1. Object types: A ship in Image 2. 2. Object attributes: It is red."
    text = f"Commonalities: Both show boats. Differences: {items}"
    read = read_comparison(text)
    assert read.commonalities == ("Both show boats.",)
    assert [item.axes for item in read.differences] == [("object types",), ("attributes",)]
    assert read.differences[0].text == "A ship in Image 2."


def test_markdown_and_an_introduction():
    text = (
        "**Commonalities:**\n1. Both show boats.\n\n### Differences\nThe differences are as follows:\n"
        "1) **Object Types**: A ship.\n   - It has sails.\n2) **Object action(s):** It sails."
    )
    read = read_comparison(text)
    assert read.differences == (Item(("object types",), "A ship. It has sails."), Item(("actions",), "It sails."))


@pytest.mark.parametrize(
    "words", ["Commonality:", "Commonalities:", "Commonality(s):", "COMMONALITIES:", "Similarities:"]
)
@pytest.mark.parametrize("others", ["Difference:", "Differences:", "Difference(s):"])
def test_headings(words, others):
    read = read_comparison(f"{words} Both show boats.\n\n{others}\n1. One is red.")
    assert read == Comparison(("Both show boats.",), (Item((), "One is red."),))


@pytest.mark.parametrize(
    ("label", "axes"),
    [
        ("Object types", AXES[:1]),
        ("Object type(s)", AXES[:1]),
        ("Object attribute", AXES[1:2]),
        ("Colour", AXES[1:2]),
        ("Counting the objects", AXES[2:3]),
        ("Number of objects", AXES[2:3]),
        ("Object action(s)", AXES[3:4]),
        ("Poses", AXES[3:4]),
        ("Object location", AXES[4:5]),
        ("Object positions", AXES[4:5]),
        ("Relative positions between objects", AXES[5:]),
        ("Relative position", AXES[5:]),
        ("Positions between objects", AXES[5:]),
        ("Spatial relationships", AXES[5:]),
        ("Setting", ()),
    ],
)
def test_labels(label, axes):
    assert read_axes(label) == axes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Both show boats. One is red.", "no commonalities"),
        ("Commonalities: Both show boats.", "no differences"),
        ("Differences:\n1. One is red.", "off the layout"),
        ("Differences:\n1. One is red.\n\nCommonalities: Both show boats.", "off the layout"),
        ("Commonalities:\n\nDifferences:\n1. One is red.", "no commonalities"),
        ("Commonalities: Both show boats.\n\nDifferences: .", "no differences"),
        (f"{PUBLISHED}\n6. Object attributes: with the three people standing", "cut off"),
        ("", "cut off"),
    ],
)
def test_refused(text, reason):
    read = read_comparison(text)
    assert isinstance(read, RefusedComparison), read
    assert read.reason == reason


def test_a_long_answer_is_cut_off():
    assert read_comparison(PUBLISHED, finish_reason="length") == RefusedComparison("cut off", "length")
