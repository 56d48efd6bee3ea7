"""Retrieved texts: the most similar description of another pair, checked false; against a dense
computation."""

from dataclasses import replace

import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from pairwright.schemas.arrow import to_table
from pairwright.schemas.claims import CLAIMS, Claim, Selector, may_hold
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, make_key
from pairwright.tasks.rejected.retrieve_texts import FUNCTION_WORDS, index_texts, retrieve_texts
from tests.fixtures.descriptions import described, description, person_said
from tests.fixtures.graphs import graph, rows_of, thing


def retrieve(rows, everything=None, pairs=None, images=None, *, drawn=None, **config):
    """Retrieve with all pairs in one split, each a component of its own, but for those of
    ``drawn``."""
    tables = {"everything": everything or rows, "pairs": pairs or {}, "images": images or {}}
    splits = {row.subject: ("train", row.subject) for row in tables["everything"]} | (drawn or {})
    columns = ("subject", "split", "component")
    tables["everything"] = to_table(tables["everything"], DifferenceRow)
    tables["splits"] = pa.Table.from_pylist(
        [dict(zip(columns, (subject, *where), strict=True)) for subject, where in splits.items()]
    )
    return list(retrieve_texts(rows, RejectedTextsConfig(**config), **tables))


def test_the_most_similar_false_one_is_taken():
    """Rank all texts densely, those with an object's words first, and compare choice, score and
    skipped."""
    rows, pairs, images = described(range(120))
    contents = [f"{row.first_half} {row.second_half}" for row in rows]
    dense = (
        TfidfVectorizer(token_pattern=r"\w+", stop_words=FUNCTION_WORDS)
        .fit_transform(contents)
        .toarray()
    )
    scores = dense @ dense.T
    for at, found in enumerate(retrieve(rows, pairs=pairs, images=images)):
        order = sorted(
            (-round(scores[at, i], 9), rows[i].key, i) for i in range(len(rows)) if i != at
        )[:50]
        graphs = tuple(
            images[key].graph
            for key in (pairs[rows[at].subject].first, pairs[rows[at].subject].second)
        )
        things = [thing for graph in graphs for thing in graph.objects]
        order.sort(key=lambda one: not names_one_of(things, rows[one[2]]))
        lies = [not may_hold(CLAIMS.validate_json(rows[i].claims), graphs) for _, _, i in order]
        lies = [
            lie and not (rows[at].no_change and rows[i].no_change)
            for lie, (_, _, i) in zip(lies, order, strict=True)
        ]
        source = rows[order[lies.index(True)][2]]
        assert (found.text, found.note) == (source.text, f"of pair {source.subject}")
        assert found.key == make_key(rows[at].key, "retrieved", found.text)
        assert found.skipped_true == lies.index(True)
        assert found.score == pytest.approx(-order[lies.index(True)][0])


def names_one_of(things, row):
    """Return whether a text names the shape of one of the things, with its colour and material if
    any are given."""
    claims = CLAIMS.validate_json(row.claims)
    named = [
        selector for claim in claims for selector in (claim.selector, claim.other) if selector.shape
    ]
    return any(
        all(
            getattr(one, name) in (None, getattr(thing, name))
            for name in ("shape", "colour", "material")
        )
        for one in named
        for thing in things
    )


def ball(colour, side=0):
    return Claim(side=side, kind="exists", selector=Selector(shape="ball", colour=colour))


def test_accidentally_true_texts_are_skipped_and_counted():
    (pair,), images = rows_of(
        [(graph(thing(), thing("b", colour="blue")), graph(thing("c", "cube")))]
    )
    mine = description("shows a red ball", "shows a cube", claims=[ball("red")], subject=pair.key)
    true = description("shows a blue ball", "shows a cube", claims=[ball("blue")])
    false = description("shows a green ball", "has a cone", claims=[ball("green")])
    (found,) = retrieve([mine], [mine, false, true], {pair.key: pair}, images)
    assert (found.text, found.skipped_true) == (false.text, 1)
    (dropped,) = retrieve([mine], [mine, true], {pair.key: pair}, images)
    assert dropped == Dropped(
        source_key=mine.key, reason="all similar descriptions are true", detail="1 tried"
    )
    (given_up,) = retrieve([mine], [mine, false, true], {pair.key: pair}, images, max_candidates=1)
    assert given_up.reason == "all similar descriptions are true (rejected_texts.max_candidates=1)"


