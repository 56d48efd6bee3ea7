"""Builds of photographs that a scripted server writes, and what is done to them at a given
progress.

Progress is counted in parts on disk and in answers of the server, not in time.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import pairwright as pw
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_part
from tests.fixtures.chat_server import Asked, ChatServer
from tests.fixtures.command import words_of
from tests.fixtures.scripted_model import answer as sound
from tests.fixtures.scripted_model import name_of

ROWS_PER_SHARD = 8
SETTINGS = [
    *(
        "captions.writer=served",
        "differences.writer=served",
        "differences.candidates=2",
        "judging.enabled=true",
    ),
    *(
        "controls.enabled=true",
        "controls.kinds=[same]",
        "comparisons.writer=served",
        "rejections.enabled=false",
    ),
    *(
        "models.chat.model=tiny",
        'models.chat.structured_output="none"',
        f"run.rows_per_shard={ROWS_PER_SHARD}",
    ),
    "run.workers=1",
]


def command_of(server: ChatServer, source: Path, out: Path, *words: str) -> list[str]:
    settings = words_of([*SETTINGS, f"models.chat.endpoint={server.url}"])
    return [
        sys.executable,
        "-m",
        "pairwright",
        "build",
        str(source),
        "--out",
        str(out),
        *settings,
        *words,
    ]


def kill(process: int) -> None:
    os.killpg(process, signal.SIGKILL)


class Progress:
    """Parts and answers of one dataset; when a build reaches ``target``, ``act`` is called once
    with its process."""

    def __init__(self, act: Callable[[int], None] = kill) -> None:
        self.out, self.target, self.process, self.act = Path(), sys.maxsize, 0, act
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
                process, self.process = self.process, 0
                self.act(process)

    def run(self, server: ChatServer, source: Path, out: Path, target: int = sys.maxsize) -> int:
        """Build; return how that ended."""
        command = command_of(server, source, out)
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
    """Return the rows of every part on disk, each of which is whole, without how long a server
    took."""
    folder, found = Folder(str(out)), dict[str, list[Any]]()
    for path in sorted(out.rglob("part-*.parquet")):
        name = str(path.relative_to(out))
        found[name] = read_part(Part(folder, name)).to_pylist()
        for answer in chain.from_iterable(row.get("served") or () for row in found[name]):
            del answer["latency"]
    return found


def read_rows(out: Path) -> dict[str, list[Any]]:
    """Return the rows of every table of the newest version by key, without how long a server
    took."""
    dataset, found = pw.open(out), dict[str, list[Any]]()
    for table in dataset.tables:
        found[table] = sorted(
            (asdict(row) for row in dataset[table].rows()), key=lambda row: row["key"]
        )
        for answer in chain.from_iterable(row.get("served") or () for row in found[table]):
            del answer["latency"]
    return found
