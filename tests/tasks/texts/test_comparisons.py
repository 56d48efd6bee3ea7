"""The tolerant reader of commonalities and differences, on layouts that language models were seen
to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts.comparisons import (
    AXES,
    Comparison,
    read_axes,
    read_comparison,
)


@pytest.mark.parametrize(
    ("label", "axes"),
    [
        ("Object types", AXES[:1]),
        ("Object attribute", AXES[1:2]),
        ("Colour", AXES[1:2]),
        ("Counting the objects", AXES[2:3]),
        ("Object action(s)", AXES[3:4]),
        ("Object location", AXES[4:5]),
        ("Relative positions between objects", AXES[5:]),
        ("Positions between objects", AXES[5:]),
        ("Spatial relationships", AXES[5:]),
        ("Setting", ()),
    ],
)
def test_labels(label, axes) -> None:
    assert read_axes(label) == axes


PUBLISHED = """\
Commonalities: Both images show a group of people on a beach. In both, the sky is blue.

Differences:
1. Object types: Image 1 contains a surfboard, while Image 2 contains a kite.
2. Counting the objects: There are three people in Image 1. Image 2 shows five.
3. Object actions: The people in Image 1 are walking, whereas in Image 2 they are sitting.
4. Object locations: The surfboard is on the left in Image 1.
5. Relative positions between objects: In Image 1, the dog is in front of the man."""


def test_the_published_layout() -> None:
    read = read_comparison(PUBLISHED)
    assert isinstance(read, Comparison)
    assert read.commonalities == (
        "Both images show a group of people on a beach.",
        "In both, the sky is blue.",
    )
    axes = ["object types", "counts", "actions", "locations", "relative positions"]
    assert [item.axes for item in read.differences] == [(axis,) for axis in axes]
    assert read.differences[1].text == "There are three people in Image 1. Image 2 shows five."


BOATS = "Commonalities: Both show boats.\n\nDifferences:\n1. Object types"
ONLY = "A ship is in Image 2 but not in Image 1. Only Image 1 has 2. A pier."
RANKS = "Image 1 ranks ships: 2. Titanic, 3. Olympic."


@pytest.mark.parametrize(
    ("items", "differences"),
    [
        pytest.param(
            " and attributes: A red ship.\n"
            "2. Object locations and relative positions between objects: It is left of the pier.",
            [
                (("object types", "attributes"), "A red ship."),
                (("locations", "relative positions"), "It is left of the pier."),
            ],
            id="merged axes",
        ),
        pytest.param(
            f": {ONLY}\n2. Counting the objects: Image 1 has three.",
            [(("object types",), ONLY), (("counts",), "Image 1 has three.")],
            id="a number at the start of a sentence",
        ),
        pytest.param(
            f": {RANKS}\n2. Object actions: None sail.",
            [(("object types",), RANKS), (("actions",), "None sail.")],
            id="numbers inside a sentence",
        ),
    ],
)
def test_items_of_the_published_layout(items, differences) -> None:
    read = read_comparison(BOATS + items)
    assert [(item.axes, item.text) for item in read.differences] == differences


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Both show boats. One is red.", "no differences"),
        ("Image 1 shows a boat. Image 2 shows a ship.", "no commonalities"),
        ("The boats are red.", "no commonalities"),
        ("Commonalities and differences: Image 1 has a red boat.", "no commonalities"),
        ("Commonalities: Both show boats.", "no differences"),
        ("Differences:\n1. One is red.", "off the layout"),
        ("Differences:\n1. One is red.\n\nCommonalities: Both show boats.", "off the layout"),
        ("Commonalities:\n\nDifferences:\n1. One is red.", "no commonalities"),
        ("Commonalities: Both show boats.\n\nDifferences: .", "no differences"),
        (
            "1. What do both images share?\n2. How do they differ? Image 1 has a red boat.",
            "asks instead of telling",
        ),
        (f"{PUBLISHED}\n6. Object attributes: with the three people standing", "no full stop"),
        ("", "no full stop"),
    ],
)
def test_refused(text, reason) -> None:
    read = read_comparison(text)
    assert isinstance(read, RefusedText), read
    assert read.reason == reason


SHOWN = "Commonalities: Both images show boats.\n\nDifferences:\n"
LAYOUTS = {
    "Markdown, a bullet for each image": (
        "### Commonalities:\n1. **Object Types**: Both show a dog.\n"
        "2. **Setting**: Both are outdoors.\n\n### Differences:\n1. **Object Types**:\n"
        "   - **Image 1**: A frisbee.\n   - **Image 2**: A ball.\n"
        "2. **Counting the Objects**:\n   - **Image 1**: One dog\n   - **Image 2**: Two dogs.\n"
        "\n### Conclusion:\nOverall, both images show dogs.",
        "Object Types: Both show a dog. | Setting: Both are outdoors.",
        "object types: Image 1: A frisbee. Image 2: A ball. | counts: Image 1: One dog. Image "
        "2: Two dogs.",
    ),
    "the two halves below each axis": (
        "Sure! Here is a summary of the commonalities and differences:\n\n"
        "**1. Object Types:**\n- Commonalities: Both images show dogs.\n"
        "- Differences: Image 1 has a cat. Image 2 has none.\n\n**2. Counting the objects:**\n"
        "- Commonalities: Both have one person.\n- Differences: Image 1 has two dogs.",
        "Both images show dogs. | Both have one person.",
        "object types: Image 1 has a cat. Image 2 has none. | counts: Image 1 has two dogs.",
    ),
    "the axes as headings above bullets": (
        "**Similarities:**\n- Both show a street.\n\n**Differences:**\n\n**Object Types:**\n"
        "- Image 1 has a bus.\n- Image 2 has a tram.\n\n**Counts**\n- Image 1 has two cars.",
        "Both show a street.",
        "object types: Image 1 has a bus. Image 2 has a tram. | counts: Image 1 has two cars.",
    ),
    "labels and images as bullets of one level": (
        "Similarities between the two images:\n* Both show a street.\n\n"
        "Differences between the two images:\n* Object types:\n* Image 1: a bus.\n"
        "* Image 2: a tram.\n* Counts:\n* Image 1: four.",
        "Both show a street.",
        "object types: Image 1: a bus. Image 2: a tram. | counts: Image 1: four.",
    ),
    "prose alone": (
        "Both images depict a kitchen. They have a wooden floor. In contrast, the first image "
        "has a stove, whereas the second has a fridge. In terms of the number of objects, "
        "Image 1 has three chairs and Image 2 one.",
        "Both images depict a kitchen. | They have a wooden floor.",
        "none: In contrast, the first image has a stove, whereas the second has a fridge. | "
        "counts: In terms of the number of objects, Image 1 has three chairs and Image 2 one.",
    ),
    "prose below headings": (
        "## Commonalities and Differences\n\n**Commonalities**\n\n"
        "Both show a park. The sky is clear.\n\n**Differences**\n\nThe first image has a dog.\n"
        "The second has a\ncat.",
        "Both show a park. | The sky is clear.",
        "none: The first image has a dog. | none: The second has a cat.",
    ),
    "a heading for each axis": (
        "Commonalities in object types: Both contain a horse.\n"
        "Differences in object types: Image 1 also has a dog.\n"
        "Differences in the number of objects: There are two riders in Image 1. There is one "
        "in Image 2.",
        "Both contain a horse.",
        "object types: Image 1 also has a dog. | counts: There are two riders in Image 1. "
        "There is one in Image 2.",
    ),
    "one line after a greeting": (
        "Certainly! Commonalities: Both show boats. Differences: 1. Object types: A ship. 2. "
        "Counts: Two.",
        "Both show boats.",
        "object types: A ship. | counts: Two.",
    ),
    "numbers that do not count": (
        "Commonalities:\n1. Both show boats.\n1. Both show a pier.\n\nDifferences:\n"
        "1. Object types: A ship.\n1. Counts: Two.",
        "Both show boats. | Both show a pier.",
        "object types: A ship. | counts: Two.",
    ),
    "letters and dashes": (
        "A. Commonalities\na) Both show boats.\nb) Both show a pier.\n\nB. Differences\n"
        "a) Object types - A ship.\nb) Counts – Two.",
        "Both show boats. | Both show a pier.",
        "object types: A ship. | counts: Two.",
    ),
    "in Windows' lines": (
        "Commonalities:\r\n- Both show boats.\r\n\r\nDifferences:\r\n- Object types: A ship.",
        "Both show boats.",
        "object types: A ship.",
    ),
}  # fmt: skip
"""A text, the commonalities that are read from it, and the differences with their axes."""


@pytest.mark.parametrize(("text", "commonalities", "differences"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_that_models_write(text, commonalities, differences) -> None:
    read = read_comparison(text)
    assert isinstance(read, Comparison)
    assert " | ".join(read.commonalities) == commonalities
    labelled = [f"{'/'.join(item.axes) or 'none'}: {item.text}" for item in read.differences]
    assert " | ".join(labelled) == differences


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Sure! Here are the commonalities and differences between the two images:\n\n", ""),
        ("", "\n\nOverall, the two images are much alike."),
        ("Of course. Based on the two captions, here is a summary.\n\n", "\n\n---"),
        ("", "\n\n**Conclusion**\n\nThe images differ."),
    ],
)
def test_the_text_is_the_summary_alone(before, after) -> None:
    text = f"{SHOWN}1. Object types: A ship.\n2. Counts: Two."
    read = read_comparison(before + text + after)
    assert read.text == text
    assert read == read_comparison(text)


@pytest.mark.parametrize(
    "end", ["with the three people standing...", "with three people", "with three people,", "- "]
)
def test_a_text_that_trails_off_has_no_full_stop(end) -> None:
    assert read_comparison(f"{SHOWN}1. Object types: {end}").reason == "no full stop"


UNITS = ["- ", "1. ", "# ", "\n ", "- a\n", "Differences:\n", "Object types:\n", "sure "]


@pytest.mark.parametrize("unit", [*"#*-_ \t\n.:>|«'", *UNITS])
def test_long_nonsense_is_read_in_no_time(unit) -> None:
    for start in ("", f"{SHOWN}1. "):
        read = read_comparison(start + unit * (20_000 // len(unit)) + "end.")
        assert isinstance(read, Comparison | RefusedText)


PIECES = [*PUBLISHED.split(" "), "\n", "\n\n", "1.", "**", "- ", "Similarities:", "## "]


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_whatever_is_written_is_read_or_refused(words) -> None:
    read = read_comparison(" ".join(words))
    if isinstance(read, Comparison):
        assert read.commonalities
        assert read.differences
        texts = [*read.commonalities, *(item.text for item in read.differences)]
        assert all(text.strip() == text != "" for text in texts)
        assert read_comparison(read.text) == read
