"""Read decisions as pages hand them out, and look whether there is what they are about.

A file ``decisions.jsonl`` has one decision in each line; a page that is served sends a JSON list. Nothing of either is
trusted: all of it is sound, or none of it is taken.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import from_json, to_json

from pairwright.schemas.decisions import Decision, parse_decision
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PairRow, PreferenceRow
from pairwright.tasks.store.dataset import Build

MOST_BYTES, MOST_LINE = 256 << 20, 200_000
MOST_SENT = 1_000
"""Decisions that a page sends at once."""
SHOWN = 5
"""Faults that a message names."""
BOM = b"\xef\xbb\xbf"


def read_decision_file(path: Path) -> list[Decision]:
    """Return the decisions of a file.

    Raises:
        ConfigError: it cannot be read, or a line is no decision; the message names the lines.
    """
    now = datetime.now(UTC)
    found: list[Decision] = []
    faults: list[str] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            found.append(parse_decision(_checked(line), now=now))
        except ValueError as error:
            faults.append(f"line {number:,}: {error}")
    if faults:
        some = "; ".join(faults[:SHOWN]) + ("; ..." if faults[SHOWN:] else "")
        raise ConfigError(f"{path}: nothing is stored, since {len(faults):,} of its lines are no decisions: {some}")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """Yield a file's lines, none much longer than what is allowed."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path}: is larger than {MOST_BYTES >> 20} MB: that is no file of decisions")
        with path.open("rb") as file:
            first = file.readline(MOST_LINE + 1)
            yield first.removeprefix(BOM)
            while line := file.readline(MOST_LINE + 1):
                yield line
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def _checked(line: bytes) -> bytes:
    if len(line) > MOST_LINE:
        raise ValueError(f"is longer than {MOST_LINE:,} bytes")
    return line


def parse_decisions(body: bytes) -> list[Decision]:
    """Return the decisions of a JSON list.

    Raises:
        ValueError: one of them is none, or the body is no list of them.
    """
    now = datetime.now(UTC)
    listed = from_json(body)
    if not isinstance(listed, list) or len(listed) > MOST_SENT:
        raise ValueError(f"a list of at most {MOST_SENT:,} decisions is wanted")
    found: list[Decision] = []
    for number, one in enumerate(listed, 1):
        try:
            found.append(parse_decision(to_json(one), now=now))
        except ValueError as error:
            raise ValueError(f"decision {number}: {error}") from error
    return found


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """Be decisions, apart by whether there is what they are about."""

    known: list[Decision] = field(default_factory=list[Decision])
    unknown: list[Decision] = field(default_factory=list[Decision])
    """Nothing in the version has their key."""
    wordless: list[Decision] = field(default_factory=list[Decision])
    """Edits about a pair: it has no texts of its own."""


def sort_decisions(build: Build, decisions: Sequence[Decision]) -> Sorted:
    """Look the keys up in the settled tables of a build."""
    keys = list({one.key for one in decisions})
    return sort_by_keys(decisions, _live(build, PreferenceRow, keys), _live(build, PairRow, keys))


def sort_by_keys(decisions: Sequence[Decision], preferences: Collection[str], pairs: Collection[str]) -> Sorted:
    """Return decisions apart, the keys of preferences and pairs that there are being known."""
    found = Sorted()
    for one in decisions:
        if one.key in preferences or (one.key in pairs and one.verdict != "edit"):
            found.known.append(one)
        else:
            (found.wordless if one.key in pairs else found.unknown).append(one)
    return found


def _live(build: Build, row_type: type[PreferenceRow] | type[PairRow], keys: list[str]) -> set[str]:
    tables = [planned.stage.name for planned in build.planned if planned.stage.writes is row_type]
    return {key for table in tables for _, _, key in build.ledger.where(table, keys)}
