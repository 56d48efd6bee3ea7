"""Read a summary of commonalities and differences (CaD) into its parts, or refuse it with a reason.

Follows the layout of paper 003's published summaries, tolerantly: axes may be missing, merged or
unlabelled, commonalities a list or prose, headings Markdown, the two halves below each axis, or
there may be no headings at all. The reasons for refusing a summary are ours.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, get_args

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts.words import declines, repeats_itself, split_by_rules

Axis = Literal["object types", "attributes", "counts", "actions", "locations", "relative positions"]
AXES: tuple[Axis, ...] = get_args(Axis)

RELATIVE = re.compile(
    r"(?:relative|spatial)\s+(?:positions?|positioning|locations?|placements?|arrangements?|relations?(?:hips?)?)"
    r"|positions? between"
)
WORDS: dict[Axis, re.Pattern[str]] = {
    "object types": re.compile(r"\b(?:types?|kinds?|categor(?:y|ies))\b"),
    "attributes": re.compile(r"\b(?:attributes?|colou?rs?|appearances?|characteristics?)\b"),
    "counts": re.compile(r"\b(?:count(?:s|ing)?|numbers?|quantit(?:y|ies))\b"),
    "actions": re.compile(r"\b(?:actions?|poses?|activit(?:y|ies))\b"),
    "locations": re.compile(r"\b(?:locations?|placements?|positions?)\b"),
}


def read_axes(label: str) -> tuple[Axis, ...]:
    """Return the axes that a label names, in the paper's order."""
    words = label.lower().replace("(s)", "s")
    plain = RELATIVE.sub(" ", words)
    found: list[Axis] = [axis for axis, pattern in WORDS.items() if pattern.search(plain)]
    return tuple(found) if plain == words else (*found, "relative positions")


# Possessive throughout, so that each line is matched in linear time, whatever a model writes.
MARKUP = r"[ \t>#]*+(?:[-*•+–][ \t]++)?+[*_#]*+[ \t]*+(?:\(?+(?:\d{1,2}+|[A-D]|[IVX]{1,3}+)[.):][ \t]*+)?+[*_]*+"
COMMON = (
    r"(?P<common>commonalit(?:y|ies)|similarit(?:y|ies)"
    r"|(?:common|shared|similar)[ \t]+(?:features?|elements?|points?|aspects?|characteristics?|traits?))(?:\(s\))?"
)
DIFFERENT = (
    r"(?P<different>differences?|dissimilarit(?:y|ies)|(?:different|distinct)[ \t]+"
    r"(?:features?|elements?|points?|aspects?))(?:\(s\))?"
)
# "Commonalities and differences:" is a title, not one of the two; without a colon, a heading is no
# whole clause.
TAIL = (
    r"(?!\w)(?P<tail>(?![ \t]*+(?:and\b|or\b|&|/))[^\n:.!?*_#]{0,70}?)"
    r"[ \t]*+[*_#]*+[ \t]*+(?:(?P<colon>:)[*_]*+|(?=\n|\Z))"
)
LINE_HEADING = re.compile(
    rf"^{MARKUP}(?:(?:the|main|key|overall|some|notable|visual|major)[ \t]++){{0,3}}(?:{COMMON}|{DIFFERENT}){TAIL}",
    re.IGNORECASE | re.MULTILINE,
)
INLINE_HEADING = re.compile(
    rf"(?<=[.!?:;\"'”’»*])[ \t]++[*_#]*+(?:{COMMON}|{DIFFERENT})[*_]*+:[*_]*+(?P<tail>)(?P<colon>)",
    re.IGNORECASE,
)
LAST_HEADING = re.compile(
    rf"^{MARKUP}(?:conclusions?|(?:in )?summary|notes?)[*_]*+(?::|[ \t]*+$)",
    re.IGNORECASE | re.MULTILINE,
)
CLAUSE = re.compile(r"\b(?:are|is|was|were|includes?|that|lie|can|have|has)\b", re.IGNORECASE)
LABEL_LINE = re.compile(
    rf"^{MARKUP}(?P<label>[^\n:.!?*_#|]{{3,60}}?)[ \t]*+[*_#]*+[ \t]*+:?+[*_#]*+[ \t]*+$",
    re.MULTILINE,
)
MAX_LABEL_WORDS = 8
NAMED_IMAGE = re.compile(r"\bimage", re.IGNORECASE)
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
    """Text below a heading, with the label of its axis or an empty one."""

    is_common: bool
    label: str
    text: str


