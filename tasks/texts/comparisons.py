"""Read a summary of commonalities and differences (CaD) into its parts, or refuse it with a reason.

Follows the layout of paper 003's published summaries, tolerantly: axes may be missing, merged or
unlabelled, commonalities a list or prose, headings Markdown, the two halves below each axis, or
there may be no headings at all. The reasons for refusing a summary are ours.

A summary is read line by line as tokens: headings of commonalities, headings of differences, and
lines that may close the summary. Text before the first heading is a preamble; a heading opens a
block of its kind, which the next heading, or a closing line after the last heading, ends.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pairwright.schemas.replies import RefusedText
from pairwright.tasks.texts.differences import NO_FULL_STOP
from pairwright.tasks.texts.words import split_by_rules

Axis = Literal["object types", "attributes", "counts", "actions", "locations", "relative positions"]
AXES: tuple[Axis, ...] = get_args(Axis)

RELATIVE = re.compile(
    r"(?:relative|spatial)\s+(?:positions?|positioning|locations?|placements?|arrangements?"
    r"|relations?(?:hips?)?)"
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
    lower_label = label.lower().replace("(s)", "s")
    plain = RELATIVE.sub(" ", lower_label)
    axes: list[Axis] = [axis for axis, pattern in WORDS.items() if pattern.search(plain)]
    if plain != lower_label:
        axes.append("relative positions")
    return tuple(axes)


# Possessive throughout, so that each line is matched in linear time, whatever a model writes.
MARKUP = (
    r"[ \t>#]*+(?:[-*•+–][ \t]++)?+[*_#]*+[ \t]*+(?:\(?+(?:\d{1,2}+|[A-D]"
    r"|[IVX]{1,3}+)[.):][ \t]*+)?+[*_]*+"
)
COMMON = (
    r"(?P<common>commonalit(?:y|ies)|similarit(?:y|ies)"
    r"|(?:common|shared|similar)[ \t]+(?:features?|elements?|points?|aspects?|characteristics?"
    r"|traits?))(?:\(s\))?"
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
    rf"^{MARKUP}(?:(?:the|main|key|overall|some|notable|visual|major)[ \t]++){{0,3}}(?:{COMMON}"
    rf"|{DIFFERENT}){TAIL}",
    re.IGNORECASE | re.MULTILINE,
)
INLINE_HEADING = re.compile(
    rf"(?<=[.!?:;\"'”’»*])[ \t]++[*_#]*+(?:{COMMON}|{DIFFERENT})[*_]*+:[*_]*+"
    r"(?P<tail>)(?P<colon>)",
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
RULE = re.compile(r"[ \t]*+(?:-{3,}+|\*{3,}+|_{3,}+)?+[ \t]*+")
YES = r"(?:sure|certainly|of course|absolutely|okay|ok|great|yes)"
GREETING = re.compile(
    rf"{YES}(?: thing)?[.!]\s*|(?:{YES}|here|below|based on|after|the following"
    rf"|let['’]s)\b[^.!?:\n]{0, 200}+:\s*"
    r"|(?:i['’]d|i would|i['’]ll|i will|i am|i['’]m|happy|glad)\b[^.!?:\n]{0,200}+[.!:]\s*"
    r"|(?:here|below|the following) (?:is|are)\b[^.!?:\n]{0,100}?"
    r"(?:commonalit|similarit|differenc|comparison|summary)[^.!?:\n]{0,100}+[.:]\s*",
    re.IGNORECASE,
)
SUMMING_UP = re.compile(
    r"[ \t*_]*(?:overall|in (?:summary|conclusion|short|essence)|to sum(?:mari[sz]e| up)|these "
    r"(?:are|commonalities"
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
    """Return the summary without rules at its end and, after a list, conclusion."""
    lines = re.sub(r"\r\n?", "\n", text).strip().split("\n")
    has_list = any(LISTED.match(line) for line in lines)
    while lines and _is_frame(lines, has_list=has_list):
        lines.pop()
    return "\n".join(lines).rstrip()


def _is_frame(lines: Sequence[str], *, has_list: bool) -> bool:
    """Return whether the last line is a rule, or a conclusion after a list."""
    last = lines[-1]
    if RULE.fullmatch(last):
        return True
    if len(lines) == 1:
        return False
    follows_blank = not lines[-2].strip()
    return has_list and follows_blank and bool(SUMMING_UP.match(last))


TokenKind = Literal["common", "different", "closing"]


@dataclass(frozen=True, slots=True)
class Token:
    """Heading, or the start of a line that closes the summary if no heading follows."""

    kind: TokenKind
    start: int
    end: int
    tail: str = ""  # words after the heading, which may name an axis


def _tokenize(text: str) -> Iterator[Token]:
    """Yield the headings and the closing lines of a text, in order."""
    offset = 0
    for line in text.split("\n"):
        if LAST_HEADING.match(line):
            yield Token("closing", offset, offset)
        for heading in _find_headings(line):
            kind = "different" if heading["common"] is None else "common"
            start, end = heading.span()
            yield Token(kind, offset + start, offset + end, heading["tail"])
        offset += len(line) + 1


def _find_headings(line: str) -> Iterator[re.Match[str]]:
    """Yield the headings of a line that do not overlap; one that starts the line is no clause."""
    matches = list(INLINE_HEADING.finditer(line))
    first = LINE_HEADING.match(line)
    if first and (first["colon"] or not CLAUSE.search(first["tail"])):
        matches.append(first)
    end = 0
    for match in sorted(matches, key=lambda match: (match.end(), match.start())):
        if match.start() >= end:
            yield match
            end = match.end()


def _find_blocks(text: str) -> tuple[str, list[Block]]:
    """Return the text from its first heading on, and its blocks; none without a heading."""
    blocks: list[Block] = []
    state: Literal["preamble", "common", "different"] = "preamble"
    label = block_label = ""
    first_start = block_start = 0
    closing: int | None = None
    for token in _tokenize(text):
        if token.kind == "closing":
            if closing is None:
                closing = token.start
            continue
        closing = None
        block_end, next_label = _label_before(text, token.start, block_start)
        if state == "preamble":
            first_start = block_end
        else:
            blocks.append(Block(state == "common", block_label, text[block_start:block_end]))
        label = next_label or label
        state = token.kind
        block_label = label
        if read_axes(token.tail):
            block_label = token.tail.strip()
        block_start = token.end
    if state == "preamble":
        return text, []
    if closing is not None:
        text = text[:closing].rstrip()
    blocks.append(Block(state == "common", block_label, text[block_start:]))
    return text[first_start:].strip(), blocks


def _is_label(line: re.Match[str]) -> bool:
    label = line["label"]
    return (
        len(label.split()) <= MAX_LABEL_WORDS
        and bool(read_axes(label))
        and not NAMED_IMAGE.search(label)
    )


def _label_before(
    text: str,
    end: int,
    start: int,
) -> tuple[int, str]:
    """Return the start and text of an axis label just before a heading.

    Without a label, return the heading's start and an empty label.
    """
    before = text[start:end].rstrip()
    line = LABEL_LINE.match(before, before.rfind("\n") + 1)
    if line and _is_label(line):
        return start + line.start(), line["label"]
    return end, ""


MARK = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?P<bullet>(?:[-*•–·◦▪+]|\(?[a-z][.)])[ \t]++)"
    r"|[#*_]*+[ \t]*+\(?(?P<number>\d{1,2})[.)][*_]*+(?:[ \t]++|$))",
    re.MULTILINE,
)
NUMBERED_INLINE = re.compile(
    r"(?:^|(?<=[.!?:;\"'”»])\s)[*_]*+\(?(?P<number>\d{1,2})[.)][*_]*+\s",
)
ENDED = re.compile(r"[.!?:;,][\"'”’“»«)*_]*$")
EMPHASIS = re.compile(r"\*{1,3}|_{2,3}|^[ \t]*+#{1,6}[ \t]*+", re.MULTILINE)
ONE_IMAGE = re.compile(
    r"(?:in |the )*(?:(?:image|photo|picture) ?(?:[12]|one|two)|first|second)\b", re.IGNORECASE
)
COLON = re.compile(r"([^:.!?]{2,80}?)\s*:\s+(.+)", re.DOTALL)
DASH = re.compile(r"([a-z()&,/ ]{3,40}?)\s+[–—-]\s+(.+)", re.DOTALL | re.IGNORECASE)
LEAD = re.compile(
    r"(?:in terms of|regarding|as for|with regard to|with respect to|concerning|when it comes "
    r"to) ([^,.:]{2,60}),",
    re.IGNORECASE,
)
MAX_WORDS = 12
MAX_WORDS_BEFORE_DASH = 5


@dataclass(frozen=True, slots=True)
class LabelledDifference:
    """Difference and the axes that its label names: none without a label, several if merged."""

    axes: tuple[Axis, ...]
    text: str


def _read_item(text: str, label: str = "") -> LabelledDifference:
    """Return an item without its label; an unlabelled one gets the axes of the block's label."""
    for pattern, max_words in ((COLON, MAX_WORDS), (DASH, MAX_WORDS_BEFORE_DASH)):
        match = pattern.match(text)
        if match is None or NAMED_IMAGE.search(match[1]):
            continue
        if len(match[1].split()) > max_words:
            continue
        axes = read_axes(match[1])
        if axes:
            return LabelledDifference(axes, match[2].strip())
        return LabelledDifference(read_axes(label), text)
    lead = LEAD.match(text)
    if lead:
        label = lead[1]
    return LabelledDifference(read_axes(label), text)


