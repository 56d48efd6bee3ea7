import pytest

from tasks.pages.ticks import nice_ticks, round_step


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
