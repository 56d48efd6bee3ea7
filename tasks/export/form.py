"""What a form of export is: its name, what it cannot hold, and how rows are written in it.

A file of ``tasks.export.forms`` ends with its ``FORM``; the command line's list of formats follows from the table in
``tasks.export.formats``. What all forms have in common is in ``tasks.export.export_rows``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.sample import Sample
from pairwright.tasks.export.tally_rows import About, Tally

SPLITS = ("train", "validation", "test")
BYTES_PER_FILE = 500 << 20
Sizes = Mapping[str, tuple[int, int]]
"""Rows and bytes of each split that has any; a form may have several files per split, each with its own name."""


class UnheldError(Exception):
    """Say that a form cannot hold a row: a short constant phrase, by which such rows are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Say how an export is written."""

    name: str
    """Of the dataset, as its new folder is called."""
    model: str = ""
    """Who is asked; only requests name one."""
    bytes_per_file: int = BYTES_PER_FILE


def plain_name(name: str) -> str:
    """Return a name as other programs take it: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-") or "dataset"


class RowWriter(Protocol):
    """Write rows into one folder."""

    def add(self, row: PreferenceRow) -> None:
        """Write a row.

        Raises:
            UnheldError: the form cannot hold it; nothing of it was written.
        """
        ...

    def sizes(self) -> Sizes:
        """Return what was written; complete once closed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Declare one form of export."""

    name: str
    """What ``--format`` takes."""
    about: str
    """What it is and who reads it, in one line for people."""
    cannot: str
    """What it cannot hold, in sentences."""
    opens: Callable[[Path, Setting], AbstractContextManager[RowWriter]]
    """``opens(folder, setting)``, when it is entered, gives what writes into an empty folder, and completes its files
    when it is left."""
    check: Callable[[Path, Any], Iterator[Sample]]
    """``check(folder, processor)`` reads its files back as its consumer does, and yields their rows; it raises
    ``BrokenRowError`` at the first that would not train."""
    use: str
    """Markdown: how its reader is started. ``FOLDER`` and ``NAME`` stand for the folder and the dataset's name."""
    owns: frozenset[str]
    """Names of files and folders that it makes in its folder."""
    reads: Literal["preferences", "conversations"] = "preferences"
    card: Callable[[About, Tally], str] | None = None
    """Returns its README.md; None: the one that most forms have."""
    beside: Callable[[Path, About, Tally], None] | None = None
    """Writes further files about it into its folder."""
    needs_model: bool = False
    """Whether its rows name a model."""
    collates: bool = False
    """Whether ``check`` runs its consumer's own code, which needs a processor."""
