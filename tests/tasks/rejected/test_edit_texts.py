"""Edited texts: one group of words changed, still in the template, false by claims and by an independent reading."""

from collections import Counter
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import Dropped, make_key
from pairwright.tasks.rejected.compare_words import SCENE_WORDS
from pairwright.tasks.rejected.edit_texts import edit_texts
from pairwright.tasks.texts.differences import Difference, read_composed
from tests.fixtures.descriptions import described, description
from tests.fixtures.graphs import PROPERTY, graph, rows_of, thing
from tests.fixtures.reader import read_phrases

CONFIG = RejectedTextsConfig()


@PROPERTY
@given(st.integers(0, 10**6))
def test_edited_texts_differ_in_one_place_and_stay_in_the_template(seed):
    rows, pairs, images = described([seed])
    for row, found in zip(rows, edit_texts(rows, CONFIG, pairs=pairs, images=images), strict=True):
        assert isinstance(read_composed(found.text, difference_verbs()), Difference), found.text
        old, new = row.text.split(), found.text.split()
        blocks = [op for op in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes() if op[0] != "equal"]
        assert 1 <= len(blocks) <= 3, found.text
        assert max(op[2] for op in blocks) - min(op[1] for op in blocks) <= 8, found.text
        assert (found.maker, found.key) == ("edited", make_key(row.subject, "edited", found.text))
        assert 0.5 < found.score <= 1


@PROPERTY
@given(st.integers(0, 10**6))
def test_edited_texts_are_false(seed):
    """The reader knows the words of the test graphs only, so other words count as false without it."""
    rows, pairs, images = described([seed])
    for row, found in zip(rows, edit_texts(rows, CONFIG, pairs=pairs, images=images), strict=True):
        if found.note.split()[0] == "place":
            continue
        read = read_composed(found.text, difference_verbs())
        scenes = [images[key].graph for key in (pairs[row.subject].first, pairs[row.subject].second)]
        phrases = [read_phrases(half) for half in (read.first_half, read.second_half)]
        understood = sum(map(len, phrases)) == len(read_phrases(row.text))
        if understood and "objects" not in row.text:
            true = [one.true_of(scene) for scene, some in zip(scenes, phrases, strict=True) for one in some]
            assert not all(true), (row.text, found.text)


def test_every_visible_kind_of_edit_happens():
    rows, pairs, images = described(range(400))
    found = list(edit_texts(rows, CONFIG, pairs=pairs, images=images))
    kinds = Counter(one.note.split()[0] for one in found)
    assert set(kinds) == {*SCENE_WORDS, "pose", "count", "place"} - {"material", "size"}
    assert max(kinds.values()) < len(found) / 3


def claim(kind="exists", count=0, **named):
    return Claim(side=0, kind=kind, selector=Selector(**named), count=count)


def halves(first, claims, scene):
    """Edit a description of the scene with a hundred seeds; return all first halves that come out, with their verb."""
    (pair,), images = rows_of([(scene, graph(thing("z", "cone")))])
    row = description(first, "shows a cone", claims=claims, subject=pair.key)
    configs = [RejectedTextsConfig(seed=seed) for seed in range(100)]
    found = [next(edit_texts([row], config, pairs={pair.key: pair}, images=images)) for config in configs]
    return {one.text.split("first image ")[1].split(", while")[0] for one in found}


def test_an_attribute_changes_with_its_article():
    found = halves("shows a red ball", [claim(shape="ball", colour="red")], graph(thing()))
    assert "shows an orange ball" in found
    assert "shows a blue ball" in found
    assert "shows a red ball" not in found
    assert any(text.startswith("shows a red ") for text in found)


def test_what_is_hard_to_see_is_edited_last():
    claims = [claim(shape="ball", colour="red", material="metal", size="small")]
    found = halves("shows a small red metal ball", claims, graph(thing()))
    assert all(text.startswith("shows a small ") and " metal " in text for text in found)
    only = halves("shows a small metal object", [claim(material="metal", size="small")], graph(thing()))
    assert {"shows a large metal object", "shows a small rubber object"} < only


def test_numbers_change_by_one():
    things = [thing(name) for name in "ab"]
    found = halves("shows two objects", [claim("count", 2)], graph(*things))
    assert found == {"shows one object", "shows three objects"}


def test_true_edits_are_skipped():
    scene = graph(thing(colour="red"), *(thing(c, colour=c) for c in SCENE_WORDS["colour"]))
    found = halves("shows a red ball", [claim(shape="ball", colour="red")], scene)
    assert found == {f"shows a red {text.split()[-1]}" for text in found}


def test_a_phrase_that_stands_twice_is_left_alone():
    claims = [claim(shape="ball", colour="red"), claim(shape="ball", colour="red", column="left")]
    found = halves("shows a red ball and a red ball on the left", claims, graph(thing()))
    assert all(text.startswith("shows a red ball and") for text in found)


def test_a_sign_that_says_something_stays_a_sign():
    scene = graph(thing("a", "sign", text="CAFE"))
    found = halves("shows a sign reading 'CAFE'", [claim(shape="sign", text="CAFE")], scene)
    assert len(found) > 1
    assert all(text.startswith("shows a sign reading '") for text in found)


def test_poses_become_their_opposites():
    scene = graph(thing("a", "box", pose="with its lid open"))
    found = halves("shows a box with its lid open", [claim(shape="box", pose="with its lid open")], scene)
    assert found == {"shows a box with its lid closed"}


def test_places_keep_their_preposition():
    place = Claim(side=0, kind="place", value="a wooden table-top")
    found = halves("shows a ball on a wooden table-top", [place], graph(thing()))
    assert "shows a ball in a room corner" in found
    assert "shows a ball on a toy street" in found


@pytest.mark.parametrize(
    ("claims", "reason"),
    [([], "no claims to edit"), ([Claim(side=0, kind="no_change")], "no edit makes it false")],
)
def test_reasons(claims, reason):
    row = description("shows a red ball", "shows a cone", claims=claims)
    (found,) = edit_texts([row], CONFIG, pairs={}, images={})
    assert isinstance(found, Dropped)
    assert found.reason == reason


def test_edits_do_not_depend_on_their_neighbours():
    rows, pairs, images = described(range(20))
    forward = list(edit_texts(rows, CONFIG, pairs=pairs, images=images))
    assert forward == list(edit_texts(rows[::-1], CONFIG, pairs=pairs, images=images))[::-1]
    again = list(edit_texts(rows, RejectedTextsConfig(seed=1), pairs=pairs, images=images))
    assert sum(a.text == b.text for a, b in zip(forward, again, strict=True)) < 5
