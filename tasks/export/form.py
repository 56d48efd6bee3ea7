"""Forms of export: name, limits, writing of rows, and reading them back.

A file of ``tasks.export.forms`` ends with its ``FORM``; the command line's list of formats follows
from ``tasks.export.formats``. ``IMAGE_MARK`` marks an image in a text; if a prompt has none, the
images go before its first words, as in training.
"""

import io
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from pairwright.schemas.control_tokens import refuse_control_in_prompt, refuse_conversation
from pairwright.schemas.errors import wrap_errors
from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.tally_rows import ExportedDataset, Tally
from pairwright.tasks.images.decode import decode_rgb

IMAGE_MARK = "<image>"
SPLITS = ("train", "validation", "test")
BYTES_PER_FILE = 500 << 20
MEDIA = (IMAGE_MARK, "<video>", "<audio>")
"""Texts that readers take for marks of media."""
SHAREGPT_ROLES = {"user": "human", "assistant": "gpt", "system": "system"}
ROLES = {name: role for role, name in SHAREGPT_ROLES.items()}
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
"""Rows and bytes of each non-empty split; a form may have several files per split, each with its
own name."""


class UnheldError(Exception):
    """Row that a form cannot hold: a short constant phrase, by which such rows are counted."""


class BrokenRowError(Exception):
    """Row that would not train, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Settings of an export."""

    name: str
    """Name of the dataset: that of the target folder."""
    model: str = ""
    """Model to ask; only for requests."""
    bytes_per_file: int = BYTES_PER_FILE


class Files(Protocol):
    """Files of one name, such as a split; made with the first record."""

    rows: int
    size_bytes: int
    """Complete once closed."""

    def write(self, record: Any) -> None:
        """Write a record, to the next file if this one is full."""

    def close(self) -> None:
        """Complete the files."""


