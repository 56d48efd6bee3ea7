"""Take off what models write around an answer (ours).

Thoughts, code fences, frames (a box, tags, a list of one item), roles, emphasis, quotation marks,
prefaces, remarks, emoji and control tokens at the start and the end. What stands inside of the
answer stays, for the checks of ``read_response``. JSON keeps its characters: only thoughts, fences
and tokens around it are taken off.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from pairwright.schemas.control_tokens import TOKEN

ROUNDS = 8  # parts may be nested: a fence within a role's answer

_NAMES = "think|thinking|thought|thoughts|reasoning|reflection|analysis|scratchpad"
_TAG_END = r"\s?/?>"
OPENED = (
    rf"(?i:<\|?(?:[a-z]+:)?(?:{_NAMES})(?:_start)?\|?{_TAG_END}|\[THINK\])"
    r"|\u25c1think\u25b7|<\|?(?:begin_of_thought|start_of_thought|START_THINKING)\|?>"
    r"|<unused94>|<\|inner_prefix\|>|<\|channel\|?>\s*(?:analysis|commentary|thought)\b(?:<\|message\|>)?"
)
CLOSED = (
    rf"(?i:<\|?/(?:[a-z]+:)?(?:{_NAMES})\|?{_TAG_END}|<\|?(?:{_NAMES})_end\|?>|\[/THINK\])"
    r"|\u25c1/think\u25b7|<\|?(?:end_of_thought|END_THINKING)\|?>|<unused95>"
    r"|<\|inner_suffix\|>|<channel\|>|assistantfinal(?=\S)"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>\s*final\b"
    r"(?:\s*<\|constrain\|>\s*\w+)?(?:<\|message\|>)?"
)
"""Marks around thoughts: Qwen, DeepSeek, GLM, Magistral, Kimi, Seed, Cohere, MedGemma, Apertus,
Gemma 4, gpt-oss."""
_BLOCK = re.compile(rf"(?:{OPENED}).*?(?:{CLOSED})", re.DOTALL)
_OPENED = re.compile(OPENED)
_CLOSED = re.compile(CLOSED)
_ALOUD = re.compile(
    r"\A[\s*_#]*(?:thoughts?|thinking(?: process)?|reasoning|analysis)[*_]*:.*"
    r"\n[ \t]*[*_#]*[ \t]*(?=[*_]*(?:final )?(?:answer|response|description|output)[*_]*:)"
    # without a heading, before that of a final answer
    r"|\A(?:okay|ok|alright|let me|let['\u2019]s|hmm|first|wait|so|the user)\b.*"
    r"\n[ \t]*[*_#]*[ \t]*(?=[*_]*final (?:answer|response|description|caption|output)[*_]*:)",
    re.IGNORECASE | re.DOTALL,
)
"""Thoughts in the answer itself, before a heading of the answer."""
_ROLE_NAME = (
    r"(?:assistant|ai|bot|chatbot|gpt|chatgpt|model|answer|response|reply|output|description"
    r"|caption|image description|image caption|(?:my |the )?final (?:answer|response|description)"
    r"|(?:my |the |corrected |edited |rewritten )answer|template|(?:the )?difference"
    r"|(?:the )?description of the differences?|differences(?=\W*\sthe difference\b))"
)
_SWITCH = r"/(?:no_?)?think"  # Qwen's, which models repeat
_FIRST_TOKENS = re.compile(
    rf"\s*(?:(?:{TOKEN})(?:\s*(?i:assistant|model|final)(?=\s*(?:{TOKEN}|\n))|:)?|{_SWITCH}(?=\s))"
)
_LAST_TOKENS = re.compile(rf"(?:(?:{TOKEN})|(?<=\s){_SWITCH})\s*\Z")
_ROLE = re.compile(
    rf"\s*(?:[#>]+[ \t]*)?[*_]*{_ROLE_NAME}[*_]*[ \t]*:[*_]*(?!//)\s*"
    r"|\s*(?:#+[ \t]*)?[*_]*(?:assistant|model|answer|response|description|caption|difference"
    r"|image description|image caption|final answer|differences(?=\W*\sthe difference\b))[*_]*"
    r"[ \t]*\n\s*",
    re.IGNORECASE,
)
_ECHO = re.compile(r"\s*(?:system|user)[ \t]*:?\n.*\n(?:assistant|model)[ \t]*:?\n\s*", re.DOTALL)
"""The prompt, repeated by servers that decode it with the answer."""
_FENCE_LINE = re.compile(r"^[ \t]*(?:```+|~~~+)[\w+-]*[ \t]*$\n?", re.MULTILINE)
_ONE_FENCE = re.compile(
    r"(?P<before>[^`]*?)(?:```+|~~~+)(?:(?P<language>[\w+-]*)[ \t]*\n|[ \t]*(?:json\b)?)"
    r"(?P<inside>.*?)\s*(?:```+|~~~+)(?P<after>[^`]*)",
    re.DOTALL,
)
_BOLD = re.compile(r"\*\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*\*")
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3}|`)(?=\S)([^*`]+?)(?<=\S)\1", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u2018": "\u2019",
           "\u00ab": "\u00bb", "\u300c": "\u300d"}  # fmt: skip
_GREETING = (
    r"(?:sure|certainly|of course|absolutely|okay|ok|great|yes|here|below|the following|following"
    r"|based on|after|let['\u2019]s|i['\u2019]d|i would|i['\u2019]ll|i will|i am|i['\u2019]m"
    r"|happy|glad)"
)
_PREFACE = re.compile(rf"\s*[*_#]*{_GREETING}\b[^\n]{{0,300}}:[*_]*[ \t]*\n\s*", re.IGNORECASE)
REMARK = (
    r"[ \t*_>#(\[-]{0,8}(?:(?:notes?|n\.b\.|nb|disclaimer|explanation|reasoning|justification"
    r"|clarification|remarks?|comments?|rationale|confidence|caveat|word count|p\.s\.)[*_]*:"
    r"|(?:note that|please (?:note|let|feel)|i hope|hope (?:this|that|it)|let me know|feel free"
    r"|thank you|if you (?:need|have|want|would)|is there anything|would you like"
    r"|do you (?:want|need|have))\b)"
)
"""Beginning of a remark about the answer, or of a farewell."""
_NAMED = (
    r"(?:captions?|descriptions?|answers?|sentences?|summary|differences?|statements?|response|text"
    r"|output|json|template)"
)
_PREFACE_INLINE = re.compile(
    r"\s*(?:sure|certainly|of course|absolutely|okay|ok|here(?:['\u2019]s| is| are))\b"
    rf"(?:[^\n:.]{{0,20}}[,!.])?[^\n:.]{{0,80}}\b{_NAMED}\b[^\n:.]{{0,80}}:[*_]*[ \t]+(?=\S)"
    r"|\s*(?:sure(?: thing)?|certainly|of course|absolutely)[!.][ \t]+(?=[A-Z\"\u201c])",
    re.IGNORECASE,
)
"""Preface on the answer's own line: it announces a text, or only agrees."""
_BOXED = re.compile(
    r"\s*(?:[^\n\\]{0,60}\bis:?\s*)?\$*\\boxed\{(?:\\text\{(?P<text>.*)\}|(?P<plain>.*))\}\$*\.?\s*",
    re.DOTALL,
)
_TAGGED = re.compile(r"\s*<(?P<name>[a-z][a-z_]{0,30})>(?P<inside>.*)</(?P=name)>\s*", re.DOTALL)
_ITEM = re.compile(r"\s*[-*\u2022][ \t]+(?=[^\s-])|\s*\u2022")
_EMOJI = re.compile(
    "(?<=[.!?\"'\u201d\u2019)])[\\s\u2600-\u27bf\ufe0f\u200d\U0001f300-\U0001faff]+\\Z"
)
_NEXT_TURN = re.compile(
    rf"(?<=\S)\s*(?:{TOKEN})\s*(?:(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>"
    r"|<\|start\|>|<\|start_of_role\|>)(?!\s*(?:assistant|model))|\[INST\]"
    r"|<\|(?:user|system)\|>)"
)
"""End of a turn, with the start of the user's behind it."""
_REMARK_LINE = re.compile(REMARK, re.IGNORECASE)
_REMARK_BEHIND = re.compile(rf"(?<=[.!?\u2026\"'\u201d\u2019)*])[ \t]+{REMARK}", re.IGNORECASE)
_TURN = re.compile(
    r"\n[ \t]*(?:[#>]+[ \t]*)?[*_]*(?:user|human|assistant|system|question|instruction"
    r"|input)[*_]*[ \t]*:",
    re.IGNORECASE,
)
"""Header of a further turn, which models that do not stop invent."""
_RULE = re.compile(r"[ \t]*(?:-{3,}|\*{3,}|_{3,}|#{2,})?[ \t]*")
_UNSEEN = re.compile("[\ufeff\u200b\u200e\u200f\u061c\u2060\xad]")
"""Invisible marks: byte order, no width, direction of neutral characters, word joiner, soft
hyphen."""
_JSON = re.compile(r"\s*(?:\{|\[\s*[\[{\"\d\]-])")


