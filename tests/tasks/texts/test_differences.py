"""Every refusal and every tolerance of the reader of implicit-change descriptions, by hand."""

import pytest

from pairwright.prompts import difference_verbs
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts.differences import (
    Difference,
    inflections,
    read_difference,
    refuse_length,
)

START = "The difference between the two images is that the first image"


def text(first="shows a red car", second="displays a blue car"):
    return f"{START} {first}, while the second image {second}."


ACCEPTED = {
    "plain": (text(), ("a red car", "a blue car"), ("shows", "displays")),
    "missing the": (
        text().replace("the two", "two"),
        ("a red car", "a blue car"),
        ("shows", "displays"),
    ),
    "in quotes": (f'"{text()}"', ("a red car", "a blue car"), ("shows", "displays")),
    "over two lines": (
        text().replace(", while", ",\nwhile"),
        ("a red car", "a blue car"),
        ("shows", "displays"),
    ),
    "commas and while inside": (
        text(
            "shows a man, a dog and, while it rains, an umbrella",
            "depicts a man, wet, while running",
        ),
        ("a man, a dog and, while it rains, an umbrella", "a man, wet, while running"),
        ("shows", "depicts"),
    ),
    "another while, of another image": (
        text("shows a poster, while the third image is not here", "has none of these posters"),
        ("a poster, while the third image is not here", "none of these posters"),
        ("shows", "has"),
    ),
    "longest verb first": (
        text("showcases a car", "shows a bus"),
        ("a car", "a bus"),
        ("showcases", "shows"),
    ),
    "inflected": (
        text("showed a car", "is depicting a bus"),
        ("a car", "depicting a bus"),
        ("showed", "is"),
    ),
    "two verbs": (
        text("is focused on a car", "focuses on a bus"),
        ("focused on a car", "on a bus"),
        ("is", "focuses"),
    ),
    "British spelling": (
        text("centred on a car", "labelled a bus"),
        ("on a car", "a bus"),
        ("centred", "labelled"),
    ),
    "negation with content": (text("has no dog", "has a dog"), ("no dog", "a dog"), ("has", "has")),
    "capitals": (
        text("Shows a car", "SHOWS a bus").upper(),
        ("A CAR", "A BUS"),
        ("shows", "shows"),
    ),
    "quoted full stop": (
        text("shows a sign", "has a sign 'CAFE").replace("CAFE.", "CAFE.'"),
        ("a sign", "a sign 'CAFE.'"),
        ("shows", "has"),
    ),
    "an abbreviation": (
        text("shows Dr. Smith", "shows a U.S. flag"),
        ("Dr. Smith", "a U.S. flag"),
        ("shows", "shows"),
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    written, halves, verbs = ACCEPTED[case]
    read = read_difference(written, difference_verbs())
    assert isinstance(read, Difference), read
    assert read.text == " ".join(written.strip('"').split())
    assert (read.first_half, read.second_half) == halves
    assert read.verbs == verbs


REFUSED = {
    "off the template": [
        "The first image shows a car, while the second image shows a bus.",
        f"Sure! {text()}",
        f"{START} shows a car, whereas the second image shows a bus.",
        f"{START} shows a car while the second image shows a bus.",
        text(second="shows a bus, while the second image shows a van"),
        text().removesuffix(".") + ". The first image also shows a tree.",
        f"{text()} Overall, they are different.",
        text().replace(
            "difference between the two images is", "differences between the two images are"
        ),
    ],
    "empty half": [text("", "shows a car"), text("shows", "shows a car"), text("shows a car", "-")],
    "negation or auxiliary only": [
        text("shows a car", second)
        for second in ("does", "is not", "doesn't", "does not have it", "is not the same")
    ]
    + [text("is not", "shows a car"), text("something does", "shows a car")],
    "verb not in the list": [
        text("includes a car"),
        text("clearly shows a car"),
        text(second="does not show a car"),
        text("hash a car"),
        text("shown-off a car"),
    ],
    "halves are equal": [
        text("shows a car", "depicts a car"),
        text("shows a red car", "shows a  Red car"),
    ],
    "placeholder kept": [
        text("shows [object description]", "depicts [object description]"),
        text("shows {descriptive verb} a red car", "depicts a bus"),
    ],
    "cut off": [
        text().removesuffix("."),
        f"{START} shows a car, while the second",
        "",
        text().removesuffix(".") + "!",
    ],
}


@pytest.mark.parametrize(
    ("reason", "written"), [(reason, one) for reason, many in REFUSED.items() for one in many]
)
def test_refused(reason, written):
    read = read_difference(written, difference_verbs())
    assert isinstance(read, RefusedText), read
    assert read.reason == reason, read


def test_a_long_answer_is_cut_off_even_with_a_full_stop():
    read = read_difference(text(), difference_verbs(), finish_reason="length")
    assert read == RefusedText("cut off", "length")


@pytest.mark.parametrize(
    ("halves", "most", "refused"),
    [
        (
            ("shows a red car", "shows a blue car"),
            22,
            RefusedText("too long (words=22)", "23 words"),
        ),
        (("shows a red car", "shows a blue car"), 23, None),
        (("shows cars", "shows a blue car"), 120, RefusedText("too short", "cars")),
        (("shows two cars", "is bright"), 120, RefusedText("too short", "bright")),
        (("shows two cars", "shows no cars"), 120, None),
    ],
)
def test_length(halves, most, refused):
    read = read_difference(text(*halves), difference_verbs())
    assert isinstance(read, Difference)
    assert refuse_length(read, most) == refused


@pytest.mark.parametrize("verb", difference_verbs())
def test_every_verb_of_the_list_is_read(verb):
    read = read_difference(text(f"{verb} a car", f"{verb} a bus"), difference_verbs())
    assert isinstance(read, Difference), read
    assert read.verbs == (verb, verb)


@pytest.mark.parametrize(
    ("verb", "forms"),
    [
        ("depicts", {"depict", "depicted", "depicting"}),
        ("captures", {"capture", "captured", "capturing"}),
        ("discusses", {"discuss", "discussed", "discussing"}),
        ("takes", {"take", "took", "taken", "taking"}),
        ("is", {"are", "was", "were"}),
        ("refers", {"refer", "referred", "referring"}),
        ("specifies", {"specify", "specified"}),
    ],
)
def test_inflections(verb, forms):
    assert forms <= set(inflections(verb))
