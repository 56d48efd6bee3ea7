import json
import re

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.take_decisions import MOST_LINE, MOST_SENT, parse_decisions, read_decision_file

GOOD = {"key": "ab" * 16, "verdict": "reject", "at": "2026-11-21T11:00:00Z"}


def write(path, *lines: bytes | dict):
    path.write_bytes(b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines))
    return path


def test_a_file_is_read_line_by_line(tmp_path):
    other = {**GOOD, "key": "cd" * 16}
    path = write(tmp_path / "d.jsonl", b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r", b"", b"  ", other, b"")
    assert [one.key for one in read_decision_file(path)] == [GOOD["key"], other["key"]]
    assert read_decision_file(write(tmp_path / "empty.jsonl")) == []


def test_a_bad_line_spoils_the_file_and_is_named(tmp_path):
    path = write(tmp_path / "d.jsonl", GOOD, b"{", {**GOOD, "verdict": "maybe"}, b"\xff\xfe", b" " * MOST_LINE + b"x")
    with pytest.raises(ConfigError) as error:
        read_decision_file(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ")
    for part in ("line 2: Invalid JSON", "line 3: verdict: Input should be", "line 4: "):
        assert part in said
    assert "200,000 bytes" in said


@pytest.mark.parametrize("name", ["no-such-file", "."])
def test_what_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path / name))):
        read_decision_file(tmp_path / name)


def test_a_page_sends_a_list():
    assert [one.verdict for one in parse_decisions(json.dumps([GOOD, GOOD]).encode())] == ["reject", "reject"]
    assert parse_decisions(b"[]") == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "EOF"),
        (b"{}", "1,000"),
        (json.dumps([GOOD] * (MOST_SENT + 1)).encode(), "1,000"),
        (json.dumps([GOOD, {**GOOD, "x": 1}]).encode(), "decision 2: x: "),
        (json.dumps([GOOD, 7]).encode(), "decision 2: .*object"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_anything_else_is_refused(body, why):
    with pytest.raises(ValueError, match=why):
        parse_decisions(body)