@dataclass(frozen=True, slots=True)
class CleanText:
    """Answer without what a model writes around it."""

    text: str
    removed: tuple[str, ...] = ()
    """Kinds of what was taken off: "thoughts", "fence", ..."""

    @property
    def thought(self) -> bool:
        """Return whether the text had thoughts."""
        return "thoughts" in self.removed


def clean_text(text: str) -> CleanText:
    """Return the answer alone; empty where the text is thoughts alone."""
    removed: dict[str, None] = {}
    for _ in range(ROUNDS):
        before = text
        for kind, strip in STEPS.items():
            if kind in AROUND_PROSE and _JSON.match(text):
                continue
            shorter = strip(text)
            if shorter.strip() != text.strip():
                removed[kind] = None
                text = shorter
        if text == before:
            break
    return CleanText(text.strip(), tuple(removed))


def strip_thoughts(text: str) -> str:
    """Return what follows the thoughts, whose opening mark may be missing."""
    if _CLOSED.search(text):
        text = _BLOCK.sub("\n", text)
    closed = list(_CLOSED.finditer(text))
    if closed:
        text = text[closed[-1].end() :]
    opened = _OPENED.search(text)
    if opened:  # they were cut off
        text = text[: opened.start()]
    return _ALOUD.sub("", text)


