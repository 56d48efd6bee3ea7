"""The words by which models name the six axes."""

import pytest

from pairwright.schemas.comparison_axes import AXES, read_axes


@pytest.mark.parametrize(
    ("label", "axes"),
    [
        ("Object types", AXES[:1]),
        ("Object type(s)", AXES[:1]),
        ("Object attribute", AXES[1:2]),
        ("Colour", AXES[1:2]),
        ("Counting the objects", AXES[2:3]),
        ("Number of objects", AXES[2:3]),
        ("Object action(s)", AXES[3:4]),
        ("Poses", AXES[3:4]),
        ("Object location", AXES[4:5]),
        ("Object positions", AXES[4:5]),
        ("Relative positions between objects", AXES[5:]),
        ("Relative position", AXES[5:]),
        ("Positions between objects", AXES[5:]),
        ("Spatial relationships", AXES[5:]),
        ("Setting", ()),
    ],
)
def test_labels(label, axes):
    assert read_axes(label) == axes
