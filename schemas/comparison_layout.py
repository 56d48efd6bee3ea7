"""Find the parts of a summary of commonalities and differences: its headings, and what stands below each.

Knows the ways in which language models lay such summaries out: Markdown or plain, headings on lines of their own or
within one, the two halves below each axis instead of the axes below each half, a greeting before, a farewell after.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pairwright.schemas.comparison_axes import read_axes

# Possessive throughout: whatever a model writes, each line is read in linear time.
MARKUP = r"[ \t>#]*+(?:[-*•+–][ \t]++)?+[*_#]*+[ \t]*+(?:\(?+(?:\d{1,2}+|[A-D]|[IVX]{1,3}+)[.):][ \t]*+)?+[*_]*+"
COMMON = (
    r"(?P<common>commonalit(?:y|ies)|similarit(?:y|ies)"
    r"|(?:common|shared|similar)[ \t]+(?:features?|elements?|points?|aspects?|characteristics?|traits?))(?:\(s\))?"
)
DIFFERENT = (
    r"(?P<different>differences?|dissimilarit(?:y|ies)|(?:different|distinct)[ \t]+"
    r"(?:features?|elements?|points?|aspects?))(?:\(s\))?"
)
# "Commonalities and differences:" is a title, not one of the two; without a colon, a heading is no whole clause.
TAIL = (
    r"(?!\w)(?P<tail>(?![ \t]*+(?:and\b|or\b|&|/))[^\n:.!?*_#]{0,70}?)"
    r"[ \t]*+[*_#]*+[ \t]*+(?:(?P<colon>:)[*_]*+|(?=\n|\Z))"
)
LINE_HEADING = re.compile(
    rf"^{MARKUP}(?:(?:the|main|key|overall|some|notable|visual|major)[ \t]++){{0,3}}(?:{COMMON}|{DIFFERENT}){TAIL}",
    re.IGNORECASE | re.MULTILINE,
)
INLINE_HEADING = re.compile(
    rf"(?<=[.!?:;\"'”’»*])[ \t]++[*_#]*+(?:{COMMON}|{DIFFERENT})[*_]*+:[*_]*+(?P<tail>)(?P<colon>)", re.IGNORECASE
)
LAST_HEADING = re.compile(
    rf"^{MARKUP}(?:conclusions?|(?:in )?summary|notes?)[*_]*+(?::|[ \t]*+$)", re.IGNORECASE | re.MULTILINE
)
CLAUSE = re.compile(r"\b(?:are|is|was|were|includes?|that|lie|can|have|has)\b", re.IGNORECASE)
LABEL_LINE = re.compile(
    rf"^{MARKUP}(?P<label>[^\n:.!?*_#|]{{3,60}}?)[ \t]*+[*_#]*+[ \t]*+:?+[*_#]*+[ \t]*+$", re.MULTILINE
)
MOST_LABEL_WORDS = 8
FENCE = re.compile(r"^[ \t]*+```\w*+[ \t]*+$\n?", re.MULTILINE)
RULE = re.compile(r"[ \t]*+(?:-{3,}+|\*{3,}+|_{3,}+)?+[ \t]*+")
YES = r"(?:sure|certainly|of course|absolutely|okay|ok|great|yes)"
GREETING = re.compile(
    rf"{YES}(?: thing)?[.!]\s*|(?:{YES}|here|below|based on|after|the following|let['’]s)\b[^.!?:\n]{0, 200}+:\s*"
    r"|(?:i['’]d|i would|i['’]ll|i will|i am|i['’]m|happy|glad)\b[^.!?:\n]{0,200}+[.!:]\s*"
    r"|(?:here|below|the following) (?:is|are)\b[^.!?:\n]{0,100}?"
    r"(?:commonalit|similarit|differenc|comparison|summary)[^.!?:\n]{0,100}+[.:]\s*",
    re.IGNORECASE,
)
GOODBYE = re.compile(
    r"[ \t*_(]*(?:i hope|hope (?:this|that)|let me know|feel free|please (?:note|let|feel)|note:|note that|thank you"
    r"|if you (?:need|have|want|would)|is there anything|would you like|do you)(?!\w)",
    re.IGNORECASE,
)
SUMMING_UP = re.compile(
    r"[ \t*_]*(?:overall|in (?:summary|conclusion|short|essence)|to sum(?:mari[sz]e| up)|these (?:are|commonalities"
    r"|similarities|differences|observations)|this (?:comparison|summary))\b",
    re.IGNORECASE,
)
LISTED = re.compile(r"^[ \t]*+(?:[-*•+–]|[*_]*+\(?\d{1,2}[.)])[*_]*+[ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """Be what stands below a heading, and the label that holds for all of it: of an axis, or empty."""

    is_common: bool
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Be a summary as it is laid out, without what does not belong to it."""

    text: str
    blocks: tuple[Block, ...]


