"""Remembered answers survive any tear, flip or full disk, and a kill at any moment."""

import errno
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store import answers as answers_file
from pairwright.tasks.store.answers import HEADER, Answers

KEYS = [make_key("question", number) for number in range(5)]
VALUES = [b"first", b"", b"\0" * 40, "naïve \U0001f600".encode(), b"x" * 100]


def write(path: Path) -> bytes:
    with Answers(path) as answers:
        for key, value in zip(KEYS, VALUES, strict=True):
            answers.put(key, value)
    return path.read_bytes()


def known(path: Path) -> dict[str, bytes]:
    with Answers(path) as answers:
        found = {key: answers.get(key) for key in KEYS}
        assert len(answers) == sum(value is not None for value in found.values())
    return {key: value for key, value in found.items() if value is not None}


def first(count: int) -> dict[str, bytes]:
    return dict(zip(KEYS[:count], VALUES[:count], strict=True))


def ends() -> list[int]:
    """Return where each record ends."""
    sizes = [HEADER.size + len(value) for value in VALUES]
    return [sum(sizes[: count + 1]) for count in range(len(sizes))]


def test_whoever_comes_second_says_that_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = threading.Thread(target=write, args=(tmp_path / "x.answers",))
    with Answers(tmp_path / "x.answers"):
        second.start()
        for _ in range(1000):
            second.join(0.01)
            if caplog.messages:
                break
        assert second.is_alive(), "it waits"
    second.join()
    assert "x.answers: " in caplog.text
    assert known(tmp_path / "x.answers") == first(5)


def test_a_file_torn_at_any_byte_gives_the_whole_records_before(tmp_path: Path) -> None:
    path = tmp_path / "x.answers"
    data = write(path)
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends())
        assert known(path) == first(whole), length
        assert path.stat().st_size == ([0, *ends()])[whole], "what is torn is cut off"


def test_a_file_with_any_flipped_bit_gives_what_came_before_it(tmp_path: Path) -> None:
    rng = random.Random(0)
    path = tmp_path / "x.answers"
    data = write(path)
    for place in range(len(data)):
        path.write_bytes(
            data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        )
        assert known(path) == first(sum(end <= place for end in ends())), place


class FaultyOs:
    """The ``os`` module with short writes, on a disk that is full after so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, file: int, data: Any, place: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(3, self.room, len(data))
        self.room -= taken
        return os.pwrite(file, data[:taken], place)


def test_a_full_disk_is_named_and_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in range(HEADER.size + len(VALUES[2])):
        path = tmp_path / f"{room}.answers"
        with Answers(path) as answers:
            answers.put(KEYS[0], VALUES[0])
            with monkeypatch.context() as patches:
                patches.setattr(answers_file, "os", FaultyOs(room))
                with pytest.raises(StoreError, match=r"\.answers: .*No space left on device"):
                    answers.put(KEYS[2], VALUES[2])
            assert answers.get(KEYS[2]) is None
            answers.put(KEYS[1], VALUES[1])
            assert answers.get(KEYS[0]) == VALUES[0]
        assert known(path) == first(2)


def test_who_comes_too_late_is_told(tmp_path: Path) -> None:
    with Answers(tmp_path / "x.answers") as answers:
        answers.put(KEYS[0], VALUES[0])
    for call in (lambda: answers.get(KEYS[0]), lambda: answers.put(KEYS[1], b"late")):
        with pytest.raises(StoreError, match=r"x\.answers"):
            call()
    assert known(tmp_path / "x.answers") == first(1)


def test_many_threads_may_put_and_get(tmp_path: Path) -> None:
    path = tmp_path / "x.answers"
    with Answers(path) as answers:

        def work(thread: int) -> None:
            for number in range(200):
                key, value = make_key(thread, number), f"{thread} {number}".encode() * (number % 7)
                answers.put(key, value)
                assert answers.get(key) == value

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert len(answers) == 1600
    with Answers(path) as answers:
        assert all(
            answers.get(make_key(t, n)) == f"{t} {n}".encode() * (n % 7)
            for t in range(8)
            for n in range(200)
        )


SCRIPT = """
import sys
from pathlib import Path
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.answers import Answers

with Answers(Path(sys.argv[1])) as answers:
    number = 0
    while True:
        answers.put(make_key("question", number), b"x" * number)
        number += 1
        print(number, flush=True)
"""


def test_what_was_put_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "x.answers"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        count = [int(process.stdout.readline()) for _ in range(50)][-1]
        process.kill()
    with Answers(path) as answers:
        assert len(answers) >= count
        assert all(
            answers.get(make_key("question", number)) == b"x" * number for number in range(count)
        )
