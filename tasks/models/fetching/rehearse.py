"""Find out which files models would look for, without having them: what `pairwright fetch` announces.

Stages say what they need only by looking for it (their ``pin``). In a rehearsal each look is noted, and an empty file
in a folder that is deleted afterwards stands in for what is missing, so that the stage goes on to its next file. What a
stage makes of such files counts for nothing.
"""

import contextlib
import tempfile
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Notes:
    """Be what was looked for, in order."""

    folder: Path
    files: list[object] = field(default_factory=list)


_notes: ContextVar[Notes | None] = ContextVar("notes", default=None)


@contextlib.contextmanager
def rehearsing() -> Generator[list[object]]:
    """Yield the list to which each file that is looked for in the block is added."""
    with tempfile.TemporaryDirectory(prefix="pairwright-") as folder:
        token = _notes.set(Notes(Path(folder)))
        try:
            notes = _notes.get()
            yield notes.files if notes else []
        finally:
            _notes.reset(token)


def note(file: object, *names: str) -> Path | None:
    """Note a file, in a rehearsal, and return an empty one of the first name, with the others beside it; else nothing.

    Args:
        file: what is looked for; it is in the list afterwards.
        names: what stands in for it.
    """
    notes = _notes.get()
    if notes is None:
        return None
    if file not in notes.files:
        notes.files.append(file)
    folder = notes.folder / str(notes.files.index(file))
    for name in reversed(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder / names[0]