class RowWriter:
    """Writer of rows: each becomes records, which go to the files that they name."""

    def __init__(
        self,
        to_records: Callable[[PreferenceRow], Iterable[tuple[str, Any]]],
        open_files: Callable[[str], Files],
        names: Iterable[str] = (),
    ) -> None:
        """Set the functions that write; ``names`` come first in reports."""
        self._to_records = to_records
        self._open_files = open_files
        self._files = {name: open_files(name) for name in names}

    def add(self, row: PreferenceRow) -> None:
        """Write a row; ``UnheldError``: the form cannot hold it, and nothing was written."""
        for name, record in self._to_records(row):
            if name not in self._files:
                self._files[name] = self._open_files(name)
            self._files[name].write(record)

    def sizes(self) -> Sizes:
        """Return rows and bytes written; complete once closed."""
        sizes: dict[str, tuple[int, int]] = {}
        for name, files in self._files.items():
            if files.rows:
                sizes[name] = (files.rows, files.size_bytes)
        return sizes

    def close(self) -> None:
        """Complete all files."""
        with ExitStack() as stack:
            for files in self._files.values():
                stack.callback(files.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of export."""

    name: str
    """Name for ``--format``."""
    about: str
    """Description and consumer, in one line."""
    cannot: str
    """Data that it cannot hold, in sentences."""
    opens: Callable[[Path, ExportSettings], AbstractContextManager[RowWriter]]
    """``opens(folder, setting)`` returns a writer into an empty folder, which completes its files
    on exit."""
    check: Callable[[Path, Any], Iterator[str]]
    """Function that reads a folder back as its consumer does, with a processor, and yields the name
    of each row; ``BrokenRowError``: a row would not train."""
    use: str
    """Instructions for its consumer, Markdown. ``FOLDER`` and ``NAME`` stand for the folder and the
    dataset's name."""
    owns: frozenset[str]
    """Names of the files and folders that it makes."""
    reads: str = "preferences"
    """Name of its table; of comparisons it has the conversations."""
    card: Callable[[Path, ExportedDataset, Tally], str] | None = None
    """Function that returns its README.md and writes the images shown there; ``None``: the common
    one."""
    needs_model: bool = False
    """Whether its rows name a model."""
    knows_pairs: bool = False
    """Whether it is given what is known of each row's pair: regions and edits (``PairedRow``)."""
    packages: tuple[str, ...] = ()
    """Packages of its consumer that ``check`` imports; TRL's collator needs a processor."""


def ending_of(data: bytes) -> str:
    """Return the extension of an image's file name, by its first bytes."""
    for signature, ending in SIGNATURES:
        if data.startswith(signature):
            return ending
    return "img"


def name_images(row: PreferenceRow) -> dict[str, bytes]:
    """Return a row's images by their file names: "image1.png", ..., "rejected1.png", ..."""
    images: dict[str, bytes] = {}
    for number, image in enumerate(row.images, start=1):
        images[f"image{number}.{ending_of(image)}"] = image
    for number, image in enumerate(row.rejected_images, start=1):
        images[f"rejected{number}.{ending_of(image)}"] = image
    return images


def plain_name(name: str) -> str:
    """Return a name that other programs accept: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^\w-]+", "-", name, flags=re.ASCII).strip("-") or "dataset"


def mark_images(row: PreferenceRow, marks: Sequence[str] = MEDIA) -> list[Turn]:
    """Return the prompt's turns with a mark per image; ``UnheldError`` if that is impossible.

    Readers count these marks, so a text that contains one is refused: it would show another image.
    """
    if not row.chosen.strip():
        raise UnheldError("no chosen text")
    count = _count_marks(row, marks)
    turns = list(row.prompt)
    if not roles_alternate([turn.role for turn in turns]):
        raise UnheldError("user and assistant do not take turns in the prompt")
    if not count:
        first = int(turns[0].role == "system")
        text = IMAGE_MARK * len(row.images) + turns[first].text
        turns[first] = Turn(role="user", text=text)
    return turns


def _count_marks(row: PreferenceRow, marks: Sequence[str]) -> int:
    """Return the number of image marks in the prompt; ``UnheldError`` for any other mark."""
    prompt = [turn.text for turn in row.prompt]
    count = sum(text.count(IMAGE_MARK) for text in prompt)
    if count not in (0, len(row.images)):
        raise UnheldError(f"the prompt has {IMAGE_MARK} in its words")
    other_marks = [mark for mark in marks if mark != IMAGE_MARK]
    if any(_has_mark(text, other_marks) for text in prompt):
        raise UnheldError("the prompt has the mark of a video or a sound in its words")
    if _has_mark(row.chosen, marks) or _has_mark(row.rejected, marks):
        raise UnheldError("an answer has the mark of an image, a video or a sound in its words")
    return count


def _has_mark(text: str, marks: Iterable[str]) -> bool:
    return any(mark in text for mark in marks)


def roles_alternate(roles: Sequence[str]) -> bool:
    """Return whether user and assistant alternate, the user first and last.

    A system message may come first.
    """
    dialogue = roles[1:] if roles[:1] == ["system"] else roles
    if len(dialogue) % 2 == 0:
        return False
    asking = set(dialogue[::2])
    answering = set(dialogue[1::2])
    return asking == {"user"} and not answering - {"assistant"}


def rejected_text(row: PreferenceRow) -> str:
    """Return the rejected text; ``UnheldError``: there is none, or it equals the chosen text."""
    if not row.rejected.strip():
        raise UnheldError("no rejected text")
    if row.rejected == row.chosen:
        raise UnheldError("the rejected text is the chosen one")
    return row.rejected


def split_parts(text: str) -> list[dict[str, str]]:
    """Return a text with marks of images as the parts of a message, with a slot for each image."""
    parts: list[dict[str, str]] = []
    for number, piece in enumerate(text.split(IMAGE_MARK)):
        if number:
            parts.append({"type": "image"})
        if piece:
            parts.append({"type": "text", "text": piece})
    return parts


def require(condition: object, why: str) -> None:
    """Raise ``BrokenRowError`` unless a condition on a row is true."""
    if not condition:
        raise BrokenRowError(why)


@contextmanager
def wrap_row_errors(where: str) -> Generator[None]:
    """Turn any exception of a check into ``BrokenRowError`` with the row's name."""

    def name_row(error: Exception) -> BrokenRowError:
        if isinstance(error, BrokenRowError):
            return BrokenRowError(f"{where}: {error}")
        return BrokenRowError(f"{where}: {type(error).__name__}: {error}")

    with wrap_errors(name_row):
        yield


def refuse_control_rows(row: PreferenceRow) -> None:
    """Raise ``UnheldError`` for a row with a control token or character in a text."""
    answers = (row.chosen, row.rejected, *(negative.text for negative in row.negatives))
    refused = refuse_conversation(row.prompt, answers)
    if refused is None:
        return
    if refused.detail in MEDIA:
        raise UnheldError("a text has the mark of an image, a video or a sound in its words")
    raise UnheldError(f"{refused.reason} in a text")


def check_image(data: bytes) -> None:
    """Check that Pillow alone, as consumers call it, shows the pixels that models saw."""
    with Image.open(io.BytesIO(data)) as image:
        shown = np.asarray(image.convert("RGB"))
    require(
        np.array_equal(shown, decode_rgb(data)),
        "an image shows other pixels to programs that open it with Pillow",
    )


def check_turns(turns: Sequence[tuple[str, str]], images: int) -> None:
    """Check a prompt of roles and texts: the order of its turns, and a mark per image."""
    roles = [role for role, _ in turns]
    require(roles_alternate(roles), f"turns of user and assistant do not alternate: {roles}")
    for _, text in turns:
        check_control(text, "prompt")
    marks = sum(text.count(IMAGE_MARK) for _, text in turns)
    require(marks == images, f"{marks} {IMAGE_MARK} for {images} images")


def check_answer(answer: Any, what: str) -> None:
    """Check that an answer is a non-blank text without marks of images."""
    require(isinstance(answer, str) and answer.strip(), f"no {what} text")
    require(IMAGE_MARK not in answer, f"the {what} text has {IMAGE_MARK} in its words")
    check_control(answer, what)


def check_control(text: str, what: str) -> None:
    """Check that a text has no control token or character but marks of images."""
    refused = refuse_control_in_prompt(text)
    if refused:
        raise BrokenRowError(f"the {what} text has {refused.reason} ({refused.detail})")
