"""The prompts as models receive them: the papers' words, their hashes, and errors for what is
missing."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jinja2
import pytest

from pairwright import prompts
from pairwright.prompts import Prompt, difference_verbs, load_prompt, load_wordings, natural_verbs

FOLDER = Path(prompts.__file__).parent
TEMPLATE = (
    "The difference between the two images is that the first image {descriptive verb} "
    "[object description], while the second image {descriptive verb} [object description]."
)


def test_prompts_are_those_of_the_papers() -> None:
    verbs = dict.fromkeys(("first_verb", "second_verb"), "{descriptive verb}")
    objects = dict.fromkeys(("first", "second"), "[object description]")
    assert load_prompt("difference_template").render(**verbs, **objects) == TEMPLATE
    text = load_prompt("compare_captions").render(first_caption="A", second_caption="B")
    start = "Image 1: A\n\nImage 2: B\n\nSummarize the commonalities and differences about the "
    assert text.startswith(f"{start}visual")
    assert "object action(s)" in text
    text = load_prompt("compare_images").render()
    images = "Image 1: <image>\nImage 2: <image>\n"
    assert text.startswith(f"{images}Summarize the commonalities and differences about")
    assert text.endswith("object locations, relative positions between objects, etc.")
    assert load_prompt("retrieve_image").render(caption="A cat.") == (
        'Which image suits the caption "A cat." better?\nA. Image 1\nB. Image 2\n'
        "Answer with the option's letter from the given choices directly."
    )


def test_the_examples_of_questions_are_json_of_two_rounds() -> None:
    captions = {"first_caption": "A", "second_caption": "B"}
    text = load_prompt("ask_questions").render(**captions, summary="C", rounds=3)
    rounds = json.loads(text.splitlines()[-1])["rounds"]
    assert [each["about"] for each in rounds] == ["both", "first"]
    assert "\nImage 1: A\n\nImage 2: B\n\nSummary:\nC\n\nWrite a conversation of 3 rounds." in text


def test_our_verbs_are_the_papers_49() -> None:
    verbs = difference_verbs()
    assert len(verbs) == 49
    assert all(verbs)
    assert verbs[:5] == ("is", "describes", "depicts", "illustrates", "displays")
    assert verbs[-1] == "centers"
    assert {"shows", "contains", "has"} < set(natural_verbs()) < set(verbs)
    assert {"advertises", "is", "sets"}.isdisjoint(natural_verbs())


@pytest.mark.parametrize(
    ("name", "loader"), [("retrieve_image", load_prompt), ("ask_difference", load_wordings)]
)
def test_the_hash_is_of_the_file(name: str, loader: Callable[[str], Any]) -> None:
    data = (FOLDER / f"{name}.j2").read_bytes()
    assert loader(name).sha256 == hashlib.sha256(data).hexdigest()


def test_templates_are_strict_sandboxed_and_not_escaped() -> None:
    with pytest.raises(jinja2.UndefinedError, match="caption"):
        load_prompt("retrieve_image").render()
    with pytest.raises(jinja2.exceptions.SecurityError):
        Prompt("{{ x.__class__.__mro__[1].__subclasses__() }}", "").render(x=1)
    assert Prompt("{{ x }}", "").render(x="<image> & 'sign'") == "<image> & 'sign'"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.j2")), ids=lambda path: path.stem)
def test_every_prompt_compiles_has_no_logic_and_says_whose_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("{#")
    assert "Ours" in text or "aper 00" in text
    assert "{% if" not in text
    assert "{% set" not in text
    load_prompt(path.stem)
    jinja2.Environment(autoescape=True).parse(text)


def test_wordings_are_dealt_without_repeats() -> None:
    ask = load_wordings("ask_difference")
    dealt, wordings = ask.dealt("ask", Random(3)), ask.kinds["ask"]
    assert len(wordings) >= 8
    assert len({next(dealt).text for _ in wordings}) == len(wordings)
    assert next(dealt) in wordings
