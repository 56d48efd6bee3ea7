"""Drive datasets through many more random lives than the suite does, other ones each time."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.tasks.store import test_dataset_states as states

LIVES = 60


@pytest.mark.slow
def test_long_lives() -> None:
    run_state_machine_as_test(
        states.Life,
        settings=settings(states.TestLife.settings, max_examples=LIVES, derandomize=False),
    )