def _strip_frame(text: str) -> str:
    """Return the summary without fences, rules, and the model's farewell or, after a list, conclusion."""
    lines = FENCE.sub("", re.sub(r"\r\n?", "\n", text)).strip().split("\n")
    is_list = any(LISTED.match(line) for line in lines)
    while lines:
        last, apart = lines[-1], len(lines) > 1 and not lines[-2].strip()
        farewell = len(lines) > 1 and GOODBYE.match(last)
        if not (RULE.fullmatch(last) or farewell or (is_list and apart and SUMMING_UP.match(last))):
            break
        lines.pop()
    return "\n".join(lines).rstrip()


def _find_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the text from its first heading on, and its blocks in order; no blocks without a heading."""
    lines = [
        match
        for match in LINE_HEADING.finditer(text)
        if match["colon"] or not CLAUSE.search(match["tail"])
    ]
    heads: list[re.Match[str]] = []
    for match in sorted(
        [*lines, *INLINE_HEADING.finditer(text)], key=lambda match: (match.end(), match.start())
    ):
        if not heads or match.start() >= heads[-1].end():
            heads.append(match)
    if not heads:
        return text, []
    closing = LAST_HEADING.search(text, heads[-1].end())
    text = text[: closing.start()].rstrip() if closing else text
    start, label = _label_before(text, heads[0].start(), 0)
    blocks: list[Block] = []
    current = label
    for head, following in pairwise([*heads, None]):
        assert head is not None
        end, after = (
            _label_before(text, following.start(), head.end()) if following else (len(text), "")
        )
        own = head["tail"].strip() if read_axes(head["tail"]) else current
        blocks.append(Block(head["common"] is not None, own, text[head.end() : end]))
        current = after or current
    return text[start:].strip(), blocks


def _is_label(line: re.Match[str]) -> bool:
    label = line["label"]
    return (
        len(label.split()) <= MAX_LABEL_WORDS
        and bool(read_axes(label))
        and not NAMED_IMAGE.search(label)
    )


def _label_before(text: str, end: int, start: int) -> tuple[int, str]:
    """Return the start and text of an axis label just before a heading; without one, the end and an empty label."""
    before = text[start:end].rstrip()
    line = LABEL_LINE.match(before, before.rfind("\n") + 1)
    return (start + line.start(), line["label"]) if line and _is_label(line) else (end, "")


MARK = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?P<bullet>(?:[-*•–·◦▪+]|\(?[a-z][.)])[ \t]++)"
    r"|[#*_]*+[ \t]*+\(?(?P<number>\d{1,2})[.)][*_]*+(?:[ \t]++|$))",
    re.MULTILINE,
)
NUMBERED_INLINE = re.compile(r"(?:^|(?<=[.!?:;\"'”»])\s)[*_]*+\(?(?P<number>\d{1,2})[.)][*_]*+\s")
ENDED = re.compile(r"[.!?:;,][\"'”’“»«)*_]*$")
EMPHASIS = re.compile(r"\*{1,3}|_{2,3}|^[ \t]*+#{1,6}[ \t]*+", re.MULTILINE)
ONE_IMAGE = re.compile(
    r"(?:in |the )*(?:(?:image|photo|picture) ?(?:[12]|one|two)|first|second)\b", re.IGNORECASE
)
COLON = re.compile(r"([^:.!?]{2,80}?)\s*:\s+(.+)", re.DOTALL)
DASH = re.compile(r"([a-z()&,/ ]{3,40}?)\s+[–—-]\s+(.+)", re.DOTALL | re.IGNORECASE)
LEAD = re.compile(
    r"(?:in terms of|regarding|as for|with regard to|with respect to|concerning|when it comes to) ([^,.:]{2,60}),",
    re.IGNORECASE,
)
MAX_WORDS = 12
MAX_WORDS_BEFORE_DASH = 5


@dataclass(frozen=True, slots=True)
class LabelledDifference:
    """Difference and the axes that its label names: none where it has no label, several where merged."""

    axes: tuple[Axis, ...]
    text: str


def _read_item(text: str, label: str = "") -> LabelledDifference:
    """Return an item without its label; an unlabelled one gets the axes of the block's ``label``."""
    for pattern, max_words in ((COLON, MAX_WORDS), (DASH, MAX_WORDS_BEFORE_DASH)):
        match = pattern.match(text)
        if match and len(match[1].split()) <= max_words and not NAMED_IMAGE.search(match[1]):
            axes = read_axes(match[1])
            return (
                LabelledDifference(axes, match[2].strip())
                if axes
                else LabelledDifference(read_axes(label), text)
            )
    lead = LEAD.match(text)
    return LabelledDifference(read_axes(lead[1] if lead else label), text)


