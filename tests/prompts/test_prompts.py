"""The prompts as models receive them: the papers' words, their hashes, and errors for what is
missing."""

import hashlib
import json
from pathlib import Path
from random import Random

import jinja2
import pytest

from pairwright import prompts
from pairwright.prompts import Prompt, difference_verbs, load, load_wordings, natural_verbs

FOLDER = Path(prompts.__file__).parent
TEMPLATE = (
    "The difference between the two images is that the first image {descriptive verb} [object "
    "description], "
    "while the second image {descriptive verb} [object description]."
)
AXES = (
    "including the object types,\nobject attributes, counting the objects, object actions, object "
    "locations, "
    "relative positions between objects, etc."
)


def filled_template():
    slots = dict.fromkeys(("first_verb", "second_verb"), "{descriptive verb}")
    return load("difference_template").render(
        **slots, first="[object description]", second="[object description]"
    )


def test_the_template_is_the_papers():
    assert filled_template() == TEMPLATE


def test_the_comparison_prompts_are_the_papers():
    first = load("compare_captions").render(first_caption="A", second_caption="B")
    assert first.startswith(
        "Image 1: A\n\nImage 2: B\n\nSummarize the commonalities and differences about the visual"
    )
    assert "object action(s)" in first
    turn = load("compare_images").render()
    assert turn.startswith(
        "Image 1: <image>\nImage 2: <image>\nSummarize the commonalities and differences about"
    )
    assert turn.endswith(AXES)


def test_the_examples_of_questions_are_json_of_two_rounds():
    text = load("ask_questions").render(
        first_caption="A", second_caption="B", summary="C", rounds=3
    )
    rounds = json.loads(text.splitlines()[-1])["rounds"]
    assert [one["about"] for one in rounds] == ["both", "first"]
    assert "\nImage 1: A\n\nImage 2: B\n\nSummary:\nC\n\nWrite a conversation of 3 rounds." in text


def test_the_retrieval_question_is_the_published_one():
    assert load("retrieve_image").render(caption="A cat.") == (
        'Which image suits the caption "A cat." better?\nA. Image 1\nB. Image 2\n'
        "Answer with the option's letter from the given choices directly."
    )


def test_our_verbs_are_the_papers_49():
    assert len(difference_verbs()) == 49
    assert all(difference_verbs())
    assert difference_verbs()[:5] == ("is", "describes", "depicts", "illustrates", "displays")
    assert difference_verbs()[-1] == "centers"
    assert {"shows", "contains", "has"} < set(natural_verbs()) < set(difference_verbs())
    assert not {"advertises", "is", "sets"} & set(natural_verbs())


def test_the_hash_is_of_the_file():
    data = (FOLDER / "retrieve_image.j2").read_bytes()
    assert load("retrieve_image").sha256 == hashlib.sha256(data).hexdigest()
    data = (FOLDER / "ask_difference.j2").read_bytes()
    assert load_wordings("ask_difference").sha256 == hashlib.sha256(data).hexdigest()


def test_templates_are_strict_sandboxed_and_not_escaped():
    with pytest.raises(jinja2.UndefinedError, match="caption"):
        load("retrieve_image").render()
    with pytest.raises(jinja2.exceptions.SecurityError):
        Prompt("{{ x.__class__.__mro__[1].__subclasses__() }}", "").render(x=1)
    assert Prompt("{{ x }}", "").render(x="<image> & 'sign'") == "<image> & 'sign'"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.j2")), ids=lambda path: path.stem)
def test_every_prompt_compiles_has_no_logic_and_says_whose_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("{#")
    assert "Ours" in text or "aper 00" in text
    assert "{% if" not in text
    assert "{% set" not in text
    load(path.stem)
    jinja2.Environment(autoescape=True).parse(text)


def test_wordings_are_dealt_without_repeats():
    ask = load_wordings("ask_difference")
    dealt = ask.dealt("ask", Random(3))
    count = len(ask.kinds["ask"])
    assert count >= 8
    assert len({next(dealt).text for _ in range(count)}) == count
    assert next(dealt) in ask.kinds["ask"]
