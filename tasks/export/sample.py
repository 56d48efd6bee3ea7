"""What a row of an export is to a trainer once it is read back: a prompt with images, and answers.

Whoever reads rows back yields a ``Sample`` each, and raises ``BrokenRowError`` for the first one that its consumer
would refuse, skip or read as something else.
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
    """A row would not train: which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row as a trainer sees it."""

    where: str
    """Names the row: its file and line, or its key."""
    messages: Sequence[Message]
    """The prompt in the form that chat templates take, a part per image."""
    images: Sequence[Image.Image]
    answers: Sequence[str]
    """Chosen, rejected; a conversation has its last one."""


def need(*, true: bool, where: str, why: str) -> None:
    """Raise ``BrokenRowError`` unless something is true of a row."""
    if not true:
        raise BrokenRowError(f"{where}: {why}")


@contextmanager
def naming_row(where: str, what: str) -> Generator[None]:
    """Turn whatever a consumer's code raises about a row into ``BrokenRowError``."""
    try:
        yield
    except BrokenRowError:
        raise
    except Exception as error:
        raise BrokenRowError(f"{where}: {what}: {type(error).__name__}: {error}") from error


def decoded(data: bytes, where: str) -> Image.Image:
    """Return an image."""
    try:
        return Image.fromarray(decode_rgb(data))
    except RefusedImageError as error:
        raise BrokenRowError(f"{where}: an image does not decode: {error}") from error


def opened_files(folder: Path, names: Any, where: str) -> list[Image.Image]:
    """Return the images of these names, below the folder."""
    need(
        true=isinstance(names, list) and all(isinstance(name, str) for name in names), where=where, why="no file names"
    )
    shown: list[Image.Image] = []
    for name in names:
        path = (folder / name).resolve()
        need(true=path.is_relative_to(folder.resolve()), where=where, why=f"{name} is outside of the folder")
        need(true=path.is_file(), where=where, why=f"there is no file {name}")
        shown.append(decoded(path.read_bytes(), where))
    return shown


def as_parts(text: str) -> list[dict[str, str]]:
    """Return a text with marks of images as the parts of a message: a slot where each image is."""
    parts: list[dict[str, str]] = []
    for number, piece in enumerate(text.split(PLACE)):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": piece}] if piece else []
    return parts


def as_messages(turns: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return roles and texts with marks of images as messages."""
    return [{"role": role, "content": as_parts(text)} for role, text in turns]


def check_turns(turns: Sequence[tuple[str, str]], images: int, where: str) -> None:
    """Check a prompt of roles ("user", "assistant", "system") and texts: turns, their order, a mark per image."""
    roles = [role for role, _ in turns]
    need(true=bool(roles), where=where, why="no messages")
    talk = roles[1:] if roles[0] == "system" else roles
    is_even = set(talk[::2]) == {"user"} and not set(talk[1::2]) - {"assistant"}
    need(true=is_even and len(talk) % 2 == 1, where=where, why=f"user and assistant do not take turns: {roles}")
    marks = sum(text.count(PLACE) for _, text in turns)
    need(true=marks == images, where=where, why=f"{marks} {PLACE} for {images} images")


def check_answer(answer: Any, where: str, what: str) -> str:
    """Return an answer that is a text with words and without marks of images."""
    need(true=isinstance(answer, str) and bool(answer.strip()), where=where, why=f"no {what} text")
    need(true=PLACE not in answer, where=where, why=f"the {what} text has {PLACE} in its words")
    return answer
