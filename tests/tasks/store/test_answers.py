"""Remembered answers survive any tear, flip or full disk; a kill: serving/test_ask_rows."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.answers import HEADER, Answers
from tests.tasks.store.faults import flipped, tiny_disk

KEYS = [make_key("question", number) for number in range(5)]
VALUES = [b"first", b"", b"\0" * 40, "naïve \U0001f600".encode(), b"x" * 100]
ENDS = list(accumulate(HEADER.size + len(value) for value in VALUES))
"""Where each record ends."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.answers"


def write(path: Path) -> bytes:
    with Answers(path) as answers:
        for key, value in zip(KEYS, VALUES, strict=True):
            answers.store_value(key, value)
    return path.read_bytes()


def known(path: Path) -> dict[str, bytes]:
    with Answers(path) as answers:
        values = {key: value for key in KEYS if (value := answers.get(key)) is not None}
        assert len(answers) == len(values)
    return values


def first(count: int) -> dict[str, bytes]:
    return dict(zip(KEYS[:count], VALUES[:count], strict=True))


def test_whoever_comes_second_says_that_it_waits(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = threading.Thread(target=write, args=(path,))
    with Answers(path):
        second.start()
        for _ in range(1000):
            second.join(0.01)
            if caplog.messages:
                break
        assert second.is_alive(), "it waits"
    second.join()
    assert "x.answers: " in caplog.text
    assert known(path) == first(5)


def test_torn_or_flipped_bytes_cost_only_what_comes_after(path: Path) -> None:
    data = write(path)
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ENDS)
        assert known(path) == first(whole), length
        assert path.stat().st_size == [0, *ENDS][whole], "what is torn is cut off"
    rng = random.Random(0)
    for place in range(len(data)):
        path.write_bytes(flipped(data, place, 1 << rng.randrange(8)))
        assert known(path) == first(sum(end <= place for end in ENDS)), place


def test_a_full_disk_is_named_and_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in range(HEADER.size + len(VALUES[2])):
        path = tmp_path / f"{room}.answers"
        with Answers(path) as answers:
            answers.store_value(KEYS[0], VALUES[0])
            with (
                tiny_disk(monkeypatch, room),
                pytest.raises(StoreError, match=r"\.answers: .*No space left on device"),
            ):
                answers.store_value(KEYS[2], VALUES[2])
            assert answers.get(KEYS[2]) is None
            answers.store_value(KEYS[1], VALUES[1])
            assert answers.get(KEYS[0]) == VALUES[0]
        assert known(path) == first(2)


def test_who_comes_too_late_is_told(path: Path) -> None:
    with Answers(path) as answers:
        answers.store_value(KEYS[0], VALUES[0])
    with pytest.raises(StoreError, match=r"x\.answers"):
        answers.get(KEYS[0])
    with pytest.raises(StoreError, match=r"x\.answers"):
        answers.store_value(KEYS[1], b"late")
    assert known(path) == first(1)


def test_many_threads_may_put_and_get(path: Path) -> None:
    values = {make_key(t, n): f"{t} {n}".encode() * (n % 7) for t in range(8) for n in range(200)}
    keys = list(values)
    with Answers(path) as answers:

        def work(thread: int) -> None:
            for key in keys[200 * thread :][:200]:
                answers.store_value(key, values[key])
                assert answers.get(key) == values[key]

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert len(answers) == 1600
    with Answers(path) as answers:
        assert {key: answers.get(key) for key in keys} == values
