"""Kill builds of photographs that served models write at 60 moments, spread by what they have done, not by time.

Run with ``make soak``; some minutes on two cores. Progress is counted in parts on disk and in answers of the scripted
server.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import pairwright as pw
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_part
from tests.fixtures.chat_server import Asked, ChatServer, chat_server
from tests.fixtures.command import words_of
from tests.fixtures.photographs import write_photographs
from tests.flows.test_report_served import answer as sound
from tests.flows.test_served_faults import name_of

KILLS, CHAINS = 60, 6
ROWS_PER_SHARD = 8
SETTINGS = [
    *("captions.writer=served", "differences.writer=served", "differences.candidates=2", "judging.enabled=true"),
    *("controls.enabled=true", "controls.kinds=[same]", "comparisons.writer=served", "rejections.enabled=false"),
    *("models.chat.model=tiny", 'models.chat.structured_output="none"', f"run.rows_per_shard={ROWS_PER_SHARD}"),
    "run.workers=1",
]


class Progress:
    """Parts and answers of one dataset; a build that reaches ``target`` is killed there."""

    def __init__(self) -> None:
        self.out, self.target, self.process = Path(), sys.maxsize, 0
        self.answers: Counter[str] = Counter()
        self._deciding = threading.Lock()

    @property
    def done(self) -> int:
        return len(list(self.out.glob("tables/*/*/*.parquet"))) + len(self.answers)

    def answer(self, asked: Asked) -> str:
        self.look()
        self.answers[name_of(asked)] += 1
        return sound(asked)

    def look(self) -> None:
        with self._deciding:
            if self.process and self.done >= self.target:
                os.killpg(self.process, signal.SIGKILL)
                self.process = 0

    def run(self, server: ChatServer, source: Path, out: Path, target: int = sys.maxsize) -> int:
        """Build; return how that ended."""
        words = ["build", str(source), "--out", str(out), *words_of([*SETTINGS, f"models.chat.endpoint={server.url}"])]
        command = [sys.executable, "-m", "pairwright", *words]
        self.out, self.target = out, target
        with (out.parent / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            self.process = process.pid
            while process.poll() is None:
                self.look()
                time.sleep(0.002)
        self.process = 0
        return process.returncode


def read_parts(out: Path) -> dict[str, list[Any]]:
    """Return the rows of every part on disk, each of which is whole, without how long a server took."""
    folder, found = Folder(str(out)), dict[str, list[Any]]()
    for path in sorted(out.rglob("part-*.parquet")):
        name = str(path.relative_to(out))
        found[name] = read_part(Part(folder, name)).to_pylist()
        for answer in chain.from_iterable(row.get("served") or () for row in found[name]):
            del answer["latency"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_builds_killed_at_sixty_points_of_their_work_end_like_an_unkilled_one(tmp_path: Path) -> None:
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
