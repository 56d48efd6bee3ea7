"""Retrieved texts: the most similar false description, against a dense computation."""

from dataclasses import replace

import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from pairwright.schemas.arrow import to_table
from pairwright.schemas.claims import CLAIMS, Claim, Selector, may_hold
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, make_key
from pairwright.tasks.rejected.retrieve_texts import FUNCTION_WORDS, retrieve_texts
from pairwright.tasks.rejected.text_pool import DRAWN, pool_texts
from tests.fixtures.descriptions import described, description, person_said
from tests.fixtures.graphs import graph, rows_of, thing

NO_OTHER, ALL_TRUE = "no other description", "all similar descriptions are true"


def retrieve(rows, everything=None, pairs=(), images=None, *, drawn=None, **config):
    """Retrieve; pairs are in one split, each a component of its own, but for those ``drawn``."""
    everything = everything or rows
    splits = {row.subject: ("train", row.subject) for row in everything} | (drawn or {})
    columns = ("subject", "split", "component")
    table = [dict(zip(columns, (key, *split), strict=True)) for key, split in splits.items()]
    return list(
        retrieve_texts(
            rows,
            RejectedTextsConfig(**config),
            everything=to_table(everything, DifferenceRow),
            splits=pa.Table.from_pylist(table),
            pairs={pair.key: pair for pair in pairs},
            images=images or {},
        )
    )


def exists(shape, *, side=0, **named):
    return Claim(side=side, kind="exists", selector=Selector(shape=shape, **named))


def names_one_of(things, row):
    """Return whether a text names one of the things, with colour and material if given."""
    claims = CLAIMS.validate_json(row.claims)
    selectors = [one for claim in claims for one in (claim.selector, claim.other) if one.shape]
    fields = ("shape", "colour", "material")
    return any(
        all(getattr(selector, name) in (None, getattr(item, name)) for name in fields)
        for selector in selectors
        for item in things
    )


def test_the_most_similar_false_one_is_taken() -> None:
    """Rank all texts densely, those with an object's words first."""
    rows, pairs, images = described(range(120))
    contents = [f"{row.first_half} {row.second_half}" for row in rows]
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", stop_words=FUNCTION_WORDS)
    dense = vectorizer.fit_transform(contents).toarray()
    scores = (dense @ dense.T).round(9)
    for at, result in enumerate(retrieve(rows, None, pairs.values(), images)):
        row, pair = rows[at], pairs[rows[at].subject]
        graphs = (images[pair.first].graph, images[pair.second].graph)
        things = [item for scene in graphs for item in scene.objects]
        others = [number for number in range(len(rows)) if number != at]
        if row.no_change:
            others = [number for number in others if not rows[number].no_change]
        others.sort(key=lambda number: (-scores[at, number], rows[number].key))
        ranked = sorted(others[:50], key=lambda number: not names_one_of(things, rows[number]))
        is_false = [
            not may_hold(CLAIMS.validate_json(rows[number].claims), graphs) for number in ranked
        ]
        skipped = is_false.index(True)
        source = rows[ranked[skipped]]
        assert (result.text, result.note) == (source.text, f"of pair {source.subject}")
        assert result.key == make_key(row.key, "retrieved", result.text)
        assert result.skipped_true == skipped
        assert result.score == pytest.approx(scores[at, ranked[skipped]])


def test_accidentally_true_texts_are_skipped_and_counted() -> None:
    two_balls = graph(thing(), thing("b", colour="blue"))
    (pair,), images = rows_of([(two_balls, graph(thing("c", "cube")))])
    tables = ([pair], images)
    mine, true, false = (
        description(f"shows a {colour} ball", half, claims=[exists("ball", colour=colour)])
        for colour, half in [
            ("red", "shows a cube"),
            ("blue", "shows a cube"),
            ("green", "has a cone"),
        ]
    )
    mine = replace(mine, subject=pair.key)
    (row,) = retrieve([mine], [mine, false, true], *tables)
    assert (row.text, row.skipped_true) == (false.text, 1)
    (dropped,) = retrieve([mine], [mine, true], *tables)
    assert dropped == Dropped(source_key=mine.key, reason=ALL_TRUE, detail="1 tried")
    (given_up,) = retrieve([mine], [mine, false, true], *tables, max_candidates=1)
    assert given_up.reason == f"{ALL_TRUE} (rejected_texts.max_candidates=1)"


MINE = description("shows a red ball", "shows a cube", subject="mine")


def test_without_graphs_only_equal_texts_are_passed_over() -> None:
    same = replace(MINE, key="same", subject="same", source_key="same")
    other = description("shows a red ball", "shows a box")
    (row,) = retrieve([MINE], [MINE, same, other])
    assert row.text == other.text
    assert row.note.endswith(", unchecked")
    dropped = Dropped(source_key=MINE.key, reason=NO_OTHER, detail="0 tried")
    assert retrieve([MINE], [MINE, same]) == [dropped]


def test_what_another_description_of_the_pair_says_is_skipped() -> None:
    mine = description("shows a man in a red jacket", "shows a park", subject="mine")
    sibling = description("depicts the lady in a park", "depicts a lake", subject="mine")
    sibling = replace(sibling, key="sibling")
    other = description("shows a woman in the park", "shows a lake", subject="other")
    assert retrieve([mine], [mine, other])[0].text == other.text
    assert retrieve([mine], [mine, other, sibling])[0].reason == ALL_TRUE


