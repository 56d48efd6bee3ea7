"""What a form of export is: its name, what it cannot hold, how rows are written in it, and how they are read back.

A file of ``tasks.export.forms`` ends with its ``FORM``; the command line's list of formats follows from
``tasks.export.formats``. ``PLACE`` stands for an image in a text; where a prompt has none, the images go before its
first words, as they do in training.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.sample import PLACE, Sample
from pairwright.tasks.export.tally_rows import About, Tally

SPLITS = ("train", "validation", "test")
BYTES_PER_FILE = 500 << 20
MEDIA = (PLACE, "<video>", "<audio>")
"""What readers take for a place of something."""
SHAREGPT_ROLES = {"user": "human", "assistant": "gpt", "system": "system"}
SIGNATURES = (
    (b"\x89PNG", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"RIFF", "webp"),
)
Sizes = Mapping[str, tuple[int, int]]
"""Rows and bytes of each split that has any; a form may have several files per split, each with its own name."""


class UnheldError(Exception):
    """A form cannot hold a row: a short constant phrase, by which such rows are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How an export is written."""

    name: str
    """Of the dataset, as its new folder is called."""
    model: str = ""
    """Who is asked; only requests name one."""
    bytes_per_file: int = BYTES_PER_FILE


class Files(Protocol):
    """Files of one name, such as a split's; none is made before the first record."""

    rows: int
    size_bytes: int
    """Complete once closed."""

    def write(self, record: Any) -> None:
        """Write a record, into the next file where this one is full."""
        ...

    def close(self) -> None:
        """Complete the files."""
        ...


class RowWriter:
    """Writer of rows: each becomes records, and these go to the files that they name."""

    def __init__(
        self,
        to_records: Callable[[PreferenceRow], Iterable[tuple[str, Any]]],
        open_files: Callable[[str], Files],
        names: Iterable[str] = (),
    ) -> None:
        """Write by these functions; ``names`` are those that come first in what is told, whatever is written first."""
        self._to_records, self._open_files = to_records, open_files
        self._files = {name: open_files(name) for name in names}

    def add(self, row: PreferenceRow) -> None:
        """Write a row; ``UnheldError``: the form cannot hold it, and nothing of it was written."""
        for name, record in self._to_records(row):
            if name not in self._files:
                self._files[name] = self._open_files(name)
            self._files[name].write(record)

    def sizes(self) -> Sizes:
        """Return what was written; complete once closed."""
        return {name: (files.rows, files.size_bytes) for name, files in self._files.items() if files.rows}

    def close(self) -> None:
        """Complete all files."""
        with ExitStack() as stack:
            for files in self._files.values():
                stack.callback(files.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of export."""

    name: str
    """What ``--format`` takes."""
    about: str
    """What it is and who reads it, in one line for people."""
    cannot: str
    """What it cannot hold, in sentences."""
    opens: Callable[[Path, Setting], AbstractContextManager[RowWriter]]
    """``opens(folder, setting)`` gives what writes into an empty folder, and completes its files when it is left."""
    check: Callable[[Path, Any], Iterator[Sample]]
    """Reads a folder back as its consumer does, with a processor; ``BrokenRowError``: a row would not train."""
    use: str
    """Markdown: how its reader is started. ``FOLDER`` and ``NAME`` stand for the folder and the dataset's name."""
    owns: frozenset[str]
    """Names of files and folders that it makes in its folder."""
    reads: str = "preferences"
    """"preferences", "conversations" or the name of a table."""
    card: Callable[[Path, About, Tally], str] | None = None
    """Returns its README.md, and writes what that shows into the folder; None: the one that most forms have."""
    needs_model: bool = False
    """Whether its rows name a model."""
    collates: bool = False
    """Whether ``check`` runs its consumer's own code, which needs a processor."""


def ending_of(data: bytes) -> str:
    """Return the ending of an image's file name, by how its bytes begin."""
    return next((ending for start, ending in SIGNATURES if data.startswith(start)), "img")


def name_images(row: PreferenceRow) -> dict[str, bytes]:
    """Return a row's images by the names of their files: "image1.png", ..., "rejected1.png", ..."""
    images = {f"image{number}": image for number, image in enumerate(row.images, start=1)}
    images |= {f"rejected{number}": image for number, image in enumerate(row.rejected_images, start=1)}
    return {f"{name}.{ending_of(image)}": image for name, image in images.items()}


def plain_name(name: str) -> str:
    """Return a name as other programs take it: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-") or "dataset"


def place_images(row: PreferenceRow, marks: Sequence[str] = MEDIA) -> list[Turn]:
    """Return the prompt's turns with a ``PLACE`` per image; ``UnheldError`` where that cannot be.

    Readers count these marks, so a text that has one of its own is not held: it would show another image.
    """
    if not row.chosen.strip():
        raise UnheldError("no chosen text")
    found = sum(turn.text.count(PLACE) for turn in row.prompt)
    if found not in (0, len(row.images)):
        raise UnheldError(f"the prompt has {PLACE} in its words")
    if any(mark in turn.text for turn in row.prompt for mark in marks if mark != PLACE):
        raise UnheldError("the prompt has the mark of a video or a sound in its words")
    if any(mark in text for text in (row.chosen, row.rejected) for mark in marks):
        raise UnheldError("an answer has the mark of an image, a video or a sound in its words")
    turns = list(row.prompt)
    first = int(bool(turns) and turns[0].role == "system")
    roles = [turn.role for turn in turns[first:]]
    if len(roles) % 2 != 1 or set(roles[::2]) != {"user"} or set(roles[1::2]) - {"assistant"}:
        raise UnheldError("user and assistant do not take turns in the prompt")
    if not found:
        turns[first] = Turn(role="user", text=PLACE * len(row.images) + turns[first].text)
    return turns


def rejected_text(row: PreferenceRow) -> str:
    """Return what a text is preferred to; ``UnheldError``: nothing, or the same text."""
    if not row.rejected.strip():
        raise UnheldError("no rejected text")
    if row.rejected == row.chosen:
        raise UnheldError("the rejected text is the chosen one")
    return row.rejected
