"""Edited texts: one thing or the place is changed, and the text is false."""

import re
from collections import Counter
from difflib import SequenceMatcher
from itertools import combinations

import pytest

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, Selector, all_hold
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import Dropped, RejectedTextRow, make_key
from pairwright.tasks.rejected.edit_texts import NO_CLAIMS, NO_GRAPH, edit_texts
from pairwright.tasks.scenes.vocabulary import SCENE_WORDS, SHAPES
from pairwright.tasks.texts.differences import Difference, read_composed
from tests.fixtures.descriptions import described, description
from tests.fixtures.graphs import graph, rows_of, thing
from tests.fixtures.reader import read_phrases


@pytest.fixture(scope="module")
def edits():
    """Return descriptions of random pairs, each with its edited text and its scene graphs."""
    rows, pairs, images = described(range(400))
    results = list(edit_texts(rows, RejectedTextsConfig(), pairs=pairs, images=images))
    graphs = [
        (images[pairs[row.subject].first].graph, images[pairs[row.subject].second].graph)
        for row in rows
    ]
    triples = zip(rows, results, graphs, strict=True)
    edited = [triple for triple in triples if isinstance(triple[1], RejectedTextRow)]
    assert len(edited) > 350
    return edited


def changed_blocks(old, new):
    matcher = SequenceMatcher(None, old.split(), new.split(), autojunk=False)
    return [block for block in matcher.get_opcodes() if block[0] != "equal"]


def test_edited_texts_differ_in_one_phrase_and_keep_the_template(edits) -> None:
    for row, edit, _ in edits:
        assert isinstance(read_composed(edit.text, difference_verbs()), Difference), edit.text
        old, new = (text.split(", while the second") for text in (row.text, edit.text))
        assert old != new
        changes = [changed_blocks(*halves) for halves in zip(old, new, strict=True)]
        assert all(len(blocks) <= 3 for blocks in changes), edit.text
        widths = [blocks[-1][2] - blocks[0][1] for blocks in changes if blocks]
        # "two orange boxes in the foreground with their lids open" is one phrase
        assert max(widths) <= 9, (row.text, edit.text)
        assert (edit.maker, edit.key) == ("edited", make_key(row.subject, "edited", edit.text))
        assert 0.5 < edit.score <= 1


def things_of(claim, graphs):
    """Return the ids of what a claim is about, wherever it is seen."""
    graph = graphs[claim.side ^ (claim.kind == "absent")]
    fields = {name: value for name, value in claim.selector.model_dump().items() if value}
    things = (
        item
        for item in graph.objects
        if all(getattr(item, name) == value for name, value in fields.items())
    )
    return {(graph.world, item.id) for item in things}


def places_of(claims):
    return {claim.value for claim in claims if claim.kind == "place"}


def same_fields(first, second):
    """Return the fields in which the things of two claims are named alike."""
    one, other = first.selector, second.selector
    return {name for name in Selector.model_fields if getattr(one, name) == getattr(other, name)}


def test_an_edited_text_does_not_contradict_itself(edits) -> None:
    """What named one thing alike in both halves still does, and one place stays one place."""
    for row, edit, graphs in edits:
        old, new = (CLAIMS.validate_json(text.claims) for text in (row, edit))
        assert len(old) == len(new)
        assert not all_hold(new, graphs)
        assert len(places_of(old)) == len(places_of(new))
        named = [
            (before, after)
            for before, after in zip(old, new, strict=True)
            if before.kind in ("exists", "absent", "count")
        ]
        about_one_thing = [
            (first, second)
            for first, second in combinations(named, 2)
            if first[0].selector.shape
            and things_of(first[0], graphs) & things_of(second[0], graphs)
        ]
        for (old_first, new_first), (old_second, new_second) in about_one_thing:
            assert same_fields(old_first, old_second) == same_fields(new_first, new_second)


def test_edited_things_can_be_rendered(edits) -> None:
    for row, edit, _ in edits:
        changed = set(CLAIMS.validate_json(edit.claims)) - set(CLAIMS.validate_json(row.claims))
        for selector in (claim.selector for claim in changed if claim.selector.shape):
            kind = SHAPES[selector.shape]
            assert selector.material in (None, *kind.materials)
            assert selector.size in (None, *kind.sizes)
            assert selector.pose in (None, *kind.poses)
            assert kind.front or not selector.facing
            assert selector.material != "metal" or selector.colour not in ("white", "black")


def is_read_wholly(row, phrases):
    """Return whether the reader, which knows the words of the test graphs only, understands all."""
    count = sum(map(len, phrases))
    return count == len(read_phrases(row.text)) and "objects" not in row.text


def test_edited_texts_are_false(edits) -> None:
    of_things = [edit for edit in edits if edit[1].note.split()[0] != "place"]
    refuted = 0
    for row, edit, graphs in of_things:
        read = read_composed(edit.text, difference_verbs())
        phrases = [read_phrases(half) for half in (read.first_half, read.second_half)]
        holds = [
            phrase.true_of(scene)
            for scene, half in zip(graphs, phrases, strict=True)
            for phrase in half
        ]
        assert not (all(holds) and is_read_wholly(row, phrases)), (row.text, edit.text)
        refuted += not all(holds)
    assert refuted > len(of_things) / 2


def test_every_visible_kind_of_edit_happens(edits) -> None:
    notes = (edit.note.replace("rests on", "rests_on") for _, edit, _ in edits)
    kinds = Counter(note.split()[0] for note in notes)
    assert {*SCENE_WORDS, "pose", "count", "place"} - set(kinds) <= {"material", "size"}
    rare = kinds["material"] + kinds["size"]
    assert rare < len(edits) / 10, "only where nothing else can be edited, as of glass"
    assert max(kinds.values()) < len(edits) / 3


