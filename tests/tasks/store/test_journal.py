"""Journals: what is finished survives any tear or flip, and the last input is done again."""

import os
import random
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, make_key
from pairwright.tasks.store import journal as journal_file
from pairwright.tasks.store.journal import Journal

INPUTS = [make_key("input", number) for number in range(4)]


def _caption(source: str, number: int) -> CaptionRow:
    key = make_key(source, number)
    return CaptionRow(key=key, source_key=source, subject=key, text="text " * number, sentences=("a", "b"), model="m")


ROWS = [
    _caption(INPUTS[0], 1),
    _caption(INPUTS[0], 2),
    Dropped(source_key=INPUTS[1], reason="dull"),
    _caption(INPUTS[2], 3),
    _caption(INPUTS[3], 4),
    _caption(INPUTS[3], 5),
]
TABLE = to_table(ROWS, CaptionRow)
ENDS = {0: 0, 1: 0, 2: 0, 3: 2, 4: 3, 5: 4, 6: 4}
"""How many rows are finished when the first so many records are whole: the last input's may be incomplete."""


def _write(path: Path, table: pa.Table = TABLE) -> list[int]:
    """Write one record per row; return where each ends."""
    ends = [0]
    with Journal(path, CaptionRow) as journal:
        journal.restart(table.slice(0, 0))
        for row in range(len(table)):
            journal.append(table.slice(row, 1))
            ends.append(path.stat().st_size)
    return ends


def _read(path: Path) -> pa.Table:
    with Journal(path, CaptionRow) as journal:
        return journal.read()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_journal_torn_at_any_byte_gives_what_was_finished(tmp_path: Path, every: int) -> None:
    path = tmp_path / "x.journal"
    ends = _write(path)
    data = path.read_bytes()
    for length in range(0, len(data) + 1, every):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends) - 1
        assert _read(path).equals(TABLE.slice(0, ENDS[whole])), length


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_journal_with_any_flipped_byte_gives_what_came_before_it(tmp_path: Path, every: int) -> None:
    rng = random.Random(0)
    path = tmp_path / "x.journal"
    ends = _write(path)
    data = path.read_bytes()
    for place in range(0, len(data), every):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :])
        whole = sum(end <= place for end in ends) - 1
        assert _read(path).equals(TABLE.slice(0, ENDS[whole])), place


def test_a_journal_is_taken_up_again(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    _write(path, TABLE.slice(0, 4))
    with Journal(path, CaptionRow) as journal:
        before = journal.read()
        assert before.equals(TABLE.slice(0, 3))
        journal.restart(before)
        journal.append(TABLE.slice(3))
    assert _read(path).equals(TABLE.slice(0, 4))
    with Journal(path, CaptionRow) as journal:
        journal.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_it_is_taken_up_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.journal"
    _write(path)

    def stop(*paths: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches, Journal(path, CaptionRow) as journal:
        patches.setattr(journal_file, "os", SimpleNamespace(**{**vars(os), "replace": stop}))
        with pytest.raises(KeyboardInterrupt):
            journal.restart(journal.read())
    assert _read(path).equals(TABLE.slice(0, 4))


def test_inputs_that_failed_are_done_again(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    failed = to_table([_caption(INPUTS[0], 1), Failed(source_key=INPUTS[0], reason="time-out"), *ROWS[2:]], CaptionRow)
    _write(path, failed)
    assert _read(path).equals(TABLE.slice(2, 2))


def test_a_journal_waits_for_the_one_who_still_writes(tmp_path: Path) -> None:
    path, order = tmp_path / "x.journal", list[str]()

    def second() -> None:
        with Journal(path, CaptionRow):
            order.append("second")

    with Journal(path, CaptionRow):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
