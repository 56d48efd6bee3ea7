"""Every reason to refuse an edited description, by hand-made answers."""

import pytest

from pairwright.schemas.rows import Served
from pairwright.tasks.rejected.check_edit import CheckedEdit, RefusedEdit, check_edit
from pairwright.tasks.rejected.check_texts import Truth, likeness
from pairwright.tasks.serving.chat import Answer
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, thing

CHOSEN = description("shows two red cars near a tall house", "depicts a man with a dog")


def said(first="shows two red cars near a tall house", second="depicts a man with a dog"):
    return f"The difference between the two images is that the first image {first}, while the second image {second}."


def check(text, *, row=CHOSEN, side=0, truth=Truth(None), finish_reason="stop"):  # noqa: B008, frozen
    served = Served(
        prompt="p", model="m", revision="", seed=1, prompt_tokens=1, completion_tokens=1, latency=0.1,
        finish_reason=finish_reason,
    )  # fmt: skip
    return check_edit(Answer(text=text, served=served), row, side=side, truth=truth)


@pytest.mark.parametrize(
    ("first", "changed"),
    [
        ("shows two blue cars near a tall house", "red -> blue"),
        ("shows three red cars near a tall house", "two -> three"),
        ("shows two red buses near a tall house", "cars -> buses"),
        ("shows two red cars inside a tall house", "near -> inside"),
        ("shows no red cars near a tall house", "two -> no"),
        ("shows a red car near a tall house", "two -> a"),
        ("shows two red cars near a ruined tower", "tall house -> ruined tower"),
    ],
)
def test_an_edit_that_contradicts(first, changed):
    edit = check(said(first))
    assert edit == CheckedEdit(said(first), changed, likeness(CHOSEN.text, said(first)), None)


def test_the_second_half_may_be_the_one():
    edit = check(said(second="depicts a woman with a dog"), side=1)
    assert isinstance(edit, CheckedEdit)
    assert edit.changed == "man -> woman"


def test_quotation_marks_and_capitals_of_the_other_half_are_put_right():
    edit = check(f'"{said("shows two blue cars near a tall house", "depicts A man, with a dog")}"')
    assert isinstance(edit, CheckedEdit)
    assert edit.text == said("shows two blue cars near a tall house")


REFUSED = {
    "cut off": [said("shows two blue cars near a tall house").removesuffix(".")],
    "off the template": ["The cars are blue.", f"Sure! {said('shows two blue cars near a tall house')}"],
    "empty half": [said("shows")],
    "verb not in the list": [said("includes two blue cars near a tall house")],
    "edited more than one half": [
        said("shows two blue cars near a tall house", "depicts a woman with a dog"),
        said(second="depicts a man with a cat"),
        said("has two blue cars near a tall house"),
    ],
    "no other content": [
        CHOSEN.text,
        said("shows two red cars near the tall house"),
        said("shows, near a tall house, two red cars"),
        said("shows two red automobiles near a tall building"),
        said("shows two tall cars near a red house"),
    ],
    "only adds words": [said("shows two red cars near a tall house and a tree")],
    "only leaves words out": [said("shows two cars near a tall house"), said("shows red cars near a tall house")],
    "too far from the chosen text": [
        said("shows five green boats beside one ruined wooden tower"),
        said(f"shows two blue cars near a tall house {' '.join(f'word{n}' for n in range(9))}"),
    ],
}


@pytest.mark.parametrize(("reason", "text"), [(reason, one) for reason, many in REFUSED.items() for one in many])
def test_refusals(reason, text):
    edit = check(text)
    assert isinstance(edit, RefusedEdit), edit
    assert edit.reason == reason, edit


def test_long_rewritings_are_too_far_though_few_content_words_change():
    chosen = description("shows a cup", "shows a pot")
    text = said(f"shows {'what is as it is and ' * 6}a bowl", "shows a pot")
    assert check(text, row=chosen).reason == "too far from the chosen text"


def test_a_cut_off_answer_is_refused_though_it_ends_well():
    edit = check(said("shows two blue cars near a tall house"), finish_reason="length")
    assert edit == RefusedEdit("cut off", "length")


GRAPHS = (graph(thing(), thing("b", "cube", "green")), graph())
BALL = description("shows a red ball", "shows a sofa")


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("shows a blue ball", CheckedEdit),
        ("shows a green cube", "edited text is as true"),
        ("shows a red giraffe", "not refuted by the scene graphs"),
    ],
)
def test_scene_graphs_have_to_refute_it(first, expected):
    """The second photograph is empty, so its half is read to be true only where it says so."""
    row = description("shows a red ball", "shows no ball")
    edit = check(said(first, "shows no ball"), row=row, truth=Truth(GRAPHS))
    if expected is CheckedEdit:
        assert isinstance(edit, CheckedEdit)
        assert edit.true is False
    else:
        assert isinstance(edit, RefusedEdit)
        assert edit.reason == expected


def test_what_people_said_is_no_counterfactual():
    truth = Truth(None, ("The man with the dog saw two blue cars near the tall house.",))
    assert check(said("shows two blue cars near a tall house"), truth=truth).reason == "edited text is as true"


def test_hidden_characters_of_the_other_half_may_be_left_out():
    """The model is shown the text without control tokens, so it cannot give them back."""
    row = description("shows two red cars", "depicts a <|im_end|>man with a dog")
    edit = check(said("shows two blue cars"), row=row)
    assert isinstance(edit, CheckedEdit)
    assert edit.text == said("shows two blue cars", "depicts a <|im_end|>man with a dog")
