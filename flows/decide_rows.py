"""Take what people decided about a dataset's rows into it, and say what is decided; exports and trainings follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pairwright.flows.version import Version
from pairwright.schemas.decisions import Decision, Decisions
from pairwright.tasks.store.decisions import read_decisions, write_decisions
from pairwright.tasks.store.take_decisions import Sorted, read_decision_file, sort_decisions


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Decisions that were stored, and how many there are now."""

    stored: int
    refused: Sorted
    """What was not stored."""
    now: Decisions


def decide_rows(version: Version, file: str) -> Decided:
    """Store the decisions of a file about rows that a version has.

    Raises:
        ConfigError: a line of the file is no decision; nothing is stored then.
        StoreError: a table cannot be read or written.
    """
    folder, found = version.folder, read_decision_file(Path(file))
    with version.settled() as (build, _):
        apart = sort_decisions(build, found)
    write_decisions(folder, apart.known)
    return Decided(stored=len(apart.known), refused=apart, now=read_decisions(folder))


def say_refused(apart: Sorted) -> list[str]:
    """Return why decisions were not stored, a line for each reason."""
    return [
        *_say(apart.unknown, "about rows that this version has not (made anew since? Then look at them again)"),
        *_say(apart.wordless, "that edit a pair without a preference, which has no texts of its own"),
    ]


def _say(decisions: Sequence[Decision], why: str) -> list[str]:
    some = ", ".join(one.key for one in decisions[:3]) + (", ..." if decisions[3:] else "")
    return [f"{len(decisions):,} {why}: {some}"] if decisions else []
