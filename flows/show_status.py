"""Look at what a dataset has done and still owes, for people, scripts and notebooks."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairwright.flows.say_outcome import say_held, say_owed
from pairwright.flows.version import open_present
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import read_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.snapshot import latest_snapshot

NUMBERS = {"in": "of", "ok": "ok", "dropped": "dropped", "failed": "failed", "pending": "pending", "rows": "rows"}


@dataclass(frozen=True, kw_only=True)
class Status:
    """Status of a dataset: per stage what is done, dropped, failed and owed, and why."""

    dataset: str
    version: int
    """The newest version's number; 0: there is none."""
    counts: Sequence[Counts]
    held: Sequence[str]
    """Why the last build was not published, and what to do; empty: it was."""
    damaged: Sequence[str] = ()
    """A message for each damaged part, where that was looked for."""

    @property
    def owed(self) -> int:
        """Return how many rows are owed."""
        return sum(count.failed + count.pending for count in self.counts)

    @property
    def owing(self) -> list[str]:
        """Return a line for each stage that owes rows: how many, why, and the command that retries only those."""
        return list(say_owed(self.counts, self.dataset))

    def as_json(self) -> dict[str, Any]:
        """Return what ``pairwright status --json`` prints."""
        stages = [count.as_json() for count in self.counts]
        return {"dataset": self.dataset, "snapshot": self.version, "stages": stages, "held": list(self.held)}

    def __repr__(self) -> str:
        return "\n".join(
            [
                _title(self.dataset, self.version),
                *(_line(count) for count in self.counts if count.of),
                *self.owing,
                *self.held,
            ]
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in (*self.owing, *self.held))
        return show_stages(self.dataset, self.version, self.counts) + notes


def look_at_status(folder: Folder, *, verify: bool = False) -> Status:
    """Count every stage of a dataset as it is now, without running anything.

    Args:
        folder: the dataset.
        verify: whether every part is read and the damaged ones are named.

    Raises:
        ConfigError: there is no dataset.
        StoreError: a part cannot be read.
    """
    present, snapshot = open_present(folder), latest_snapshot(folder)
    number, damaged = snapshot.number if snapshot else 0, list[str]()
    counts = present.stated_counts(snapshot) if snapshot and not verify else None
    if counts is None:
        with present.settled() as (build, stages):
            counts = [count for _, count in stages]
            damaged = list(build.damage()) if verify else []
    held = list(say_held(read_verdict(folder), number, folder.url))
    return Status(dataset=folder.url, version=number, counts=counts, held=held, damaged=damaged)


def show_stages(dataset: str, version: int, counts: Sequence[Counts]) -> str:
    """Return the table of the stages with input as HTML."""
    head = "".join(f"<th>{name}</th>" for name in ("stage", *NUMBERS, "most frequent reason"))
    rows = "".join(_row(count) for count in counts if count.of)
    title = html.escape(_title(dataset, version))
    return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(count: Counts) -> str:
    numbers = "".join(f'<td style="text-align:right">{getattr(count, name):,}</td>' for name in NUMBERS.values())
    reason = f'<td style="text-align:left;padding-left:12px">{html.escape(_reason(count))}</td>'
    return f"<tr><td>{html.escape(count.stage)}</td>{numbers}{reason}</tr>"


def _line(count: Counts) -> str:
    numbers = " ".join(f"{word}={getattr(count, name):,}" for word, name in NUMBERS.items())
    return f"  {count.stage}: {numbers} {_reason(count)}".rstrip()


def _reason(count: Counts) -> str:
    return next((f"{reason} ({number:,})" for reason, number in count.reasons.items()), "")


def _title(dataset: str, version: int) -> str:
    return f"{dataset}, version {version}" if version else f"{dataset}, not yet a version"