def tidy(text: str) -> str:
    """Take off what frames a summary: fences, rules, and what the model says at the end to the person who asked."""
    lines = FENCE.sub("", re.sub(r"\r\n?", "\n", text)).strip().split("\n")
    is_list = any(LISTED.match(line) for line in lines)
    while lines and _is_over(lines, is_list=is_list):
        lines.pop()
    return "\n".join(lines).rstrip()


def _is_over(lines: Sequence[str], *, is_list: bool) -> bool:
    """Say whether the last line is empty or a rule, bids farewell or, after a list and an empty line, sums it up."""
    last = lines[-1]
    apart = len(lines) > 1 and not lines[-2].strip()
    return bool(
        RULE.fullmatch(last)
        or (len(lines) > 1 and GOODBYE.match(last))
        or (is_list and apart and SUMMING_UP.match(last))
    )


def without_greeting(text: str) -> str:
    """Take off the sentences in which a model only says that it will answer."""
    while match := GREETING.match(text):
        text = text[match.end() :]
    return text


def find_layout(text: str) -> Layout:
    """Return the text from its first heading on, and its blocks in order; none where there is no heading."""
    heads = _find_heads(text)
    if not heads:
        return Layout(text, ())
    closing = LAST_HEADING.search(text, heads[-1].end())
    text = text[: closing.start()].rstrip() if closing else text
    start, label = _label_before(text, heads[0].start(), 0)
    blocks: list[Block] = []
    current = label
    for head, following in pairwise([*heads, None]):
        assert head is not None
        end, after = _label_before(text, following.start(), head.end()) if following else (len(text), "")
        own = head["tail"].strip() if read_axes(head["tail"]) else current
        blocks.append(Block(head["common"] is not None, own, text[head.end() : end]))
        current = after or current
    return Layout(text[start:].strip(), tuple(blocks))


def is_label(line: re.Match[str]) -> bool:
    """Say whether a line that could be a label names axes and is set off, by markup or by being nothing else."""
    label = line["label"]
    return (
        len(label.split()) <= MOST_LABEL_WORDS
        and bool(read_axes(label))
        and not re.search(r"\bimages?\b", label, re.IGNORECASE)
    )


def _find_heads(text: str) -> list[re.Match[str]]:
    """Return the headings in order, where the same words match twice the longer ones."""
    found: list[re.Match[str]] = []
    for match in sorted(_candidates(text), key=lambda match: (match.end(), match.start())):
        if not found or match.start() >= found[-1].end():
            found.append(match)
    return found


def _candidates(text: str) -> Iterator[re.Match[str]]:
    for match in LINE_HEADING.finditer(text):
        if match["colon"] is not None or not CLAUSE.search(match["tail"]):
            yield match
    yield from INLINE_HEADING.finditer(text)


def _label_before(text: str, end: int, start: int) -> tuple[int, str]:
    """Return the label of an axis that stands last before a heading, and where it begins; else nothing, and the end."""
    before = text[start:end].rstrip()
    line = LABEL_LINE.match(before, before.rfind("\n") + 1)
    return (start + line.start(), line["label"]) if line and is_label(line) else (end, "")
