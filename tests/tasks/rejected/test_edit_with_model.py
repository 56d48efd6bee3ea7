"""Counterfactual texts: what is asked for and how often, what the model has to confirm, what
becomes of refusals."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts.difference_prompts import difference_regex
from pairwright.schemas.config import CounterfactualsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import Dropped, RejectedTextRow, Served, make_key
from pairwright.tasks.rejected.check_texts import KnownContent
from pairwright.tasks.rejected.edit_with_model import (
    OFFERS,
    CheckedEdit,
    check_edit,
    draw_plans,
    edit_with_model,
)
from pairwright.tasks.serving.chat import Answer
from tests.fixtures.asking import ask_stage
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


def recoloured(asked):
    """Edit as a model does that was asked to: the named half gets another colour."""
    sentence, side = (
        SENTENCE.search(asked.text)[1],
        re.search(r"of the (first|second) image,", asked.text)[1],
    )
    start, middle, end = sentence.partition(", while the second image")
    return (
        (start.replace("red", "blue") + middle + end)
        if side == "first"
        else start + middle + end.replace("red", "blue")
    )


def editor(edit=recoloured, choice="contradict"):
    return lambda asked: (
        (choice(asked) if callable(choice) else choice) if is_choice(asked) else edit(asked)
    )


def run(answer, rows=(CHOSEN,), *, answers=None, **config):
    config = partial(CounterfactualsConfig, enabled=True, **config)
    return ask_stage(
        answer, edit_with_model, rows, config, pairs={PAIR.key: PAIR}, images={}, answers=answers
    )


def test_an_edit_that_the_model_confirms_is_a_rejected_text():
    (found,), (edit, choice) = run(editor())
    side = 0 if "in what it says of the first image" in edit.text else 1
    halves = ["a red car", "a red bus"]
    halves[side] = halves[side].replace("red", "blue")
    text = description(f"shows {halves[0]}", f"depicts {halves[1]}").text
    kind = next(kind for kind, words in KINDS.items() if words in edit.text)
    assert found == rejected_text(
        CHOSEN, "counterfactual", text, note=f"{kind}: red -> blue, unchecked", served=found.served
    )
    assert [served.prompt for served in found.served] == ["edit_difference", "ask_contradiction"]
    assert [served.seed for served in found.served] == [edit.seed, choice.seed]


def test_what_is_asked():
    _, (edit, choice) = run(editor(), max_tokens=91)
    assert f'how two images differ: "{CHOSEN.text}"\n' in edit.text
    assert edit.grammar == {"regex": difference_regex()}
    assert (edit.body["max_tokens"], edit.body["temperature"]) == (91, 0.7)
    assert choice.grammar == {"regex": "(contradict|compatible)"}
    assert choice.body["temperature"] == 0
    assert all(
        isinstance(one.body["messages"][0]["content"], str) for one in (edit, choice)
    )  # no images


def test_what_the_model_holds_for_possible_is_asked_for_again_and_counted():
    (found,), asked = run(
        editor(choice=lambda asked: "compatible" if asked.number < 2 else "contradict")
    )
    assert (found.skipped_true, len(asked), len(found.served)) == (1, 4, 4)
    assert len({one.seed for one in asked}) == 4


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("compatible", "the model finds that both may be true"),
        ("They do not contradict.", "no clear answer"),
        (Reply("contradict", finish_reason="length"), "no clear answer"),
        ('"**Contradict.** "', ""),
    ],
)
def test_only_a_clear_contradiction_will_do(choice, reason):
    (found,), asked = run(editor(choice=choice), max_attempts=2)
    if reason:
        assert (found.reason, len(asked)) == (reason, 4)
    else:
        assert isinstance(found, RejectedTextRow)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda asked: "It is blue.", "off the template"),
        (lambda asked: SENTENCE.search(asked.text)[1], "no other content"),
        (
            lambda asked: SENTENCE.search(asked.text)[1].replace("red", "blue"),
            "edited more than one half",
        ),
    ],
)
def test_a_refused_edit_is_asked_for_again_and_its_reason_kept(edit, reason):
    (found,), asked = run(editor(edit), max_attempts=3)
    assert isinstance(found, Dropped)
    assert (found.source_key, found.reason, len(asked)) == (CHOSEN.key, reason, 3)
    assert len({one.seed for one in asked}) == 3
    (found,), asked = run(
        editor(lambda asked: edit(asked) if asked.number < 2 else recoloured(asked))
    )
    assert isinstance(found, RejectedTextRow)
    assert (found.skipped_true, len(asked)) == (0, 4)


def test_kinds_are_drawn_among_what_the_text_offers():
    row = description("shows two red cars left of a dog running", "shows no sofa")
    offered = {
        kind: [side for side in (0, 1) if offer.search((row.first_half, row.second_half)[side])]
        for kind, offer in OFFERS.items()
    }
    assert offered == {**{kind: [0] for kind in KINDS}, "object": [0, 1], "presence": [1]}
    first = Counter(
        draw_plans(row, CounterfactualsConfig(enabled=True, seed=seed))[0] for seed in range(700)
    )
    assert set(first) == {(kind, side) for kind, sides in offered.items() for side in sides}
    by_kind = Counter[str]()
    for (kind, _), count in first.items():
        by_kind[kind] += count
    assert all(60 < count < 140 for count in by_kind.values())
    plain = description("shows sofas", "shows dogs")
    assert {kind for kind, _ in draw_plans(plain, CounterfactualsConfig(enabled=True))} == {
        "object"
    }


def test_that_nothing_changed_is_not_edited():
    row = description("shows a red car", "shows the same scene, unchanged", no_change=True)
    (found,), asked = run(editor(), [row])
    assert (found, asked) == (
        Dropped(source_key=row.key, reason="nothing to edit", detail=row.text),
        [],
    )


def test_injections_leave_the_question_whole():
    rows = [
        replace(CHOSEN, key=make_key(n), text=CHOSEN.text.replace("red car", f"red car {hostile}"))
        for n, hostile in enumerate(INJECTIONS)
    ]
    _, (plain, *_) = run(editor())
    _, asked = run(editor(lambda asked: "No."), rows, max_attempts=1)
    assert len(asked) == len(rows)
    ends = {one.text.rpartition('"')[2] for one in asked}
    assert all(re.fullmatch(r"\n\nWrite the sentence again .* alone\.", end) for end in ends)
    for one in asked:
        assert one.text.startswith(
            'This sentence says how two images differ: "The difference between'
        )
        assert one.text.count('"') == 2
        assert one.text.count("\n") == plain.text.count("\n")
        assert not re.search(r"<\||\|>|<image>|\[/?INST\]|<</?SYS>>|</?s>", one.text)


TWO_CARS = description("shows two red cars near a tall house", "depicts a man with a dog")


def said(first="shows two red cars near a tall house", second="depicts a man with a dog"):
    return (
        f"The difference between the two images is that the first image {first}, while the "
        f"second image {second}."
    )


def check(text, *, row=TWO_CARS, side=0, truth=KnownContent(None), finish_reason="stop"):  # noqa: B008, frozen
    served = Served(
        prompt="p",
        model="m",
        revision="",
        seed=1,
        prompt_tokens=1,
        completion_tokens=1,
        latency=0.1,
        finish_reason=finish_reason,
    )
    return check_edit(Answer(text=text, served=served), row, side=side, truth=truth)


@pytest.mark.parametrize(
    ("half", "side", "changed"),
    [
        ("shows two blue cars near a tall house", 0, "red -> blue"),
        ("shows no red cars near a tall house", 0, "two -> no"),
        ("shows two red cars near a ruined tower", 0, "tall house -> ruined tower"),
        ("depicts a woman with a dog", 1, "man -> woman"),
    ],
)
def test_an_edit_that_contradicts(half, side, changed):
    text = said(**{("first", "second")[side]: half})
    assert check(text, side=side) == CheckedEdit(text, changed, None)


def test_the_other_half_is_put_right():
    edit = check(f'"{said("shows two blue cars near a tall house", "depicts A man, with a dog")}"')
    assert isinstance(edit, CheckedEdit)
    assert edit.text == said("shows two blue cars near a tall house")
    # The model is shown the text without control tokens, so it cannot give them back.
    row = description("shows two red cars", "depicts a <|im_end|>man with a dog")
    edit = check(said("shows two blue cars"), row=row)
    assert isinstance(edit, CheckedEdit)
    assert edit.text == said("shows two blue cars", "depicts a <|im_end|>man with a dog")


REFUSED = {
    "cut off": [said("shows two blue cars near a tall house").removesuffix(".")],
    "off the template": [
        "The cars are blue.",
        f"Sure! {said('shows two blue cars near a tall house')}",
    ],
    "empty half": [said("shows")],
    "verb not in the list": [said("includes two blue cars near a tall house")],
    "edited more than one half": [
        said("shows two blue cars near a tall house", "depicts a woman with a dog"),
        said(second="depicts a man with a cat"),
        said("has two blue cars near a tall house"),
    ],
    "no other content": [
        TWO_CARS.text,
        said("shows, near the tall building, two red automobiles"),
        said("shows two tall cars near a red house"),
    ],
    "only adds words": [said("shows two red cars near a tall house and a tree")],
    "only leaves words out": [said("shows two cars near a tall house")],
    "too far from the chosen text": [
        said("shows five green boats beside one ruined wooden tower"),
        said(f"shows two blue cars near a tall house {' '.join(f'word{n}' for n in range(9))}"),
    ],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, one) for reason, many in REFUSED.items() for one in many]
)
def test_refusals(reason, text):
    edit = check(text)
    assert isinstance(edit, RefusedText), edit
    assert edit.reason == reason, edit


def test_long_rewritings_cut_off_answers_and_what_people_said_are_refused():
    chosen = description("shows a cup", "shows a pot")
    text = said(f"shows {'what is as it is and ' * 6}a bowl", "shows a pot")
    assert check(text, row=chosen).reason == "too far from the chosen text"
    edit = check(said("shows two blue cars near a tall house"), finish_reason="length")
    assert edit == RefusedText("cut off", "length")
    truth = KnownContent(None, ("The man with the dog saw two blue cars near the tall house.",))
    assert (
        check(said("shows two blue cars near a tall house"), truth=truth).reason
        == "edited text is as true"
    )


GRAPHS = (graph(thing(), thing("b", "cube", "green")), graph())


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
    edit = check(said(first, "shows no ball"), row=row, truth=KnownContent(GRAPHS))
    if expected is CheckedEdit:
        assert isinstance(edit, CheckedEdit)
        assert edit.true is False
    else:
        assert isinstance(edit, RefusedText)
        assert edit.reason == expected


def test_a_person_s_sentence_is_edited_as_a_whole():
    row = person_said("the red car has left", subject=PAIR.key)
    (found,), (edit, choice) = run(editor(lambda _: '"the blue car has left"'), rows=(row,))
    assert (found.text, found.description) == ("the blue car has left", row.key)
    assert found.note.endswith(": red -> blue, unchecked")
    assert SENTENCE.search(edit.text)[1] == row.text
    assert edit.grammar is None
    assert not re.search("first|second", edit.text)
    assert is_choice(choice)
