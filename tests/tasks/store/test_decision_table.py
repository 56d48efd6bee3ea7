"""The table of decisions: a union of files, whoever adds to it, joined meanwhile or not."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.decisions import Decision
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.decision_table import (
    MAX_FILES,
    MAX_SENT,
    KeptFilter,
    decision_files,
    forget_decisions,
    keep_filter,
    missing_decisions,
    parse_decisions,
    read_decision_file,
    read_decisions,
    read_filters,
    read_history,
    write_decisions,
)
from pairwright.tasks.store.files import Folder

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def decision(number: int, verdict: str = "accept", *, later: float = 0, **texts: str) -> Decision:
    at = NOON + timedelta(seconds=later)
    return Decision.model_validate({"key": key_of(number), "verdict": verdict, "at": at, **texts})


def key_of(number: int) -> str:
    return f"{number:032x}"


def test_what_is_stored_twice_is_there_once_and_the_latest_counts(folder: Folder) -> None:
    both = [decision(1), decision(2, "edit", chosen='Ünï\n"code"', note="why")]
    write_decisions(folder, both)
    write_decisions(folder, both[::-1])
    assert len(decision_files(folder)) == 1
    write_decisions(folder, [decision(1, "reject", later=1)])
    write_decisions(folder, [decision(2, "none", later=1)])
    assert read_decisions(folder).by_key == {key_of(1): decision(1, "reject", later=1)}
    verdicts = [past.verdict for past in read_history(folder)]
    assert verdicts == ["accept", "edit", "reject", "none"]


def test_order_of_storing_survives_joining_and_times(folder: Folder) -> None:
    for number in range(MAX_FILES):
        write_decisions(folder, [decision(number, later=60)])
    write_decisions(folder, [decision(number, "reject") for number in range(MAX_FILES)])
    assert decision_files(folder) == [f"decisions/{MAX_FILES + 1:06d}.parquet"]
    verdicts = read_decisions(folder).count_verdicts()
    assert verdicts == {"reject": MAX_FILES}
    write_decisions(folder, [decision(0, later=60)])
    assert read_decisions(folder).count_verdicts() == verdicts, "an old file, stored again"


def test_a_missing_file_is_named(folder: Folder) -> None:
    for number in range(3):
        write_decisions(folder, [decision(number)])
    assert list(missing_decisions(folder)) == []
    for name in ("decisions/000002.parquet", "decisions/000003.parquet", "decisions/state.json"):
        data = folder.read(name)
        folder.delete(name)
        assert [name in message for message in missing_decisions(folder, known=3)] == [True]
        folder.write(name, data)


def test_files_of_earlier_releases_come_first(folder: Folder) -> None:
    write_decisions(folder, [decision(1)])
    old = folder.read("decisions/000001.parquet")
    folder.write("decisions/part-0123.parquet", old)
    folder.delete("decisions/000001.parquet")
    write_decisions(folder, [decision(1, "reject", later=-60)])
    assert read_decisions(folder).count_verdicts() == {"reject": 1}


def test_many_writers_lose_nothing_while_their_files_are_joined(folder: Folder) -> None:
    numbers = range(3 * MAX_FILES)
    with ThreadPoolExecutor(4) as threads:
        stored = [threads.submit(write_decisions, folder, [decision(n)]) for n in numbers]
        while not all(write.done() for write in stored):  # a reader sees whole files, joined or not
            read_history(folder)
        for write in stored:
            write.result()
    assert set(read_decisions(folder).by_key) == {key_of(n) for n in numbers}
    assert len(decision_files(folder)) <= 2 * MAX_FILES


def test_what_is_forgotten_is_in_no_file(folder: Folder) -> None:
    write_decisions(folder, [decision(1, "edit", chosen="secret"), decision(2)])
    write_decisions(folder, [decision(3)])
    assert forget_decisions(folder, {key_of(1), key_of(9)}) == 1
    assert set(read_decisions(folder).by_key) == {key_of(2), key_of(3)}
    assert forget_decisions(folder, {key_of(1)}) == 0
    names = decision_files(folder)
    assert not any(b"secret" in folder.read(name) for name in names)
    assert list(missing_decisions(folder)) == []
    assert forget_decisions(folder, {key_of(2), key_of(3)}) == 2
    assert len(read_decisions(folder)) == 0


GOOD = {"key": "ab" * 16, "verdict": "reject", "at": "2026-11-21T11:00:00Z"}
LINE = json.dumps(GOOD).encode()


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    other = {**GOOD, "key": "cd" * 16}
    lines = [b"\xef\xbb\xbf" + LINE + b"\r", b"", b"  ", json.dumps(other).encode(), b""]
    (tmp_path / "d.jsonl").write_bytes(b"\n".join(lines))
    keys = [each.key for each in read_decision_file(tmp_path / "d.jsonl")]
    assert keys == ["ab" * 16, "cd" * 16]
    (tmp_path / "empty.jsonl").touch()
    assert read_decision_file(tmp_path / "empty.jsonl") == []


def test_a_bad_line_spoils_the_file_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    unknown = json.dumps({**GOOD, "verdict": "maybe"}).encode()
    path.write_bytes(b"\n".join([LINE, b"{", unknown, b"\xff\xfe"]))
    with pytest.raises(ConfigError) as error:
        read_decision_file(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert all(place in message for place in ("line 2: ", "line 3: verdict: ", "line 4: "))
    assert "line 1: " not in message
    for name in ("no-such-file", "."):
        with pytest.raises(ConfigError, match=re.escape(str(tmp_path / name))):
            read_decision_file(tmp_path / name)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "1,000"),
        ([GOOD] * (MAX_SENT + 1), "1,000"),
        ([GOOD, {**GOOD, "x": 1}], "decision 2: x: "),
        ([GOOD, 7], "decision 2: .*object"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_page_sends_a_list_and_nothing_else(body: Any, why: str) -> None:
    both = parse_decisions(json.dumps([GOOD, GOOD]).encode())
    assert [each.verdict for each in both] == ["reject", "reject"]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ValueError, match=why):
        parse_decisions(data)


def test_a_damaged_filter_is_left_out_and_logged(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        keep_filter(folder, KeptFilter(name=name, page="", query=f"text={name}"))
    damaged = folder.names("decisions", ".json")[0]
    folder.write(f"decisions/{damaged}", b"{")
    assert len(read_filters(folder)) == 1
    assert damaged in caplog.text
