"""What is drawn is told truly, or falsely where that is asked for, and nothing that is told cannot
be read."""

from tests.proof.draw_scenes import draw_pairs
from tests.proof.measure_truth import judge, measure, tells

PAIRS = list(draw_pairs(60, seed=7))


def test_what_is_told_holds_of_the_scenes_and_what_is_false_does_not():
    for pair in PAIRS:
        assert tells(pair.row.chosen, pair.graphs)
        assert not pair.people() or tells(pair.people(), pair.graphs)
        wrong = judge(pair.wrong(), pair.graphs)
        assert wrong
        assert not all(wrong)
    assert sum(bool(pair.people()) for pair in PAIRS) > 45


def test_the_same_seed_draws_the_same_and_another_one_does_not():
    again, other = (list(draw_pairs(3, seed=seed)) for seed in (7, 8))
    assert [pair.row for pair in again] == [pair.row for pair in PAIRS[:3]]
    assert not {pair.row.images for pair in other} & {pair.row.images for pair in again}


def test_what_is_not_a_difference_or_no_sentence_is_not_counted_as_true():
    pair = PAIRS[0]
    key, graphs = pair.row.key, {pair.row.key: pair.graphs}
    shown = pair.graphs[0].objects[0]
    same = f"shows a {shown.colour} {shown.shape}"
    vague = (
        f"The difference between the two images is that the first image {same}, while the "
        f"second image {same}."
    )
    for answer, unreadable in ((pair.row.chosen, 0), ("nothing to see", 1), (vague, 1)):
        found = measure({key: answer}, graphs, {key: pair.row.chosen})
        assert (found["whole"], found["unreadable"]) == (1 - unreadable, unreadable)
    exchanged = (pair.graphs[1], pair.graphs[0])
    assert not tells(pair.row.chosen, exchanged)
