"""What is true of a pair, against the claims themselves."""

import json

import numpy as np
import pytest

from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.training.retriever.known_truth import TRUE, UNKNOWN, WRONG, know_truth, without_masks
from pairwright.tasks.training.retriever.pool import NONE, Entry, make_pool
from tests.fixtures.descriptions import described, truth
from tests.fixtures.graphs import graph, thing


def test_on_random_scenes_it_is_what_the_claims_say():
    rows, pairs, images = described(range(60))
    entries = [
        Entry(
            key=row.key,
            pair=row.subject,
            chosen=row.text,
            images=(pairs[row.subject].first, pairs[row.subject].second),
            in_pool=True,
            no_change=row.no_change,
        )
        for row in rows
    ]
    pool = make_pool(entries)
    graphs = {key: without_masks(image.graph.model_dump_json()) for key, image in images.items()}
    known = know_truth(entries, pool, claims=[(row.text, row.claims) for row in rows], graphs=graphs)
    by_text = {row.text: CLAIMS.validate_json(row.claims) for row in rows}
    ids = np.broadcast_to(np.arange(len(pool.texts)), (len(rows), len(pool.texts)))
    found = known.of(np.arange(len(rows)), ids)
    for place, row in enumerate(rows):
        expected = [truth(row, by_text[text], pairs, images) for text in pool.texts]
        assert found[place].tolist() == [TRUE if true else WRONG for true in expected]
        assert found[place, pool.own[place, 0]] == TRUE
    assert (found == WRONG).mean() > 0.5


RED = json.dumps([{"side": 0, "kind": "exists", "selector": {"colour": "red"}}])


def entry_of(name, text, images):
    return Entry(key=name, pair=name, chosen=text, images=images, in_pool=True, no_change=False)


def test_what_is_not_known_is_not_guessed():
    rows = [entry_of("a", "A red one.", ("x", "y")), entry_of("b", "no claims", ("x", "z"))]
    scene = without_masks(graph(thing(colour="red")).model_dump_json())
    claims = [("a red one", ""), ("a red one", "[]"), ("a red one", RED), ("of no row", RED)]
    known = know_truth(rows, make_pool(rows), claims=claims, graphs={"x": scene, "y": scene})
    ids = np.array([[0, 1, NONE], [0, 1, NONE]])
    assert known.of(np.arange(2), ids).tolist() == [[TRUE, UNKNOWN, UNKNOWN], [UNKNOWN] * 3]
    assert known.of(np.arange(0), np.empty((0, 2), dtype=np.int64)).shape == (0, 2)


@pytest.mark.parametrize(("colour", "verdict"), [("red", TRUE), ("blue", WRONG)])
def test_the_graph_of_the_right_side_counts(colour, verdict):
    rows = [entry_of("a", "text", ("x", "y")), entry_of("b", "other", ("x", "x"))]
    claims = CLAIMS.dump_json((Claim(side=1, kind="exists", selector=Selector(colour=colour)),)).decode()
    graphs = {"x": graph(thing(colour="blue")), "y": graph(thing(colour="red"))}
    known = know_truth(
        rows,
        make_pool(rows),
        claims=[("other", claims)],
        graphs={key: without_masks(one.model_dump_json()) for key, one in graphs.items()},
    )
    assert known.of(np.array([0]), np.array([[0]])).tolist() == [[verdict]]


def test_masks_are_left_out_and_nothing_else():
    scene = graph(thing(), thing("b", "cube", "green"))
    short = SceneGraph.model_validate_json(without_masks(scene.model_dump_json()))
    assert [one.mask.counts for one in short.objects] == [(), ()]
    whole = [one.model_copy(update={"mask": scene.objects[0].mask}) for one in short.objects]
    assert tuple(whole) == scene.objects
    assert short.model_copy(update={"objects": scene.objects}) == scene