def _split_items(block: Block) -> tuple[str, ...]:
    text = block.text.strip("\n").rstrip()
    if (
        not text.startswith((" ", "\t"))
        or "\n" not in block.text[: len(block.text) - len(block.text.lstrip())]
    ):
        text = text.lstrip()
    found: list[str] = []
    is_open = False
    for part in map(_clean_item, _parts(text, is_one=bool(block.label))):
        if is_open and ONE_IMAGE.match(part):
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
            is_open = part.endswith(":") and bool(read_axes(part)) and not NAMED_IMAGE.search(part)
    return tuple(part for part in found if re.search(r"\w", part) and not part.endswith(":"))


def _parts(text: str, *, is_one: bool) -> Sequence[str]:
    """Cut a block at labels, numbers or bullets, or else at lines or sentences; ``is_one``: or else keep it whole."""
    marks = list(MARK.finditer(text))
    marked = {match.start() for match in marks}
    labels = [
        line for line in LABEL_LINE.finditer(text) if _is_label(line) and line.start() not in marked
    ]
    if (
        labels and not text[: labels[0].start()].strip()
    ):  # it begins with a line that only names an axis
        return _cut(text, [(match.start(), match.start()) for match in labels])
    if starts := _find_items(text, marks):
        return _cut(text, [match.span() for match in starts])
    if is_one:
        return [text]
    lines = list(_lines(text))
    return lines if len(lines) > 1 else split_by_rules(text)


