"""The table of decisions: a union of files, whoever adds to it, however often, and whatever is
joined meanwhile."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from pairwright.schemas.decisions import Decision
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store import decision_table as decisions_file
from pairwright.tasks.store.decision_table import (
    decision_files,
    read_decision_file,
    read_decisions,
    write_decisions,
)
from pairwright.tasks.store.files import Folder

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def decision(number: int, verdict="accept", *, later: float = 0, **texts) -> Decision:
    return Decision(
        key=f"{number:032x}", verdict=verdict, at=NOON + timedelta(seconds=later), **texts
    )


def test_what_is_stored_twice_is_there_once_and_the_latest_counts(tmp_path):
    folder = Folder(str(tmp_path))
    some = [decision(1), decision(2, "edit", chosen='Ünï\n"code"', note="why")]
    write_decisions(folder, some)
    write_decisions(folder, some[::-1])
    assert len(decision_files(folder)) == 1
    write_decisions(folder, [decision(1, "reject", later=1)])
    write_decisions(folder, [decision(2, "none", later=1)])
    assert read_decisions(folder).by_key == {decision(1).key: decision(1, "reject", later=1)}
    assert sorted(one.verdict for one in decisions_file.read_history(folder)) == [
        "accept",
        "edit",
        "none",
        "reject",
    ]


def test_many_writers_lose_nothing_while_their_files_are_joined(tmp_path):
    folder, count = Folder(str(tmp_path)), 3 * decisions_file.MAX_FILES
    with ThreadPoolExecutor(4) as threads:
        stored = [
            threads.submit(write_decisions, folder, [decision(number)]) for number in range(count)
        ]
        while not all(one.done() for one in stored):  # a reader sees whole files, joined or not
            decisions_file.read_history(folder)
        for one in stored:
            one.result()
    assert set(read_decisions(folder).by_key) == {decision(number).key for number in range(count)}
    assert len(decision_files(folder)) <= 2 * decisions_file.MAX_FILES


def test_what_is_forgotten_is_in_no_file(tmp_path):
    folder = Folder(str(tmp_path))
    write_decisions(folder, [decision(1, "edit", chosen="secret"), decision(2)])
    write_decisions(folder, [decision(3)])
    assert decisions_file.forget_decisions(folder, {decision(2).key, decision(3).key}) == 1
    assert set(read_decisions(folder).by_key) == {decision(2).key, decision(3).key}
    assert decisions_file.forget_decisions(folder, {decision(2).key, decision(3).key}) == 0
    assert decisions_file.forget_decisions(folder, set()) == 2
    assert decision_files(folder) == []


GOOD = {"key": "ab" * 16, "verdict": "reject", "at": "2026-11-21T11:00:00Z"}


def write(path, *lines: bytes | dict):
    path.write_bytes(
        b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)
    )
    return path


def test_a_file_is_read_line_by_line(tmp_path):
    other = {**GOOD, "key": "cd" * 16}
    path = write(
        tmp_path / "d.jsonl",
        b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r",
        b"",
        b"  ",
        other,
        b"",
    )
    assert [one.key for one in read_decision_file(path)] == [GOOD["key"], other["key"]]
    assert read_decision_file(write(tmp_path / "empty.jsonl")) == []


def test_a_bad_line_spoils_the_file_and_is_named(tmp_path):
    bad = (b"{", {**GOOD, "verdict": "maybe"}, b"\xff\xfe")
    path = write(tmp_path / "d.jsonl", GOOD, *bad)
    with pytest.raises(ConfigError) as error:
        read_decision_file(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ")
    for part in ("line 2: Invalid JSON", "line 3: verdict: Input should be", "line 4: "):
        assert part in said


@pytest.mark.parametrize("name", ["no-such-file", "."])
def test_what_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / name))):
        read_decision_file(tmp_path / name)


def test_a_page_sends_a_list():
    both = decisions_file.parse_decisions(json.dumps([GOOD, GOOD]).encode())
    assert [one.verdict for one in both] == ["reject", "reject"]
    assert decisions_file.parse_decisions(b"[]") == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "EOF"),
        (b"{}", "1,000"),
        (json.dumps([GOOD] * (decisions_file.MAX_SENT + 1)).encode(), "1,000"),
        (json.dumps([GOOD, {**GOOD, "x": 1}]).encode(), "decision 2: x: "),
        (json.dumps([GOOD, 7]).encode(), "decision 2: .*object"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_anything_else_is_refused(body, why):
    with pytest.raises(ValueError, match=why):
        decisions_file.parse_decisions(body)
