"""Read lists of names and of boxes in the answers of served models that see an image.

The envelope and what surrounds an answer are ``read_response``'s. Here: JSON in any of the usual
forms, Qwen-VL's boxes (``bbox_2d`` and ``label``) among them, and Qwen2-VL's own tokens for boxes.
Answers are untrusted: names are checked as all texts are, numbers must be finite.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.serving.chat import Answer
from pairwright.tasks.serving.read_response import refuse_text
from pairwright.tasks.texts.split_sentences import find_json

NO_LIST = "no list of things"
NO_BOXES = "no list of boxes"
MAX_ENTRIES = 200
MAX_CHARACTERS = 100
"""Longest name that is read."""
BULLET = re.compile(r"^[-*•\d.)\s]+")
BOX_NAMES = ("bbox_2d", "bbox", "box_2d", "box", "bounding_box")
LABEL_NAMES = ("label", "name", "object", "category")
TOKENS = re.compile(
    r"(?P<label>\w[^()<>{}\[\]|\n]{0,99})(?:<\|\w{1,30}\|>)*\s*"
    r"\((?P<x0>\d{1,5}),\s*(?P<y0>\d{1,5})\),\s*\((?P<x1>\d{1,5}),\s*(?P<y1>\d{1,5})\)"
)
"""Qwen2-VL's form, with its special tokens or without: dog(120,80),(460,700)."""


class NamedBox(NamedTuple):
    """Box in an answer, in the answer's own units."""

    label: str
    corners: tuple[float, float, float, float]
    """Left, top, right, bottom."""


def read_names(answer: Answer) -> tuple[str, ...] | RefusedText:
    """Return the distinct names in an answer, in its order; an empty list is a refusal, too."""
    if answer.refused:
        return answer.refused
    listed = _find_list(find_json(answer.text))
    if listed is None:
        refused = refuse_text(answer.text)
        if refused:
            return refused
        listed = _split_lines(answer.text)
    names: dict[str, None] = {}
    for entry in listed[:MAX_ENTRIES]:
        name = _read_name(entry)
        if name and not refuse_text(name):
            names[name] = None
    return tuple(names) or RefusedText(NO_LIST, answer.text[:80])


def _find_list(content: Any) -> list[Any] | None:
    """Return the list in a JSON value: itself, or the only one in an object."""
    if isinstance(content, list):
        return content
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
        return lists[0] if len(lists) == 1 else None
    return None


def _split_lines(text: str) -> list[str]:
    """Return the items of a list in plain text: lines, or a line with commas; none of prose."""
    lines = [BULLET.sub("", line).strip(" .") for line in text.splitlines()]
    items = [line for line in lines if line]
    if len(items) == 1:
        items = [item.strip(" .") for item in items[0].split(",")]
    return items if all(len(item.split()) <= 6 for item in items) else []


def _read_name(entry: Any) -> str:
    """Return the name in an entry: a text, or an object with a label; empty: none."""
    if isinstance(entry, dict):
        entry = next((entry[key] for key in LABEL_NAMES if key in entry), "")
    if not isinstance(entry, str) or len(entry) > MAX_CHARACTERS:
        return ""
    return " ".join(entry.split())


def read_boxes(answer: Answer) -> tuple[NamedBox, ...] | RefusedText:
    """Return the boxes in an answer; none where it lists none, a refusal where it has no list."""
    if answer.refused:
        return answer.refused
    matches = list(TOKENS.finditer(answer.text))[:MAX_ENTRIES]
    if matches:
        return tuple(_read_tokens(match) for match in matches)
    content = find_json(answer.text)
    if isinstance(content, dict) and any(key in content for key in BOX_NAMES):
        content = [content]
    listed = _find_list(content)
    if listed is None:
        return refuse_text(answer.text) or RefusedText(NO_BOXES, answer.text[:80])
    boxes = tuple(_read_entries(listed[:MAX_ENTRIES]))
    if listed and not boxes:
        return RefusedText(NO_BOXES, answer.text[:80])
    return boxes


def _read_tokens(match: re.Match[str]) -> NamedBox:
    x0, y0, x1, y1 = (float(match[name]) for name in ("x0", "y0", "x1", "y1"))
    return NamedBox(" ".join(match["label"].split()), (x0, y0, x1, y1))


def _read_entries(entries: Sequence[Any]) -> Iterator[NamedBox]:
    """Yield the boxes that are whole: a label, and four numbers in order."""
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        label = _read_name(dict(entry))
        numbers = next((entry[key] for key in BOX_NAMES if key in entry), None)
        corners = _read_corners(numbers)
        if label and corners:
            yield NamedBox(label, corners)


def _read_corners(numbers: Any) -> tuple[float, float, float, float] | None:
    """Return left, top, right and bottom; ``None``: no box."""
    if not isinstance(numbers, list) or len(numbers) != 4:
        return None
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        return None
    x0, y0, x1, y1 = map(float, numbers)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None
