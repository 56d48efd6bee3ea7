"""Read a summary of commonalities and differences (CaD) into its parts, or refuse it with a reason.

Follows the layout of paper 003's published summaries, tolerantly: axes may be missing, merged or unlabelled,
commonalities a list or prose, words singular, plural or "(s)". Nothing is published about refusing summaries: the
reasons are ours.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Axis = Literal["object types", "attributes", "counts", "actions", "locations", "relative positions"]
AXES: tuple[Axis, ...] = get_args(Axis)
Reason = Literal["cut off", "off the layout", "no commonalities", "no differences"]

HEADING = r"(?:^|\n|(?<=[.!?])\s)[ \t#*_]*(?:{})(?:\(s\))?[ \t*_]*(?::[*_]*|(?=\n))"
COMMON = re.compile(HEADING.format("commonalit(?:y|ies)|similarit(?:y|ies)"), re.IGNORECASE)
DIFFERENT = re.compile(HEADING.format("differences?"), re.IGNORECASE)
END = re.compile(r"[.!?][\"'”’)*_]*$")
NUMBER = r"[*_]*\(?(\d{1,2})[.)][*_]*\s"
NUMBERED_LINE = re.compile(rf"^[ \t]*{NUMBER}", re.MULTILINE)
NUMBERED_INLINE = re.compile(rf"(?:^|(?<=[.!?:;\"'”])\s){NUMBER}")
BULLET = re.compile(r"^[ \t]*[-*•–][ \t]+", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'“])")
LABEL = re.compile(r"[*_]*([^:.!?]{2,80}?)[*_]*:[*_]*\s+(.+)", re.DOTALL)
MOST_LABEL_WORDS = 12
RELATIVE = re.compile(
    r"(?:relative|spatial)\s+(?:positions?|positioning|locations?|relations?(?:hips?)?)|positions? between"
)
WORDS: dict[Axis, re.Pattern[str]] = {
    "object types": re.compile(r"\b(?:types?|kinds?|categor(?:y|ies))\b"),
    "attributes": re.compile(r"\b(?:attributes?|colou?rs?|appearances?|characteristics?)\b"),
    "counts": re.compile(r"\b(?:count(?:s|ing)?|numbers?|quantit(?:y|ies))\b"),
    "actions": re.compile(r"\b(?:actions?|poses?|activit(?:y|ies))\b"),
    "locations": re.compile(r"\b(?:locations?|placements?|positions?)\b"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """Be one difference and the axes that its label names: none where it has no label, several where merged."""

    axes: tuple[Axis, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Be a summary in its parts."""

    commonalities: tuple[str, ...]
    differences: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class RefusedComparison:
    """Say why a text is no summary."""

    reason: Reason
    detail: str = ""


def read_comparison(text: str, *, finish_reason: str = "stop") -> Comparison | RefusedComparison:
    """Return the parts of a summary, or the first reason to refuse it."""
    text = text.strip()
    if finish_reason == "length" or not END.search(text):
        return RefusedComparison("cut off", finish_reason if finish_reason == "length" else text[-40:])
    common, different = COMMON.search(text), DIFFERENT.search(text)
    if not common or (different and different.start() < common.start()):
        return RefusedComparison("off the layout" if different else "no commonalities", text[:60])
    if not different:
        return RefusedComparison("no differences", text[-60:])
    commonalities = _items(text[common.end() : different.start()])
    differences = tuple(_labelled(item) for item in _items(text[different.end() :]))
    if not commonalities:
        return RefusedComparison("no commonalities")
    return Comparison(commonalities, differences) if differences else RefusedComparison("no differences")


def read_axes(label: str) -> tuple[Axis, ...]:
    """Return the axes that a label names, in the paper's order."""
    words = label.lower().replace("(s)", "s")
    plain = RELATIVE.sub(" ", words)
    found: list[Axis] = [axis for axis, pattern in WORDS.items() if pattern.search(plain)]
    return tuple(found) if plain == words else (*found, "relative positions")


def _labelled(item: str) -> Item:
    match = LABEL.match(item)
    if not match or len(match[1].split()) > MOST_LABEL_WORDS or re.search(r"\bimage", match[1], re.IGNORECASE):
        return Item((), item)
    axes = read_axes(match[1])
    return Item(axes, match[2].strip() if axes else item)


def _items(block: str) -> tuple[str, ...]:
    """Split a block at its numbers, bullets or lines; prose at its sentences."""
    block = block.strip()
    starts = _numbers(block)
    if starts:
        parts = _cut(block, starts)
    elif BULLET.search(block):
        parts = BULLET.split(block)
    else:
        lines = [line for line in block.splitlines() if line.strip()]
        parts = lines if len(lines) > 1 else SENTENCE_END.split(block)
    tidied = (" ".join(BULLET.sub("", part).split()) for part in parts)
    return tuple(part for part in tidied if re.search(r"\w", part) and not part.endswith(":"))


def _numbers(block: str) -> list[re.Match[str]]:
    """Find the numbers of the items: at the starts of lines, or else (all on one line) after the ends of sentences."""
    # "…but not in Image 1. Only…" is why a number within a line counts only where there are no lines.
    lines = _in_order(NUMBERED_LINE, block)
    return lines if len(lines) > 1 else _in_order(NUMBERED_INLINE, block)


def _in_order(pattern: re.Pattern[str], block: str) -> list[re.Match[str]]:
    """Keep the matches that count 1, 2, 3..., so that other numbers in the text split nothing."""
    found: list[re.Match[str]] = []
    for match in pattern.finditer(block):
        if int(match[1]) == len(found) + 1:
            found.append(match)
    return found


def _cut(block: str, starts: list[re.Match[str]]) -> list[str]:
    ends = [match.start() for match in starts[1:]] + [len(block)]
    return [block[: starts[0].start()], *(block[a.end() : b] for a, b in zip(starts, ends, strict=True))]
