"""Rows of an export as a trainer reads them back: a prompt with images, and answers.

A form's ``check`` yields a ``Sample`` per row, and raises ``BrokenRowError`` for the first row that its consumer would
refuse, skip or misread.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from pairwright.tasks.store.images import RefusedImageError, decode_rgb

PLACE = "<image>"
Message = Mapping[str, Any]


class BrokenRowError(Exception):
    """Row that would not train, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Row as a trainer sees it."""

    where: str
    """Name of the row: its file and line, or its key."""
    messages: Sequence[Message]
    """Prompt in the form of chat templates, with a part per image."""
    images: Sequence[Image.Image]
    answers: Sequence[str]
    """Chosen and rejected answer; of a conversation, the last answer."""


def need(*, true: bool, where: str, why: str) -> None:
    """Raise ``BrokenRowError`` unless a condition on a row is true."""
    if not true:
        raise BrokenRowError(f"{where}: {why}")


@contextmanager
def naming_row(where: str, what: str) -> Generator[None]:
    """Turn any exception of a consumer's code into ``BrokenRowError``."""
    try:
        yield
    except BrokenRowError:
        raise
    except Exception as error:
        raise BrokenRowError(f"{where}: {what}: {type(error).__name__}: {error}") from error


def decoded(data: bytes, where: str) -> Image.Image:
    """Return a decoded image."""
    try:
        return Image.fromarray(decode_rgb(data))
    except RefusedImageError as error:
        raise BrokenRowError(f"{where}: an image cannot be decoded: {error}") from error


def opened_files(folder: Path, names: Any, where: str) -> list[Image.Image]:
    """Return the images of these names, below the folder."""
    need(
        true=isinstance(names, list) and all(isinstance(name, str) for name in names), where=where, why="no file names"
    )
    shown: list[Image.Image] = []
    for name in names:
        path = (folder / name).resolve()
        need(true=path.is_relative_to(folder.resolve()), where=where, why=f"{name} is outside the folder")
        need(true=path.is_file(), where=where, why=f"no file {name}")
        shown.append(decoded(path.read_bytes(), where))
    return shown


def as_parts(text: str) -> list[dict[str, str]]:
    """Return a text with marks of images as the parts of a message, with a slot for each image."""
    parts: list[dict[str, str]] = []
    for number, piece in enumerate(text.split(PLACE)):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": piece}] if piece else []
    return parts


def as_messages(turns: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return roles and texts with marks of images as messages."""
    return [{"role": role, "content": as_parts(text)} for role, text in turns]


def check_turns(turns: Sequence[tuple[str, str]], images: int, where: str) -> None:
    """Check a prompt of roles ("user", "assistant", "system") and texts: the order of turns, a mark per image."""
    roles = [role for role, _ in turns]
    need(true=bool(roles), where=where, why="no messages")
    talk = roles[1:] if roles[0] == "system" else roles
    is_even = set(talk[::2]) == {"user"} and not set(talk[1::2]) - {"assistant"}
    need(true=is_even and len(talk) % 2 == 1, where=where, why=f"turns of user and assistant do not alternate: {roles}")
    marks = sum(text.count(PLACE) for _, text in turns)
    need(true=marks == images, where=where, why=f"{marks} {PLACE} for {images} images")


def check_answer(answer: Any, where: str, what: str) -> str:
    """Return an answer after checking that it is a non-blank text without marks of images."""
    need(true=isinstance(answer, str) and bool(answer.strip()), where=where, why=f"no {what} text")
    need(true=PLACE not in answer, where=where, why=f"the {what} text has {PLACE} in its words")
    return answer
