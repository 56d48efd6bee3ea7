import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairwright.tasks.pages.ticks import nice_ticks, round_step, ticks_between


@pytest.mark.parametrize(
    ("width", "expected"), [(0.003, 0.005), (0.0051, 0.01), (1, 1), (1.2, 2), (2.5, 5), (7, 10), (0.02, 0.02)]
)
def test_steps_are_round(width: float, expected: float) -> None:
    assert round_step(width, least=0) == pytest.approx(expected)


def test_ticks_reach_the_highest_bar() -> None:
    assert nice_ticks(7) == [0, 2, 4, 6, 8]
    assert nice_ticks(1) == [0, 1]
    assert nice_ticks(0) == [0, 1]
    assert nice_ticks(40) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.5, 1]),
        (-0.3, 2.2, [-1, 0, 1, 2, 3]),
        (-350, -120, [-400, -300, -200, -100]),
        (0, 3e-3, [0, 1e-3, 2e-3, 3e-3]),
        (5, 5, [2, 4, 6, 8]),
        (0, 5e-324, [-1, -0.5, 0, 0.5, 1]),
        (-1e-310, 1e-310, [-1, -0.5, 0, 0.5, 1]),
        (1e-305, 1e-305, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_lie_around_a_range(low: float, high: float, expected: list[float]) -> None:
    assert ticks_between(low, high) == pytest.approx(expected)


@given(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15))
@example(0.0, 2.2250738585072014e-308)
@example(0.0, 1e-299)
def test_any_range_has_a_few_ticks_that_hold_it(one: float, other: float) -> None:
    low, high = sorted((one, other))
    ticks = ticks_between(low, high)
    assert 2 <= len(ticks) <= 7
    room = 1e-6 * (ticks[-1] - ticks[0])
    assert ticks[0] <= low + room
    assert ticks[-1] >= high - room
    assert len(set(ticks)) == len(ticks)
