import pytest

from pairwright.tasks.report.measure_dataset import measure_removals
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import Handmade, build_handmade
from tests.tasks.report.handmade_removals import TOO_LARGE


def measure(root, made, until="preferences"):
    with build_handmade(root, made, until=until) as (build, _):
        return measure_removals(Tables(build))


@pytest.fixture(scope="module")
def found(tmp_path_factory, made):
    return measure(tmp_path_factory.mktemp("whole"), made)


def test_every_step_is_counted_with_its_reasons(found, made):
    """24 images of four looked-for tags each, three balls and a table, beside a cloud and one refused name."""
    assert found.refused_tags == {"names no thing": 24}
    assert found.elements == {"can be removed": 72, TOO_LARGE: 24}
    assert found.inspected == {
        "passed all checks": 48, "changed outside": 6, "halo": 6, "something grew": 6, "still detected": 6,
    }  # fmt: skip
    # Of seven pairs in a row, one has a crop and one has nothing; a pair without a preference does not count.
    made_of = [row.rejected_image_maker for row in made.of("preferences")]
    names = {"removal": "an element removed", "crop": "a random crop", "": "none"}
    assert found.made == {name: made_of.count(maker) for maker, name in names.items()}
    assert (found.candidates, found.able) == (6, 4)


def test_before_there_are_preferences_pairs_are_counted(tmp_path, made):
    found = measure(tmp_path, made, until="rejections")
    assert sum(found.made.values()) == len(made.of("rejections"))


def test_a_dataset_without_rejected_images_has_none_of_it(tmp_path, made):
    assert measure(tmp_path, made, until="retrieved") is None


def test_an_empty_table_is_counted_as_nothing(tmp_path):
    found = measure(tmp_path, Handmade(), until="inspected")
    assert (found.refused_tags, found.made, found.candidates) == ({}, {}, 0)