def _strip_tokens(text: str) -> str:
    """Return the text without control tokens at its start and its end, and without a next turn."""
    first = _FIRST_TOKENS.match(text)
    if first:
        text = text[first.end() :]
    turn = _NEXT_TURN.search(text)
    if turn:
        text = text[: turn.start()]
    last = _LAST_TOKENS.search(text[-200:])
    if last:
        text = text[: len(text) - len(last[0])]
    return text


def _strip_fence(text: str) -> str:
    """Return the inside of a single code block, or else the text without fences."""
    if "```" not in text and "~~~" not in text:
        return text
    block = _ONE_FENCE.fullmatch(text.strip())
    if block and _is_frame(block["before"], block["after"]):
        return block["inside"]
    return _FENCE_LINE.sub("", text)


def _is_frame(before: str, after: str) -> bool:
    """Return whether texts around a code block are a preface and remarks, not the answer."""
    before = before.strip()
    is_preface = not before or before.endswith(":")
    lines = [line for line in after.splitlines() if line.strip()]
    is_remark = all(_REMARK_LINE.match(line) for line in lines)
    is_sentence = len(lines) == 1 and ":" not in after
    return is_preface and (is_remark or is_sentence)


def _strip_preface(text: str) -> str:
    preface = _PREFACE.match(text) or _PREFACE_INLINE.match(text)
    return text[preface.end() :] if preface else text


def _strip_frame(text: str) -> str:
    """Return what stands in a box, in tags, in a quotation or as the only item of a list."""
    boxed = _BOXED.fullmatch(text)
    if boxed:
        return boxed["text"] or boxed["plain"] or ""
    tagged = _TAGGED.fullmatch(text)
    if tagged and f"<{tagged['name']}>" not in tagged["inside"]:
        return tagged["inside"]
    lines = text.strip().split("\n")
    if all(line.startswith(">") for line in lines):
        return "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)
    item = _ITEM.match(text)
    return text[item.end() :] if item and len(lines) == 1 else text


def _strip_role(text: str) -> str:
    echo = _ECHO.match(text)
    if echo:
        return text[echo.end() :]
    role = _ROLE.match(text)
    if role and text[role.end() :].strip():
        return text[role.end() :]
    return text


def _strip_emphasis(text: str) -> str:
    match = _EMPHASIS.fullmatch(text.strip())
    return _BOLD.sub(r"\1", match[2] if match else text)


def _strip_quotes(text: str) -> str:
    """Return a quoted text without its quotation marks; two quotations keep theirs."""
    stripped = text.strip()
    if re.search(
        r"[.!?][\"'\u201d\u2019]\.\Z", stripped
    ):  # a full stop of its own behind the quotation
        stripped = stripped[:-1]
    if len(stripped) < 2:
        return text
    closing = _QUOTES.get(stripped[0], "")
    if not closing or stripped[-1] not in closing:
        return text
    inside = stripped[1:-1]
    is_apostrophe = stripped[0] in "'\u2018"
    marks = re.findall(r"(?<!\w)['\u2018]|['\u2019](?!\w)", inside) if is_apostrophe else inside
    if is_apostrophe and len(marks) % 2 == 0:
        return inside
    if not is_apostrophe and not set(inside) & {stripped[0], *closing}:
        return inside
    return text


def _strip_remarks(text: str) -> str:
    """Return the text without remarks, farewells and further turns at its end."""
    turn = _TURN.search(text, 1)
    if turn and text[: turn.start()].strip():
        text = text[: turn.start()]
    lines = text.rstrip().split("\n")
    while len(lines) > 1 and (_RULE.fullmatch(lines[-1]) or _REMARK_LINE.match(lines[-1])):
        lines.pop()
    behind = _REMARK_BEHIND.search(lines[-1])
    if behind:
        lines[-1] = lines[-1][: behind.start()]
    return "\n".join(lines)


def _strip_emoji(text: str) -> str:
    return _EMOJI.sub("", text)


def _strip_unseen(text: str) -> str:
    return _UNSEEN.sub("", text)


STEPS: dict[str, Callable[[str], str]] = {
    "thoughts": strip_thoughts,
    "tokens": _strip_tokens,
    "invisible characters": _strip_unseen,
    "fence": _strip_fence,
    "frame": _strip_frame,
    "preface": _strip_preface,
    "role": _strip_role,
    "remarks": _strip_remarks,
    "emoji": _strip_emoji,
    "emphasis": _strip_emphasis,
    "quotation marks": _strip_quotes,
}
"""Kinds of what is taken off, in order, and how."""
AROUND_PROSE = ("frame", "preface", "role", "remarks", "emoji", "emphasis", "quotation marks")