def _split_items(block: Block) -> tuple[str, ...]:
    items: list[str] = []
    is_open = False
    for part in _split_block(_strip_block(block.text), is_labelled=bool(block.label)):
        item = _clean_item(part)
        if is_open and ONE_IMAGE.match(item):
            items[-1] = f"{items[-1]} {item}"
        else:
            items.append(item)
            names_axis = item.endswith(":") and bool(read_axes(item))
            is_open = names_axis and not NAMED_IMAGE.search(item)
    return tuple(item for item in items if re.search(r"\w", item) and not item.endswith(":"))


def _strip_block(text: str) -> str:
    """Return a block's text; the indentation of its first line stays if it is below the heading."""
    stripped = text.strip("\n").rstrip()
    is_indented = stripped.startswith((" ", "\t"))
    leading_space = text[: len(text) - len(text.lstrip())]
    if is_indented and "\n" in leading_space:
        return stripped
    return stripped.lstrip()


def _split_block(text: str, *, is_labelled: bool) -> Sequence[str]:
    """Cut a block at labels, or else at numbers or bullets, or else at lines or sentences.

    A block with a label, but without any of the first two, is a single item.
    """
    marks = list(MARK.finditer(text))
    mark_starts = {match.start() for match in marks}
    labels = [
        line
        for line in LABEL_LINE.finditer(text)
        if _is_label(line) and line.start() not in mark_starts
    ]
    begins_with_label = bool(labels) and not text[: labels[0].start()].strip()
    if begins_with_label:
        return _cut(text, [(match.start(), match.start()) for match in labels])
    items = _find_items(text, marks)
    if items:
        return _cut(text, [match.span() for match in items])
    if is_labelled:
        return [text]
    lines = list(_join_lines(text))
    return lines if len(lines) > 1 else split_by_rules(text)