def _find_items(text: str, marks: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the numbers or else the bullets of the outermost list, or else numbers within a line."""
    least = min((len(match["indent"]) for match in marks), default=0)
    outer = [match for match in marks if len(match["indent"]) == least]
    numbered = _keep_counting([match for match in outer if match["number"]])
    if len(numbered) > 1:
        return numbered
    # A number within a line counts only without lines, because of "...but not in Image 1. Only...".
    inline = _keep_counting(list(NUMBERED_INLINE.finditer(text)))
    if len(inline) > 1 or (inline and not outer):
        return inline
    return numbered or [match for match in outer if match["bullet"]] or inline


def _keep_counting(matches: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Keep consecutive numbers from the first one on, so that other numbers split nothing."""
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
    return [
        text[: spans[0][0]],
        *(text[begin:end] for (_, begin), end in zip(spans, ends, strict=True)),
    ]


def _lines(text: str) -> Iterator[str]:
    held = ""
    for line in text.splitlines():
        if held and (not line.strip() or ENDED.search(held)):
            yield held
            held = ""
        held = f"{held} {line.strip()}".strip()
    if held:
        yield held


def _clean_item(part: str) -> str:
    """Return an item on one line without markup; nested bullets end like sentences."""
    lines = [line for line in part.splitlines() if line.strip()]
    if lines and (label := LABEL_LINE.match(lines[0])) and _is_label(label) and len(lines) > 1:
        lines[0] = f"{label['label']}:"
    spoken = ""
    for line in lines:
        bare = MARK.sub("", line)
        if spoken and bare != line and not ENDED.search(spoken):
            spoken += "."
        spoken = f"{spoken} {EMPHASIS.sub('', bare).strip()}".strip()
    return " ".join(spoken.split())


END = re.compile(
    r"(?<!\.\.)[.!?][\"'”’“»«›」)*_`]*$"
)  # a full stop, also within quotation marks; not "...".
SHARED = re.compile(
    r"\b(?:both|in common|commonalit\w*|similarit\w*|similarly|likewise|shares?|shared|alike|same|each of the)\b",
    re.IGNORECASE,
)
OF_BOTH = re.compile(
    r"(?:in )?(?:both|each of|the two (?:images|photos|pictures))\b", re.IGNORECASE
)
CONTRAST = re.compile(
    r"\b(?:whereas|differ\w*|in contrast|contrasts?|contrasting|unlike|on the other hand|instead|however)\b",
    re.IGNORECASE,
)
ONE_OF_TWO = re.compile(
    r"\b(?:image (?:[12]|one|two)|(?:first|second|other) (?:image|one|photo|picture)|the (?:former|latter))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Summary in its parts."""

    commonalities: tuple[str, ...]
    differences: tuple[LabelledDifference, ...]
    text: str = field(default="", compare=False)  # the whole summary, without greeting and farewell


def read_comparison(text: str, *, finish_reason: str = "stop") -> Comparison | RefusedText:
    """Return the parts of a summary, or the first reason to refuse it."""
    text = _strip_frame(text)
    if finish_reason == "length":
        return RefusedText("cut off", finish_reason)
    if declines(text):
        return RefusedText("declined", text[:60])
    if repeats_itself(text):
        return RefusedText("repeats itself", text[-60:])
    text, blocks = _find_blocks(text)
    if not END.search(text):
        return RefusedText("cut off", text[-40:])
    if not blocks:
        return _read_prose(text)
    if not blocks[0].is_common:
        return RefusedText("off the layout", text[:60])
    shared = [item for block in blocks if block.is_common for item in _split_items(block)]
    others = [block for block in blocks if not block.is_common]
    if not others:
        return RefusedText("no differences", text[-60:])
    apart = [_read_item(item, block.label) for block in others for item in _split_items(block)]
    return _make_comparison(shared, apart, text)


def _read_prose(text: str) -> Comparison | RefusedText:
    """Sort sentences into commonalities and differences; others follow the sentence before them."""
    while match := GREETING.match(text):
        text = text[match.end() :]
    shared: list[str] = []
    apart: list[str] = []
    current = None
    for sentence in map(_clean_item, split_by_rules(text)):
        if CONTRAST.search(sentence) or (
            ONE_OF_TWO.search(sentence) and not OF_BOTH.match(sentence)
        ):
            current = apart
        elif SHARED.search(sentence):
            current = shared
        if current is not None:
            current.append(sentence)
    return _make_comparison(shared, [_read_item(sentence) for sentence in apart], text)


def _make_comparison(
    shared: Sequence[str], apart: Sequence[LabelledDifference], text: str
) -> Comparison | RefusedText:
    if not shared:
        return RefusedText("no commonalities", text[:60])
    return (
        Comparison(tuple(shared), tuple(apart), text)
        if apart
        else RefusedText("no differences", text[-60:])
    )