def claim(kind="exists", *, side=0, **named):
    return Claim(side=side, kind=kind, selector=Selector(**named))


def place(side=0):
    return Claim(side=side, kind="place", value="a wooden table-top")


def edit(halves, claims, graphs, seed=0):
    (pair,), images = rows_of([graphs])
    row = description(*halves, claims=claims, subject=pair.key)
    config = RejectedTextsConfig(seed=seed)
    (result,) = edit_texts([row], config, pairs={pair.key: pair}, images=images)
    return result


HALVES = re.compile(r"first image (.*), while the second image (.*)\.")


def all_edits(first, second, claims, graphs):
    """Return what comes out of a hundred seeds: pairs of halves with their verbs."""
    results = [edit((first, second), claims, graphs, seed) for seed in range(100)]
    texts = [row.text for row in results if isinstance(row, RejectedTextRow)]
    return {HALVES.search(text).groups() for text in texts}


def first_halves(first, claims, scene):
    found = all_edits(first, "shows a cone", claims, (scene, graph(thing("z", "cone"))))
    return {half for half, _ in found}


def test_an_attribute_changes_with_its_article() -> None:
    blue = claim(shape="ball", colour="blue")
    halves = first_halves("shows a blue ball", [blue], graph(thing(colour="blue")))
    assert {"shows an orange ball", "shows a red ball"} <= halves
    too_near = {"shows a blue ball", "shows a purple ball", "shows a turquoise ball"}
    assert not too_near & halves
    assert any(half.startswith("shows a blue ") for half in halves)


def test_what_is_hard_to_see_is_edited_last() -> None:
    red = claim(shape="ball", colour="red", material="metal", size="small")
    halves = first_halves("shows a small red metal ball", [red], graph(thing()))
    assert all(half.startswith("shows a small ") and " metal " in half for half in halves)
    plain = claim(material="metal", size="small")
    halves = first_halves("shows a small metal object", [plain], graph(thing()))
    assert {"shows a large metal object", "shows a small rubber object"} < halves


def test_a_phrase_that_stands_twice_is_left_alone() -> None:
    red = {"shape": "ball", "colour": "red"}
    claims = [claim(**red), claim(**red, column="left"), place()]
    twice = "shows a red ball and a red ball on the left "
    halves = first_halves(f"{twice}on a wooden table-top", claims, graph(thing()))
    assert halves
    assert all(half.startswith(twice) for half in halves)


@pytest.mark.parametrize(
    ("claims", "graphs", "reason"),
    [
        ([], (graph(), graph()), NO_CLAIMS),
        ([claim(shape="ball")], (None, None), NO_GRAPH),
        ([claim("no_change")], (graph(), graph()), "no edit makes it false"),
    ],
)
def test_what_is_not_edited_says_why(claims, graphs, reason) -> None:
    row = edit(("shows a red ball", "shows a cone"), claims, graphs)
    assert isinstance(row, Dropped)
    assert row.reason == reason


def test_both_halves_name_the_edited_thing_alike() -> None:
    left = {"shape": "ball", "column": "left"}
    claims = [claim(colour="red", **left), claim(side=1, colour="blue", **left)]
    graphs = (graph(thing()), graph(thing(colour="blue")))
    halves = ("shows a red ball on the left", "has a blue ball on the left")
    edits = all_edits(*halves, claims, graphs)
    assert ("shows a red ball on the right", "has a blue ball on the right") in edits
    shapes = [
        [half.split(" ", 3)[3] for half in halves]
        for halves in edits
        if halves[0].startswith("shows a red ") and "ball" not in halves[0]
    ]
    assert shapes
    assert all(first == second for first, second in shapes)
    assert ("shows a green ball on the left", "has a blue ball on the left") in edits
    words = [(first.split(), second.split()) for first, second in edits]
    assert all(first[3:] == second[3:] for first, second in words), "shape and column of both"
    assert all(first[2] != second[2] for first, second in words), "the colour still changes"


def test_the_place_changes_in_both_halves() -> None:
    halves = ("shows a ball on a wooden table-top", "has the same wooden table-top")
    edits = all_edits(*halves, [place(0), place(1)], (graph(), graph()))
    assert ("shows a ball in a photo studio", "has the same photo studio") in edits
    assert len(edits) == 5


# Columns meet at 85.3 and 170.7 of 256 pixels; 6 % are 15.4.
@pytest.mark.parametrize(("left", "is_edited"), [(60, False), (58, True)])
def test_a_column_near_its_boundary_is_not_edited(left, is_edited) -> None:
    scene = graph(thing(box=(left, 50, left + 22, 80)))
    halves = first_halves("shows a ball on the left", [claim(shape="ball", column="left")], scene)
    assert ("shows a ball in the centre" in halves) == is_edited


def test_relations_follow_what_they_name() -> None:
    ball, cube = Selector(shape="ball", colour="red"), Selector(shape="cube", colour="blue")
    related = Claim(side=0, kind="relation", selector=cube, relation="left of", other=ball)
    claims = [claim(shape="ball", colour="red"), claim(shape="cube", colour="blue"), related]
    text = "shows a blue cube left of a red ball"
    scenes = (graph(thing(), thing("b", "cube", "blue")), graph())
    row = edit((text, "shows nothing"), claims, scenes)
    shown, other, after = CLAIMS.validate_json(row.claims)
    assert (after.selector, after.other) == (other.selector, shown.selector)
    assert text not in row.text
