"""Counterfactual texts: questions, confirmation by the model, and refusals."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts.difference_prompts import difference_regex
from pairwright.schemas.config import CounterfactualsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Dropped, RejectedTextRow, Served
from pairwright.tasks.rejected.check_texts import KnownContent
from pairwright.tasks.rejected.edit_with_model import (
    OFFERS,
    CheckedEdit,
    check_edit,
    draw_plans,
    edit_with_model,
)
from pairwright.tasks.serving.chat import Answer
from tests.fixtures.asking import ask_stage, assert_no_tokens
from tests.fixtures.chat_server import Reply
from tests.fixtures.descriptions import description, person_said, rejected_text
from tests.fixtures.graphs import graph, pair_row, thing
from tests.fixtures.injections import INJECTIONS

KINDS = {
    "object": "put another object",
    "attribute": "another colour",
    "count": "how many",
    "relation": "in relation to",
    "action": "does",
    "left or right": "put left",
    "presence": "not there",
}
SENTENCE = re.compile(r"how two images differ: \"(.*)\"\n")
PAIR = pair_row("a" * 32, "b" * 32)
CHOSEN = description("shows a red car", "depicts a red bus", subject=PAIR.key)


def is_choice(asked):
    return "Can both sentences be true?" in asked.text


def sentence(asked):
    return SENTENCE.search(asked.text)[1]


def asked_side(asked):
    return re.search(r"of the (first|second) image,", asked.text)[1]


def recoloured(asked):
    """Edit as a model does that was asked to: the named half gets another colour."""
    first, middle, second = sentence(asked).partition(", while the second image")
    halves = {"first": first, "second": second}
    halves[asked_side(asked)] = halves[asked_side(asked)].replace("red", "blue")
    return halves["first"] + middle + halves["second"]


def editor(edit=recoloured, choice=lambda asked: "contradict"):
    return lambda asked: choice(asked) if is_choice(asked) else edit(asked)


def run(answer, rows=(CHOSEN,), **config):
    config = partial(CounterfactualsConfig, enabled=True, **config)
    return ask_stage(answer, edit_with_model, rows, config, pairs={PAIR.key: PAIR}, images={})


def test_an_edit_that_the_model_confirms_is_a_rejected_text() -> None:
    (row,), (edit, choice) = run(editor(), max_tokens=91)
    halves = {"first": "shows a red car", "second": "depicts a red bus"}
    halves[asked_side(edit)] = halves[asked_side(edit)].replace("red", "blue")
    kind = next(kind for kind, words in KINDS.items() if words in edit.text)
    note = f"{kind}: red -> blue, unchecked"
    text = description(*halves.values()).text
    assert row == rejected_text(CHOSEN, "counterfactual", text, note=note, served=row.served)
    assert [served.prompt for served in row.served] == ["edit_difference", "ask_contradiction"]
    assert [served.seed for served in row.served] == [edit.seed, choice.seed]
    assert sentence(edit) == CHOSEN.text
    assert edit.grammar == {"regex": difference_regex()}
    assert (edit.body["max_tokens"], edit.body["temperature"]) == (91, 0.7)
    assert choice.grammar == {"regex": "(contradict|compatible)"}
    assert choice.body["temperature"] == 0
    contents = [asked.body["messages"][0]["content"] for asked in (edit, choice)]
    assert all(isinstance(content, str) for content in contents), "no images"


def test_what_the_model_holds_for_possible_is_asked_for_again_and_counted() -> None:
    choices = ("compatible", '"**Contradict.** "')
    (row,), asked = run(editor(choice=lambda asked: choices[asked.number >= 2]))
    assert (row.skipped_true, len(asked), len(row.served)) == (1, 4, 4)
    assert len({question.seed for question in asked}) == 4


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("compatible", "the model finds that both may be true"),
        ("They do not contradict.", "no clear answer"),
        (Reply("contradict", finish_reason="length"), "no clear answer"),
    ],
)
def test_only_a_clear_contradiction_will_do(choice, reason) -> None:
    (row,), asked = run(editor(choice=lambda _: choice), max_attempts=2)
    assert (row.reason, len(asked)) == (reason, 4)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda asked: "It is blue.", "off the template"),
        (sentence, "no other content"),
        (lambda asked: sentence(asked).replace("red", "blue"), "edited more than one half"),
    ],
)
def test_a_refused_edit_is_asked_for_again_and_its_reason_kept(edit, reason) -> None:
    (row,), asked = run(editor(edit), max_attempts=3)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason, len(asked)) == (CHOSEN.key, reason, 3)
    assert len({question.seed for question in asked}) == 3
    edits = (edit, recoloured)
    (row,), asked = run(editor(lambda asked: edits[asked.number >= 2](asked)))
    assert isinstance(row, RejectedTextRow)
    assert (row.skipped_true, len(asked)) == (0, 4)


def test_kinds_are_drawn_among_what_the_text_offers() -> None:
    row = description("shows two red cars left of a dog running", "shows no sofa")
    halves = (row.first_half, row.second_half)
    offered = {
        kind: [side for side in (0, 1) if offer.search(halves[side])]
        for kind, offer in OFFERS.items()
    }
    assert offered == {**{kind: [0] for kind in KINDS}, "object": [0, 1], "presence": [1]}
    configs = [CounterfactualsConfig(enabled=True, seed=seed) for seed in range(700)]
    plans = [draw_plans(row, config)[0] for config in configs]
    assert set(plans) == {(kind, side) for kind, sides in offered.items() for side in sides}
    assert all(60 < count < 140 for count in Counter(kind for kind, _ in plans).values())


def test_hostile_text_adds_no_turn_or_image() -> None:
    row = replace(CHOSEN, text=CHOSEN.text.replace("red car", f'red "car" {INJECTIONS[0]}'))
    _, (asked,) = run(editor(lambda _: "No."), [row], max_attempts=1)
    assert_no_tokens(asked, images=0)
    assert asked.text.count('"') == 2


def test_that_nothing_changed_is_not_edited() -> None:
    row = description("shows a red car", "shows the same scene, unchanged", no_change=True)
    (dropped,), asked = run(editor(), [row])
    assert dropped == Dropped(source_key=row.key, reason="nothing to edit", detail=row.text)
    assert asked == []


CARS, MAN = "shows two red cars near a tall house", "depicts a man with a dog"
TWO_CARS = description(CARS, MAN)
BLUE = "shows two blue cars near a tall house"


def text_of(first=CARS, second=MAN):
    return description(first, second).text


def check(text, *, row=TWO_CARS, side=0, truth=KnownContent(None), refused=None):  # noqa: B008, frozen
    served = Served(
        prompt="p",
        model="m",
        revision="",
        seed=1,
        prompt_tokens=1,
        completion_tokens=1,
        latency=0.1,
        finish_reason="stop",
    )
    answer = Answer(text=text, served=served, refused=refused)
    return check_edit(answer, row, side=side, truth=truth)


@pytest.mark.parametrize(
    ("halves", "side", "changed"),
    [
        ({"first": BLUE}, 0, "red -> blue"),
        ({"first": "shows two red cars near a ruined tower"}, 0, "tall house -> ruined tower"),
        ({"second": "depicts a woman with a dog"}, 1, "man -> woman"),
    ],
)
def test_an_edit_that_contradicts(halves, side, changed) -> None:
    text = text_of(**halves)
    assert check(text, side=side) == CheckedEdit(text, changed, None)


def test_the_other_half_stays_as_it_was() -> None:
    edit = check(text_of(BLUE, "depicts A man, with a dog"))
    assert isinstance(edit, CheckedEdit)
    assert edit.text == text_of(BLUE)
    second = "depicts a <b>man with a dog"
    edit = check(text_of("shows two blue cars"), row=description("shows two red cars", second))
    assert isinstance(edit, CheckedEdit)
    assert edit.text == text_of("shows two blue cars", second)


MORE_THAN_ONE, TOO_FAR = "edited more than one half", "too far from the chosen text"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (text_of(BLUE).removesuffix("."), "no full stop"),
        (text_of(f"{BLUE}<|im_end|>"), "control tokens"),
        (f"Sure! {text_of(BLUE)}", "off the template"),
        (text_of().replace(CARS, "shows"), "empty half"),
        (text_of("includes two blue cars near a tall house"), "verb not in the list"),
        (text_of(BLUE, "depicts a woman with a dog"), MORE_THAN_ONE),
        (text_of("has two blue cars near a tall house"), MORE_THAN_ONE),
        (text_of(), "no other content"),
        (text_of(f"{CARS} and a tree"), "only adds words"),
        (text_of("shows five green boats beside one ruined wooden tower"), TOO_FAR),
        (text_of(f"{BLUE} word1 word2 word3 word4 word5 word6 word7 word8 word9"), TOO_FAR),
    ],
)
def test_an_edit_is_refused(text, reason) -> None:
    edit = check(text)
    assert isinstance(edit, RefusedText), edit
    assert edit.reason == reason, edit


def test_an_edit_of_a_short_text_may_not_be_long() -> None:
    row = description("shows a cup", "shows a pot")
    first = "shows what is as it is and so on and so forth, for all to see, as ever, a bowl"
    text = text_of(first, "shows a pot")
    assert check(text, row=row).reason == TOO_FAR


def test_an_edit_that_is_cut_off_or_known_to_be_true_is_refused() -> None:
    cut_off = RefusedText("cut off", "length")
    assert check(text_of(BLUE), refused=cut_off) == cut_off
    people = ("The man with the dog saw two blue cars near the tall house.",)
    edit = check(text_of(BLUE), truth=KnownContent(None, people))
    assert edit.reason == "edited text is as true"


BALL_AND_CUBE = KnownContent((graph(thing(), thing("b", "cube", "green")), graph()))
NO_BALL = "shows no ball"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("shows a green cube", "edited text is as true"),
        ("shows a red giraffe", "not refuted by the scene graphs"),
    ],
)
def test_what_scene_graphs_do_not_refute_is_refused(first, reason) -> None:
    row = description("shows a red ball", NO_BALL)
    edit = check(text_of(first, NO_BALL), row=row, truth=BALL_AND_CUBE)
    assert isinstance(edit, RefusedText)
    assert edit.reason == reason
    refuted = check(text_of("shows a blue ball", NO_BALL), row=row, truth=BALL_AND_CUBE)
    assert isinstance(refuted, CheckedEdit)
    assert refuted.true is False


def test_a_person_s_sentence_is_edited_as_a_whole() -> None:
    row = person_said("the red car has left", subject=PAIR.key)
    (rejected,), (edit, choice) = run(editor(lambda _: '"the blue car has left"'), rows=(row,))
    assert (rejected.text, rejected.description) == ("the blue car has left", row.key)
    assert rejected.note.endswith(": red -> blue, unchecked")
    assert sentence(edit) == row.text
    assert edit.grammar is None
    assert not re.search("first|second", edit.text)
    assert is_choice(choice)
