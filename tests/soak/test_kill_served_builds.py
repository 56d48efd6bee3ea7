"""Kill builds of photographs that served models write at 60 moments, spread by what they have done,
not by time.

Run with ``make soak``; some minutes on two cores.
"""

import signal
from collections import Counter
from pathlib import Path

import pytest

import pairwright as pw
from tests.fixtures.chat_server import chat_server
from tests.fixtures.photographs import write_photographs
from tests.soak.served_builds import ROWS_PER_SHARD, Progress, read_parts

KILLS, CHAINS = 60, 6


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_served_builds_killed_at_sixty_points_end_like_an_unkilled_one(
    tmp_path: Path,
) -> None:
    write_photographs(source := tmp_path / "photographs", variants=2)
    progress, ended = Progress(), Counter[int]()
    with chat_server(progress.answer) as server:
        whole = tmp_path / "whole"
        assert progress.run(server, source, whole) == 0
        asked, work = set(progress.answers), progress.done
        parts, counts = read_parts(whole), pw.open(whole).status().counts
        targets = [round(work * (number + 0.5) / KILLS) for number in range(KILLS)]
        for first in range(CHAINS):
            progress.answers.clear()
            out = tmp_path / f"killed-{first}"
            mine = targets[first::CHAINS]
            for target in mine:
                ended[progress.run(server, source, out, target)] += 1
                read_parts(out)
                assert progress.done <= target + 2 * ROWS_PER_SHARD
            assert progress.run(server, source, out) == 0
            assert read_parts(out) == parts
            assert pw.open(out).status().counts == counts
            assert set(progress.answers) == asked
            assert progress.answers.total() - len(asked) <= ROWS_PER_SHARD * len(mine)
            print(first, progress.answers.total() - len(asked), "asked again of", len(asked))
    assert ended == {-signal.SIGKILL: KILLS}