def _find_items(text: str, marks: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the numbers or else the bullets of the outermost list, or else inline numbers."""
    min_indent = min((len(match["indent"]) for match in marks), default=0)
    outer = [match for match in marks if len(match["indent"]) == min_indent]
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
    consecutive: list[re.Match[str]] = []
    for match, number in zip(matches, numbers, strict=True):
        if number == numbers[0] + len(consecutive):
            consecutive.append(match)
    return consecutive


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the text before the first span, and the texts between the spans."""
    first_start, _ = spans[0]
    ends = [start for start, _ in spans[1:]] + [len(text)]
    parts = [text[:first_start]]
    for (_, begin), end in zip(spans, ends, strict=True):
        parts.append(text[begin:end])
    return parts


def _join_lines(text: str) -> Iterator[str]:
    """Yield the lines; one that does not end a sentence is joined with the next, unless blank."""
    joined = ""
    for line in text.splitlines():
        is_complete = not line.strip() or ENDED.search(joined)
        if joined and is_complete:
            yield joined
            joined = ""
        joined = f"{joined} {line.strip()}".strip()
    if joined:
        yield joined


def _clean_item(part: str) -> str:
    """Return an item on one line without markup; nested bullets end like sentences."""
    lines = [line for line in part.splitlines() if line.strip()]
    if len(lines) > 1:
        label = LABEL_LINE.match(lines[0])
        if label and _is_label(label):
            lines[0] = f"{label['label']}:"
    item = ""
    for line in lines:
        unmarked = MARK.sub("", line)
        if item and unmarked != line and not ENDED.search(item):
            item += "."
        plain = EMPHASIS.sub("", unmarked).strip()
        item = f"{item} {plain}".strip()
    return " ".join(item.split())


END = re.compile(r"(?<!\.\.)[.!?][\"'”’“»«›」)*_`]*$")
"""Full stop, also within quotation marks; not "..."."""
SHARED = re.compile(
    r"\b(?:both|in common|commonalit\w*|similarit\w*|similarly|likewise|shares?|shared|alike"
    r"|same|each of the)\b",
    re.IGNORECASE,
)
OF_BOTH = re.compile(
    r"(?:in )?(?:both|each of|the two (?:images|photos|pictures))\b",
    re.IGNORECASE,
)
CONTRAST = re.compile(
    r"\b(?:whereas|differ\w*|in contrast|contrasts?|contrasting|unlike|on the other hand|instead"
    r"|however)\b",
    re.IGNORECASE,
)
ONE_OF_TWO = re.compile(
    r"\b(?:image (?:[12]|one|two)|(?:first|second|other) (?:image|one|photo|picture)|the "
    r"(?:former|latter))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Summary in its parts."""

    commonalities: tuple[str, ...]
    differences: tuple[LabelledDifference, ...]
    text: str = field(default="", compare=False)  # without greeting and conclusion


def read_comparison(text: str) -> Comparison | RefusedText:
    """Return the parts of a summary, or the first reason to refuse it."""
    text, blocks = _find_blocks(_strip_frame(text))
    if not END.search(text):
        return RefusedText(NO_FULL_STOP, text[-40:])
    if not blocks:
        return _read_prose(text)
    return _read_layout(text, blocks)


def _read_layout(text: str, blocks: Sequence[Block]) -> Comparison | RefusedText:
    """Read the blocks of a summary with headings."""
    if not blocks[0].is_common:
        return RefusedText("off the layout", text[:60])
    if all(block.is_common for block in blocks):
        return RefusedText("no differences", text[-60:])
    commonalities: list[str] = []
    differences: list[LabelledDifference] = []
    for block in blocks:
        items = _split_items(block)
        if block.is_common:
            commonalities.extend(items)
        else:
            differences.extend(_read_item(item, block.label) for item in items)
    return _make_comparison(commonalities, differences, text)


def _read_prose(text: str) -> Comparison | RefusedText:
    """Sort sentences into commonalities and differences; others follow the sentence before them."""
    greeting = GREETING.match(text)
    while greeting:
        text = text[greeting.end() :]
        greeting = GREETING.match(text)
    commonalities: list[str] = []
    differences: list[str] = []
    current: list[str] | None = None
    for part in split_by_rules(text):
        sentence = _clean_item(part)
        if _tells_apart(sentence):
            current = differences
        elif SHARED.search(sentence):
            current = commonalities
        if current is not None:
            current.append(sentence)
    return _make_comparison(commonalities, [_read_item(item) for item in differences], text)


def _tells_apart(sentence: str) -> bool:
    """Return whether a sentence contrasts the images, or is about one of them."""
    if CONTRAST.search(sentence):
        return True
    return bool(ONE_OF_TWO.search(sentence)) and not OF_BOTH.match(sentence)


def _make_comparison(
    commonalities: Sequence[str],
    differences: Sequence[LabelledDifference],
    text: str,
) -> Comparison | RefusedText:
    if not commonalities:
        return RefusedText("no commonalities", text[:60])
    if not differences:
        return RefusedText("no differences", text[-60:])
    statements = [*commonalities, *(difference.text for difference in differences)]
    questions = [statement for statement in statements if statement.endswith("?")]
    if questions:
        return RefusedText("asks instead of telling", questions[0])
    return Comparison(tuple(commonalities), tuple(differences), text)
