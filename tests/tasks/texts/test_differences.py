"""Every refusal and every tolerance of the reader of implicit-change descriptions, by hand."""

import pytest

from pairwright.prompts import difference_verbs
from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts import differences

START = "The difference between the two images is that the first image"
VERBS = difference_verbs()


def text(first="shows a red car", second="displays a blue car"):
    return f"{START} {first}, while the second image {second}."


PLAIN = "a red car | a blue car", "shows displays"
RAIN = "a man, a dog and, while it rains, an umbrella"
POSTER = "a poster, while the third image is not here"
ACCEPTED = {
    "plain": (text(), *PLAIN),
    "missing the": (text().replace("the two", "two"), *PLAIN),
    "over two lines": (text().replace(", while", ",\nwhile"), *PLAIN),
    "commas and while inside": (
        text(f"shows {RAIN}", "depicts a man, wet, while running"),
        f"{RAIN} | a man, wet, while running",
        "shows depicts",
    ),
    "another while, of another image": (
        text(f"shows {POSTER}", "has none of these posters"),
        f"{POSTER} | none of these posters",
        "shows has",
    ),
    "longest verb first": (
        text("showcases a car", "shows a bus"), "a car | a bus", "showcases shows"
    ),
    "inflected": (
        text("showed a car", "is depicting a bus"), "a car | depicting a bus", "showed is"
    ),
    "two verbs": (
        text("is focused on a car", "focuses on a bus"), "focused on a car | on a bus", "is focuses"
    ),
    "British spelling": (
        text("centred on a car", "labelled a bus"), "on a car | a bus", "centred labelled"
    ),
    "negation with content": (text("has no dog", "has a dog"), "no dog | a dog", "has has"),
    "capitals": (text("Shows a car", "SHOWS a bus").upper(), "A CAR | A BUS", "shows shows"),
    "quoted full stop": (
        text("shows a sign", "has a sign 'CAFE").replace("CAFE.", "CAFE.'"),
        "a sign | a sign 'CAFE.'",
        "shows has",
    ),
    "an abbreviation": (
        text("shows Dr. Smith", "shows a U.S. flag"), "Dr. Smith | a U.S. flag", "shows shows"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("written", "halves", "verbs"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(written, halves, verbs):
    read = differences.read_difference(written, VERBS)
    assert isinstance(read, differences.Difference), read
    assert read.text == " ".join(written.split())
    assert f"{read.first_half} | {read.second_half}" == halves
    assert read.verbs == tuple(verbs.split())


NO_ENDING = text().removesuffix(".")
REFUSED = {
    "off the template": [
        "The first image shows a car, while the second image shows a bus.",
        f"Sure! {text()}",
        f"{START} shows a car, whereas the second image shows a bus.",
        f"{START} shows a car while the second image shows a bus.",
        text(second="shows a bus, while the second image shows a van"),
        f"{NO_ENDING}. The first image also shows a tree.",
        f"{text()} Overall, they are different.",
        text().replace("difference", "differences").replace("images is", "images are"),
    ],
    "empty half": [text("", "shows a car"), text("shows", "shows a car"), text("shows a car", "-")],
    "negation or auxiliary only": [
        text(second="does"),
        text(second="is not"),
        text(second="doesn't"),
        text(second="does not have it"),
        text(second="is not the same"),
        text("is not", "shows a car"),
        text("something does", "shows a car"),
    ],
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
    "no full stop": [NO_ENDING, f"{START} shows a car, while the second", "", f"{NO_ENDING}!"],
}


@pytest.mark.parametrize(
    ("reason", "written"),
    [(reason, written) for reason, texts in REFUSED.items() for written in texts],
)
def test_refused(reason, written):
    read = differences.read_difference(written, VERBS)
    assert isinstance(read, RefusedText), read
    assert read.reason == reason, read


@pytest.mark.parametrize(
    ("first", "second", "most", "refused"),
    [
        ("shows a red car", "shows a blue car", 22, ("too long (words=22)", "23 words")),
        ("shows a red car", "shows a blue car", 23, None),
        ("shows cars", "shows a blue car", 120, ("too short", "cars")),
        ("shows two cars", "is bright", 120, ("too short", "bright")),
        ("shows two cars", "shows no cars", 120, None),
    ],
)
def test_length(first, second, most, refused):
    read = differences.read_difference(text(first, second), VERBS)
    assert isinstance(read, differences.Difference)
    assert differences.refuse_length(read, most) == (refused and RefusedText(*refused))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_the_list_is_read(verb):
    read = differences.read_difference(text(f"{verb} a car", f"{verb} a bus"), VERBS)
    assert isinstance(read, differences.Difference), read
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
    assert forms <= set(differences.inflections(verb))
