"""Split what stands below a heading of a comparison into its items, and read the axes that their labels name.

Items may be numbered, lettered, bulleted, headed by lines that name an axis, or lines of their own; prose is split at
its sentences. What stands below an item, a bullet for each image above all, belongs to it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairwright.schemas.comparison_axes import Axis, read_axes
from pairwright.schemas.comparison_layout import LABEL_LINE, Block, is_label

MARK = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?P<bullet>(?:[-*•–·◦▪+]|\(?[a-z][.)])[ \t]++)"
    r"|[#*_]*+[ \t]*+\(?(?P<number>\d{1,2})[.)][*_]*+(?:[ \t]++|$))",
    re.MULTILINE,
)
NUMBERED_INLINE = re.compile(r"(?:^|(?<=[.!?:;\"'”»])\s)[*_]*+\(?(?P<number>\d{1,2})[.)][*_]*+\s")
SENTENCE_END = re.compile(r"(?<=[.!?])\s++(?=[A-Z\"'“«„])")
ENDED = re.compile(r"[.!?:;,][\"'”’“»«)*_]*$")
EMPHASIS = re.compile(r"\*{1,3}|_{2,3}|^[ \t]*+#{1,6}[ \t]*+", re.MULTILINE)
ONE_IMAGE = re.compile(r"(?:in |the )*(?:(?:image|photo|picture) ?(?:[12]|one|two)|first|second)\b", re.IGNORECASE)
COLON = re.compile(r"([^:.!?]{2,80}?)\s*:\s+(.+)", re.DOTALL)
DASH = re.compile(r"([a-z()&,/ ]{3,40}?)\s+[–—-]\s+(.+)", re.DOTALL | re.IGNORECASE)
LEAD = re.compile(
    r"(?:in terms of|regarding|as for|with regard to|with respect to|concerning|when it comes to) ([^,.:]{2,60}),",
    re.IGNORECASE,
)
MOST_WORDS = 12
MOST_WORDS_BEFORE_DASH = 5


@dataclass(frozen=True, slots=True)
class Item:
    """Be one difference and the axes that its label names: none where it has no label, several where merged."""

    axes: tuple[Axis, ...]
    text: str


def read_item(text: str, label: str = "") -> Item:
    """Return an item without its label; one that has none gets the axes of the ``label`` that stands above it."""
    if (match := COLON.match(text)) and len(match[1].split()) <= MOST_WORDS and not _names_image(match[1]):
        axes = read_axes(match[1])
        return Item(axes, match[2].strip()) if axes else Item(read_axes(label), text)
    dashed = DASH.match(text)
    if dashed and len(dashed[1].split()) <= MOST_WORDS_BEFORE_DASH and not _names_image(dashed[1]):
        axes = read_axes(dashed[1])
        return Item(axes, dashed[2].strip()) if axes else Item(read_axes(label), text)
    lead = LEAD.match(text)
    return Item(read_axes(lead[1] if lead else label), text)


def split_items(block: Block) -> tuple[str, ...]:
    """Return the items of a block in order, each on one line."""
    text = block.text.strip("\n").rstrip()
    if not text.startswith((" ", "\t")) or "\n" not in block.text[: len(block.text) - len(block.text.lstrip())]:
        text = text.lstrip()
    parts = [_tidied(part) for part in _parts(text, is_one=bool(block.label))]
    return tuple(part for part in _joined(parts) if re.search(r"\w", part) and not part.endswith(":"))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line."""
    return [_tidied(part) for part in SENTENCE_END.split(" ".join(text.split())) if part]


def _parts(text: str, *, is_one: bool) -> Sequence[str]:
    """Cut a block at its labels, numbers, bullets or lines; ``is_one``: else it is one item, not prose to be split."""
    marks = list(MARK.finditer(text))
    if labels := _labels(text, marks):
        return _cut(text, [(match.start(), match.start()) for match in labels])
    if starts := _starts(text, marks):
        return _cut(text, [match.span() for match in starts])
    if is_one:
        return [text]
    lines = list(_lines(text))
    return lines if len(lines) > 1 else SENTENCE_END.split(text)


def _labels(text: str, marks: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Find the lines that only name an axis, where the block begins with one and they are no items of a list."""
    marked = {match.start() for match in marks}
    found = [line for line in LABEL_LINE.finditer(text) if is_label(line) and line.start() not in marked]
    return found if found and not text[: found[0].start()].strip() else []


def _starts(text: str, marks: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Find the numbers or else the bullets of the outermost list, or else numbers within a line."""
    least = min((len(match["indent"]) for match in marks), default=0)
    outer = [match for match in marks if len(match["indent"]) == least]
    numbered = _in_order([match for match in outer if match["number"]])
    if len(numbered) > 1:
        return numbered
    # "…but not in Image 1. Only…" is why a number within a line counts only where there are no lines.
    inline = _in_order(list(NUMBERED_INLINE.finditer(text)))
    if len(inline) > 1 or (inline and not outer):
        return inline
    return numbered or [match for match in outer if match["bullet"]] or inline


def _in_order(matches: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Keep the matches that count on from the first of them, so that other numbers in the text split nothing."""
    numbers = [int(match["number"]) for match in matches]
    if len(numbers) > 1 and set(numbers) == {1}:  # Markdown's lazy lists
        return list(matches)
    found: list[re.Match[str]] = []
    for match, number in zip(matches, numbers, strict=True):
        if number == (int(found[-1]["number"]) + 1 if found else numbers[0]):
            found.append(match)
    return found


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    ends = [start for start, _ in spans[1:]] + [len(text)]
    return [text[: spans[0][0]], *(text[begin:end] for (_, begin), end in zip(spans, ends, strict=True))]


def _lines(text: str) -> Iterator[str]:
    """Yield the lines, those that were only wrapped in one."""
    held = ""
    for line in text.splitlines():
        if held and (not line.strip() or ENDED.search(held)):
            yield held
            held = ""
        held = f"{held} {line.strip()}".strip()
    if held:
        yield held


def _tidied(part: str) -> str:
    """Put an item on one line, without markup; bullets below it end like sentences."""
    lines = [line for line in part.splitlines() if line.strip()]
    if lines and (label := LABEL_LINE.match(lines[0])) and is_label(label) and len(lines) > 1:
        lines[0] = f"{label['label']}:"
    spoken = ""
    for line in lines:
        bare = MARK.sub("", line)
        if spoken and bare != line and not ENDED.search(spoken):
            spoken += "."
        spoken = f"{spoken} {EMPHASIS.sub('', bare).strip()}".strip()
    return " ".join(spoken.split())


def _joined(parts: Sequence[str]) -> list[str]:
    """Put what is said of each image behind the label that stands alone before it."""
    found: list[str] = []
    is_open = False
    for part in parts:
        if is_open and ONE_IMAGE.match(part):
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
            is_open = part.endswith(":") and bool(read_axes(part)) and not _names_image(part)
    return found


def _names_image(label: str) -> bool:
    return re.search(r"\bimage", label, re.IGNORECASE) is not None
