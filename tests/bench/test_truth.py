"""The benchmark's reader of texts: sentences by hand about two small scenes, true ones and planted
false ones."""

import pytest

from pairwright.schemas.scene import Mask, SceneChange
from tests.bench.bench_truth import Figure
from tests.bench.truth_text import Reader, find_changes, is_ambiguous, is_true, tells
from tests.fixtures.graphs import graph, thing


def at(name, first, **values):
    """Make an object whose pixels are column ``first`` of a picture of 4 x 10 pixels."""
    column = ("left", "centre", "right")[min(3 * first // 10, 2)]
    mask = Mask(height=4, width=10, counts=(4 * first, 4, 4 * (9 - first)))
    return thing(name, column=column, box=(first, 0, first + 1, 4), **values).model_copy(
        update={"mask": mask}
    )


BALL, MUG = at("ball", 0), at("mug", 9, shape="mug", material="ceramic", size="large", depth="back")
SIGN = at("sign", 4, shape="sign", colour="green", text="OPEN", size="medium")
BOX = at("box", 8, shape="box", colour="blue", material="wooden", pose="with its lid open")
BLUE = BALL.model_copy(update={"colour": "blue"})
CHANGES = (
    SceneChange(type="colour", object_id="ball"),
    SceneChange(type="disappearance", object_id="mug"),
)
PAIR = (
    graph(BALL, MUG, SIGN, BOX),
    graph(BLUE, SIGN, BOX, changes=CHANGES, light="cool light from the right"),
)
READER = Reader(PAIR)


def false_in(text, pair=PAIR):
    """Return the false statements of a text that is read whole."""
    reading = READER.read(text)
    assert not reading.unread
    assert reading.said
    return [said for said in reading.said if not is_true(said, pair)]


def template(first, second):
    halves = f"the first image shows {first}, while the second image has {second}."
    return f"The difference between the two images is that {halves}"


TRUE = (
    template("a small red metal ball on the left", "a blue metal ball on the left"),
    template(
        "a wooden table-top with a red ceramic mug in the background",
        "a scene without a mug or a red ball",
    ),
    template(
        "a green metal sign that says 'OPEN', but no blue ball", "a box but no red ceramic mug"
    ),
    template(
        "a blue wooden box with its lid open but no blue ball",
        "a wooden table-top with a sign but without a mug",
    ),
    "Image 1 has a red ceramic mug, but Image 2 has no red ceramic mug.",
    "In Image 1, the red metal ball is to the left of the red ceramic mug.",
    (
        "On a wooden table-top, the red metal ball has turned blue. The red mug to the right of "
        "the green sign is gone."
    ),
    "Red ball now blue; red ceramic mug gone; one green sign instead of one.",
    "The only red mug is missing, the red metal ball is blue now.",
    (
        "1. The first image shows a mug but no blue ball.\n2. There is no mug or red ball in the "
        "second image."
    ),
    "In the first image there is a red ball. The second has no red ball or mug.",
    "In the first image there is a red ball. The second has a blue one.",
    "The first image shows a red mug. There is none in the second.",
    "There is no blue ball in the first picture. The second has one.",
    "There was a red mug before, now there is none. There is a blue ball instead of the red ball.",
    "The first image has one green sign, the second has one.",
    "Differences:\n1. Object types: There is a mug in Image 1 but not in Image 2.",
)
MOVED = "The red mug {} and is now on the left to the left of the green sign."


@pytest.mark.parametrize("verb", ["moved", "has moved", "was moved"])
def test_a_move_to_a_neighbour_is_read(verb) -> None:
    reading = READER.read(MOVED.format(verb))
    assert reading.unread == ()
    assert any(said.value == "to the left of" for said in reading.said)


FALSE = (
    template("a large red metal ball", "a blue metal ball"),
    template("a red metal ball", "a blue metal ball on the right"),
    template("a scene without a red ball", "a blue metal ball"),
    template("a red metal ball", "a wooden table-top with a ceramic mug"),
    template("two red metal balls", "a blue metal ball"),
    template("a green metal sign that says 'EXIT'", "no mug"),
    "The scene remains the same.",
    "There is a red metal ball in Image 2 but not in Image 1.",
    "Both images show a ceramic mug.",
    "In Image 1, the red metal ball is to the right of the red ceramic mug.",
    "No object was added, removed or replaced.",
    (
        "Only the light is different: bright warm light from the left in Image 1, cool light from "
        "the right in Image 2."
    ),
    "The red metal ball has turned green.",
    "The red metal ball to the right of the green sign has turned blue.",
    "A red ceramic mug has been added.",
    "The blue wooden box is gone.",
    "There are two red balls instead of one.",
    "The green sign says 'EXIT' instead of 'OPEN'.",
    "The green sign says 'OPEN' instead of 'EXIT'.",
    "The green sign moved from the left to the right.",
    "The second image is just darker.",
    "The first image has a green sign. The second has none.",
    "The first image has a red ball. The second has one on the right.",
    "There is no red mug in the first image. The second has one.",
    "The first image has one green sign. The second shows two.",
    "There is no blue ball or green sign in the second image.",
    "The scene is lit by cool light from the right.",
)


@pytest.mark.parametrize("text", TRUE)
def test_true_sentences_have_no_false_statement(text):
    assert false_in(text) == []


@pytest.mark.parametrize("text", FALSE)
def test_planted_false_statements_are_found(text):
    assert false_in(text)


@pytest.mark.parametrize(
    "said", ["a red metal bell", "a red metal ball that smiles", "perhaps a red metal ball"]
)
def test_what_is_not_understood_is_never_taken_for_true(said):
    reading = READER.read(template(said, "a blue metal ball"))
    assert reading.said == ()
    assert len(reading.unread) == 1


def test_a_definite_phrase_that_fits_several_things_is_ambiguous():
    pair = (graph(BALL, MUG, BLUE.model_copy(update={"id": "other"})), PAIR[1])
    said = READER.read("In Image 1, the metal ball is to the left of the red ceramic mug.").said
    assert [one.look for one in said if is_ambiguous(one, pair)] == [
        (("material", "metal"), ("shape", "ball"))
    ]
    assert not any(is_ambiguous(one, PAIR) for one in said)


def test_a_change_that_no_statement_tells_is_missed():
    told = READER.read(template("a red metal ball", "a blue metal ball")).said
    changes = find_changes(PAIR)
    assert [(a and a.id, b and b.id) for a, b in changes] == [("ball", "ball"), ("mug", None)]
    assert [any(tells(one, change, PAIR) for one in told) for change in changes] == [True, False]
    unseen = graph(*PAIR[0].objects[1:], changes=(SceneChange(type="viewpoint"),))
    assert find_changes((PAIR[0], unseen)) == []


def test_bounds_are_judged_with_their_intervals():
    assert Figure("", 0, 100, most=0).verdict == "ok"
    assert Figure("", 1, 100, most=0).verdict == "not"
    assert Figure("", 58, 100, most=0.55).verdict == "open"  # 0.48 to 0.67
    assert Figure("", 70, 100, most=0.55).verdict == "not"
    assert Figure("", 60, 100, least=0.95).verdict == "not"
    assert Figure("", 0, 0, most=0).verdict == "none"
    low, high = Figure("", 5, 10).interval
    assert (low, high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