def test_without_graphs_only_equal_texts_are_passed_over():
    mine, same = description("shows a red ball", "shows a cube"), None
    same = replace(mine, key="k", subject="k", source_key="k")
    other = description("shows a red ball", "shows a box")
    (found,) = retrieve([mine], [mine, same, other])
    assert found.text == other.text
    assert found.note.endswith(", unchecked")
    assert retrieve([mine], [mine, same]) == [
        Dropped(source_key=mine.key, reason="no other description", detail="0 tried")
    ]


MINE = description("shows a man in a red jacket", "shows a park", subject="mine")


def test_what_another_description_of_the_pair_says_is_skipped():
    sibling = replace(
        description("depicts the lady in a park", "depicts a lake"), key="k", subject="mine"
    )
    other = description("shows a woman in the park", "shows a lake", subject="other")
    assert retrieve([MINE], [MINE, other])[0].text == other.text
    assert retrieve([MINE], [MINE, other, sibling])[0].reason == "all similar descriptions are true"


def test_texts_without_words_are_no_crash():
    row = description("shows a", "shows the")
    assert [found.reason for found in retrieve([row])] == ["no other description"]


def test_a_large_collection_is_sampled_by_key():
    rows, *_ = described(range(30))
    index = index_texts(rows, RejectedTextsConfig(max_searched=5), {})
    assert [row.key for row in index.rows] == sorted(row.key for row in rows)[:5]


def test_texts_come_from_the_row_s_own_split():
    """Not even those of another one that say the same, word for word."""
    mine = description("shows a red ball", "shows a cube", subject="mine")
    held = description("shows a red ball", "shows a box", subject="held")
    same = replace(held, key="s", subject="same", text=held.text.upper())
    other = description("shows a red cone", "shows a lamp", subject="other")
    drawn = {"held": ("test", "held")}
    assert retrieve([mine], [mine, held, other])[0].text == held.text
    assert retrieve([mine], [mine, held, other], drawn=drawn)[0].text == other.text
    assert retrieve([mine], [mine, held, same, other], drawn=drawn)[0].text == other.text
    assert retrieve([held], [mine, held, other], drawn=drawn)[0].reason == "no other description"


def shown(shape, colour):
    """Describe a thing of either image, with claims."""
    claims = [
        Claim(
            side=0, kind="exists", selector=Selector(shape=shape, colour=colour, material="metal")
        )
    ]
    return description(
        f"shows a {colour} metal {shape}", "shows a metal lamp in a photo studio", claims=claims
    )


def test_texts_that_name_an_object_of_the_images_come_first():
    (pair,), images = rows_of(
        [(graph(thing(), thing("b", "cube", "blue")), graph(thing("c", "cone")))]
    )
    mine = replace(shown("ball", "red"), subject=pair.key)
    similar = shown("ball", "green")
    claims = [
        Claim(
            side=0, kind="exists", selector=Selector(shape="cube", colour="blue", material="metal")
        )
    ]
    lying = Claim(side=1, kind="exists", selector=Selector(shape="car"))
    common = description("shows a blue metal cube", "shows a car", claims=[*claims, lying])
    tables = ([mine, similar, common], {pair.key: pair}, images)
    (found,) = retrieve([mine], *tables)
    assert (found.text, found.skipped_true) == (common.text, 0)
    assert CLAIMS.validate_json(found.claims) == (*claims, lying)


def test_texts_of_the_same_world_come_in_turns():
    """Three pairs of one world reject each other's texts once each, however similar others are."""
    pairs, images = rows_of([(graph(thing()), graph(thing("b", "cone")))] * 6)
    colours = ("blue", "green", "orange", "white", "pink", "black")
    rows = [
        replace(shown("ball", colour), subject=pair.key)
        for colour, pair in zip(colours, pairs, strict=True)
    ]
    drawn = {
        pair.key: ("train", "world" if place < 3 else pair.key) for place, pair in enumerate(pairs)
    }
    found = retrieve(rows[:3], rows, {pair.key: pair for pair in pairs}, images, drawn=drawn)
    assert {one.text for one in found} == {row.text for row in rows[:3]}


def test_human_texts_get_human_texts_of_other_pairs():
    own = person_said("the red car has left the parking lot", subject="p")
    others = [
        person_said("the red car has left that parking lot", subject="q"),
        person_said("the blue car has left the parking lot", subject="r"),
        person_said("two people have come to the red car", subject="s"),
    ]
    template = description(
        "shows the red car on the parking lot", "shows the parking lot without the red car"
    )
    reference = person_said("the parking lot is empty, the red car gone", subject="p")
    (found,) = retrieve([own], [own, reference, template, *others])
    assert found.text == "the blue car has left the parking lot"
    assert found.note == "of pair r, unchecked"
    (found,) = retrieve([own], [own, reference, template])
    assert found.reason == "no other description"
