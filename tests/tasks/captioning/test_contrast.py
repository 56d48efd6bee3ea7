"""Which objects differ between two photographs, on small graphs."""

from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.contrast import Contrast, find_contrasts
from tests.fixtures.graphs import graph, thing

RED, CUBE = thing("a"), thing("b", "cube", "green")
BLUE = thing("a", colour="blue", size="large")


def changed(kind, **names):
    return (SceneChange(type=kind, **names),)


def test_changed_attributes_in_one_world():
    (found,) = find_contrasts((graph(RED, CUBE), graph(BLUE, CUBE, changes=changed("colour", object_id="a"))))
    assert found == Contrast(RED, BLUE)
    assert found.changed == ("colour", "size")


def test_what_one_photograph_lacks():
    gone = changed("disappearance", object_id="b")
    assert find_contrasts((graph(RED, CUBE), graph(RED, changes=gone))) == [Contrast(CUBE, None)]
    assert find_contrasts((graph(RED, changes=gone), graph(RED, CUBE))) == [Contrast(None, CUBE)]
    assert Contrast(CUBE, None).changed == ()


def test_counting_concerns_several_objects():
    more = [thing(name, "cone") for name in ("c", "d")]
    second = graph(RED, *more, changes=changed("counting", object_ids=("c", "d")))
    assert find_contrasts((graph(RED), second)) == [Contrast(None, one) for one in more]


def test_what_only_the_viewpoint_did_is_no_contrast():
    turned = thing("b", "cube", "green", column="right", size="large")
    second = graph(turned, changes=(*changed("viewpoint"), *changed("colour", object_id="a")))
    assert find_contrasts((graph(RED, CUBE), second)) == [Contrast(RED, None)]


def test_changes_on_both_sides_and_equal_ones():
    first = graph(BLUE, CUBE, changes=changed("colour", object_id="a"))
    second = graph(RED, changes=changed("disappearance", object_id="b"))
    assert find_contrasts((first, second)) == [Contrast(BLUE, RED), Contrast(CUBE, None)]
    assert find_contrasts((first, first)) == []


def test_two_worlds_are_compared_by_looks():
    other = graph(thing("x"), thing("y", "mug"), world="v")
    assert find_contrasts((graph(RED, CUBE), other)) == [Contrast(CUBE, None), Contrast(None, other.objects[1])]
