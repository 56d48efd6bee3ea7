"""Kill ``pairwright gc`` at each of its steps, before and after it takes effect, on a toy dataset.

Run with ``make soak``; a minute or two.
"""

import shutil
from pathlib import Path

import pytest

from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.garbage import carry_out
from tests.tasks.store.test_garbage import WORDS, kill_at, make_removed, plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_kill_at_any_step_loses_nothing_and_the_next_run_does_the_rest(
    tmp_path: Path, late: bool
) -> None:
    whole, made = tmp_path / "whole", tmp_path / "made"
    make_removed(whole)
    shutil.copytree(whole, made)
    found = plan(made, WORDS, gone=[1], kept=[2], sweep=True)
    list(carry_out(Folder(str(made)), found))
    expected = {path.relative_to(made): path.read_bytes() for path in made.rglob("*.parquet")}
    assert found.step_count == 9  # a version, seven files, a folder
    for at in range(1, found.step_count + 1):
        assert kill_at(whole, tmp_path / str(at), at, late=late) == expected, at