def test_texts_without_words_are_no_crash() -> None:
    (dropped,) = retrieve([description("shows a", "shows the")])
    assert dropped.reason == NO_OTHER


def test_a_large_collection_is_sampled_by_key() -> None:
    rows, *_ = described(range(30))
    splits = pa.table({name: pa.array([], pa.string()) for name in DRAWN})
    pool = pool_texts(to_table(rows, DifferenceRow), splits, 5)
    by_pair = sorted(rows, key=lambda row: (row.subject, row.key))[:5]
    assert [row.key for row in pool.rows] == sorted(row.key for row in by_pair)


def test_texts_come_from_the_row_s_own_split() -> None:
    """Not even those of another one that say the same, word for word."""
    held = description("shows a red ball", "shows a box", subject="held")
    same = replace(held, key="s", subject="same", text=held.text.upper())
    other = description("shows a red cone", "shows a lamp", subject="other")
    drawn = {"held": ("test", "held")}
    assert retrieve([MINE], [MINE, held, other])[0].text == held.text
    assert retrieve([MINE], [MINE, held, other], drawn=drawn)[0].text == other.text
    assert retrieve([MINE], [MINE, held, same, other], drawn=drawn)[0].text == other.text
    assert retrieve([held], [MINE, held, other], drawn=drawn)[0].reason == NO_OTHER


def shown(shape, colour, second="shows a metal lamp in a photo studio", claims=()):
    """Describe a thing of the first image, with claims."""
    claim = exists(shape, colour=colour, material="metal")
    return description(f"shows a {colour} metal {shape}", second, claims=[claim, *claims])


def test_texts_that_name_an_object_of_the_images_come_first() -> None:
    red_and_blue = graph(thing(), thing("b", "cube", "blue"))
    (pair,), images = rows_of([(red_and_blue, graph(thing("c", "cone")))])
    mine = replace(shown("ball", "red"), subject=pair.key)
    similar = shown("ball", "green")
    common = shown("cube", "blue", "shows a car", [exists("car", side=1)])
    (row,) = retrieve([mine], [mine, similar, common], [pair], images)
    assert (row.text, row.skipped_true) == (common.text, 0)
    assert CLAIMS.validate_json(row.claims) == CLAIMS.validate_json(common.claims)


def test_texts_of_the_same_world_come_in_turns() -> None:
    """Three pairs of one world reject each other's texts once each, however similar others are."""
    pairs, images = rows_of([(graph(thing()), graph(thing("b", "cone")))] * 6)
    colours = ("blue", "green", "orange", "white", "pink", "black")
    rows = [
        replace(shown("ball", colour), subject=pair.key)
        for colour, pair in zip(colours, pairs, strict=True)
    ]
    drawn = {pair.key: ("train", "world") for pair in pairs[:3]}
    results = retrieve(rows[:3], rows, pairs, images, drawn=drawn)
    assert {row.text for row in results} == {row.text for row in rows[:3]}


def test_human_texts_get_human_texts_of_other_pairs() -> None:
    own = person_said("the red car has left the parking lot", subject="p")
    reference = person_said("the parking lot is empty, the red car gone", subject="p")
    others = [
        person_said("the red car has left that parking lot", subject="q"),
        person_said("the blue car has left the parking lot", subject="r"),
    ]
    template = description("shows the red car on the lot", "shows the lot without the red car")
    (row,) = retrieve([own], [own, reference, template, *others])
    assert row.text == "the blue car has left the parking lot"
    assert row.note == "of pair r, unchecked"
    (dropped,) = retrieve([own], [own, reference, template])
    assert dropped.reason == NO_OTHER


def test_an_unchanged_pair_gets_a_change_although_no_word_is_the_same() -> None:
    """It is false of a pair of which people say that nothing changed, so it is no unchecked one."""
    same = person_said("nothing was modified", subject="p")
    also_same = person_said("there is no change at all", subject="q")
    change = person_said("the red car has left the parking lot", subject="r")
    (row,) = retrieve([same], [same, also_same, change])
    assert (row.text, row.note, row.score) == (change.text, "of pair r", 0.0)
    assert retrieve([same], [same, also_same])[0].reason == NO_OTHER
    drawn = {"r": ("test", "r")}
    assert retrieve([same], [same, change], drawn=drawn)[0].reason == NO_OTHER


def test_a_common_sentence_gives_no_held_out_pair_away() -> None:
    """Three training pairs have it, so it is also rejected where a held-out pair has it."""
    mine = person_said("a car has changed its place", subject="mine")
    pairs = [person_said("nothing has changed", subject=f"p{number}") for number in range(3)]
    held = person_said("Nothing has changed.", subject="held")
    drawn = {"held": ("test", "held")}
    assert retrieve([mine], [mine, held, *pairs[:2]], drawn=drawn)[0].reason == NO_OTHER
    (row,) = retrieve([mine], [mine, held, *pairs], drawn=drawn)
    assert row.text.lower().startswith("nothing has changed")
