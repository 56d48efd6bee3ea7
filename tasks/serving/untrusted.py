"""Make text that others wrote safe to put into a prompt: it stays data, whatever it says.

Captions, alternative texts, file names, people's differences and edit instructions are written by strangers. What chat
templates use to tell turns, roles and images apart is taken out of them: control tokens of all families, also hidden
ones (zero-width characters, compatibility forms, combining marks, HTML entities, tokens inside of tokens), and headers
like "User:" that would look like the prompt's own lines. What is left is one line of bounded length.

Text is searched in a plain form of it (compatibility forms decomposed, marks and entities resolved) but removed from
where it stands, so ordinary words in any script keep their characters.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, pairwise

MOST = 6000
"""Characters that a value keeps: a summary of 750 tokens has about 4,000."""
ROUNDS = 8
"""Tokens nested deeper than this are an attack: all brackets and bars go then."""

# Removed wherever they stand: controls, format characters that show nothing, selectors, tags, halves of surrogates.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # Joiners shape Persian, Indic scripts and emoji; beside anything else they only hide.
    "|(?<![^\0-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\0-\x7f\u200c\u200d])"
    "|(?<![^\\s\ufe0e\ufe0f])[\ufe0e\ufe0f]"
)
_ENTITY = re.compile(r"&(?:amp;|#0*38;|#[xX]0*26;)*((?:#\d{1,9}|#[xX][\da-fA-F]{1,8}|[A-Za-z]\w{1,31});?)")

_OPEN, _CLOSE, _BAR = (
    "[<\u2039\u3008\u27e8\u276e]",
    "[>\u203a\u3009\u27e9\u276f]",
    "[|\xa6\u01c0\u2223\u2502\u2503\u2758]",
)
_NAMED = (
    *("INST", "SYS", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_RESULTS", "TOOL_CALLS", "TOOL_CONTENT", "CALL_ID"),
    *("MODEL_SETTINGS", "IMG_BREAK", "IMG_END", "BEGIN_AUDIO", "THINK", "CLS", "UNK", "BOS", "EOS", "GMASK", "SMASK"),
    *("SYSTEM", "USER", "ASSISTANT", r"CONTROL_\d+"),
)
_TOKEN = re.compile(
    rf"{_OPEN}\s*{_BAR}[^<>|]{{0,64}}?{_BAR}\s*{_CLOSE}"  # ChatML, Llama 3, Phi, Qwen, DeepSeek, GLM, Granite, ...
    r"|<{1,3}[/!]?(?:[^\W\d]|0[xX])[\w:.=~-]{0,63}/?>{1,3}"  # <s>, <<SYS>>, <start_of_turn>, <image>, <think>, <0x0A>
    rf"|\[/?(?i:{'|'.join(_NAMED)})\]"  # Mistral, BERT, GLM
    r"|\[/?(?:IMG|PREFIX|MIDDLE|SUFFIX|ARGS|AUDIO|PAD|MASK|SEP|TRANSCRIBE)\]"  # in small letters these are words
    r"|\[\|[^\[\]|]{0,64}\|\]|[\[\]][!a-z]{0,2}~[!a-z]{0,2}[\[\]]"  # EXAONE; MiniMax
    r"|>>[A-Z_]{2,32}<<|\|{1,3}(?:SPEAKER|NEWLINE|ENDOFTEXT|[A-Z]+_ADDRESS|PHONE_NUMBER)\|{1,3}"  # Falcon, Fuyu, OLMo
)
_RIM = re.compile(rf"{_OPEN}{_BAR}|{_BAR}{_CLOSE}")  # halves of tokens
_BRACKETS = re.compile(rf"{_OPEN}|{_CLOSE}|{_BAR}|[\[\]]")

_ROLE = (
    "(?:system|user|human|assistant|ai|bot|chatbot|gpt|model|developer|tool|function|observation|instruction|response)"
)
_START = r"[ \t>*_~`=-]{0,16}"
_GAP = r"[ \t*_#]{0,8}"
_HEADER = re.compile(
    rf"(?im)^(?:{_START}(?:\#+{_GAP}{_ROLE}\b(?:{_GAP}:|{_GAP}$)|{_ROLE}{_GAP}:)[*_]*)+"  # "### Assistant:", "User:"
    r"|(?:first|second) image could be described as\s*:|here is the (?:difference|prompt)\s*:"  # the prompts' own
    r"|generate the description strictly according to the template\s*:?"
)
_IMAGE_HEADER = re.compile(
    rf"(?im)^{_START}\#*{_GAP}(?:(?:image|picture|photo)[ \t]+(?:\d+|one|two)|(?:first|second)[ \t]+image){_GAP}(:)"
)
_ROLE_LINE = re.compile(rf"(?im)^{_START}{_ROLE}{_GAP}$")
_QUOTES = re.compile('["\u201c\u201d\u201e\u201f\u301d\u301e\u301f\uff02]')

_Plain = tuple[str, list[int], list[int]]


def as_data(text: str, *, most: int = MOST) -> str:
    """Return the text on one line, without control tokens and forged headers, of at most ``most`` characters.

    Whatever comes out goes through unchanged a second time.
    """
    text = text[: 8 * most]  # hostile texts are long, and nothing behind this would be kept
    while (after := _cut(" ".join(_stripped(text).split()), most)) != text:
        text = after
    return text


def within_quotes(text: str, *, most: int = MOST) -> str:
    """Return data for a prompt that itself has double quotes around the value: none of those inside can end it."""
    return _QUOTES.sub("'", as_data(text, most=most)).rstrip("\\")


def quoted(text: str, *, most: int = MOST) -> str:
    """Return data in double quotes, which nothing inside can end."""
    return f'"{within_quotes(text, most=most)}"'


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return text[:most].rpartition(" ")[0] or text[:most]


def _stripped(text: str) -> str:
    """Remove what may not stay, and what comes to light by that."""
    for turn in count():
        text = _INVISIBLE.sub("", text)
        plain, starts, ends = _plain(text)
        spans = [(starts[start], ends[end - 1]) for start, end in _found(plain, all_brackets=turn > ROUNDS)]
        if not spans:
            break
        # What follows a token stands as at the start of a line.
        edges = [(0, 0), *spans, (len(text), len(text))]
        text = "\n".join(text[end:start] for (_, end), (start, _) in pairwise(edges))
    return "".join(_without_colons(text))


def _found(plain: str, *, all_brackets: bool) -> list[tuple[int, int]]:
    """Return where the first kind stands of what has to go; headers come to light without the tokens before them."""
    for pattern in (_BRACKETS,) if all_brackets else (_TOKEN, _RIM):
        if found := [match.span() for match in pattern.finditer(plain)]:
            return found
    found = [match.span() for match in _HEADER.finditer(plain)]
    if not found and "\n" in plain.rstrip():
        found = [match.span() for match in _ROLE_LINE.finditer(plain)]
    return found


def _without_colons(text: str) -> Iterator[str]:
    """Yield the text so that "Image 2:" at the start of a line is no header: "Image 2"."""
    plain, starts, ends = _plain(text)
    at = 0
    for match in _IMAGE_HEADER.finditer(plain):
        yield text[at : starts[match.start(1)]]
        yield " "
        at = ends[match.start(1)]
    yield text[at:]


def _plain(text: str) -> _Plain:
    """Return the text's plain form, and for each of its characters where in the text it starts and ends."""
    if text.isascii():
        plain, starts = text, list(range(len(text)))
    else:
        pieces = [(piece, at) for at, character in enumerate(text) for piece in _folded(character)]
        plain, starts = "".join(piece for piece, _ in pieces), [at for _, at in pieces]
    plain = _one_line_end(plain)
    ends = _next_starts(starts, len(text))
    for _ in range(2 if "&" in plain else 0):
        plain, starts, ends = _unescaped(plain, starts, ends)
    return plain, starts, ends


def _one_line_end(text: str) -> str:
    return text.translate({ord(end): "\n" for end in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"})


def _next_starts(starts: list[int], length: int) -> list[int]:
    """Return where each character ends: where the next begins, so that marks go with what they stand on."""
    ends, end, after = [length] * len(starts), length, length
    for at in range(len(starts) - 1, -1, -1):
        if starts[at] != after:
            end, after = after, starts[at]
        ends[at] = end
    return ends


def _unescaped(plain: str, starts: list[int], ends: list[int]) -> _Plain:
    characters: list[str] = []
    first: list[int] = []
    last: list[int] = []
    for piece, start, end in _entities(plain):
        characters.extend(piece)
        whole = len(piece) == end - start and plain[start:end] == piece
        first.extend(starts[start:end] if whole else [starts[start]] * len(piece))
        last.extend(ends[start:end] if whole else [ends[end - 1]] * len(piece))
    return _one_line_end("".join(characters)), first, last


def _entities(plain: str) -> Iterator[tuple[str, int, int]]:
    """Yield the pieces between entities as they are, and entities as what they stand for."""
    at = 0
    for match in _ENTITY.finditer(plain):
        meant = html.unescape(f"&{match[1]}")
        if meant != match[0]:
            yield plain[at : match.start()], at, match.start()
            yield "".join(map(_folded, meant)), *match.span()
            at = match.end()
    yield plain[at:], at, len(plain)


@lru_cache(maxsize=65536)
def _folded(character: str) -> str:
    """Return a character's plain form: compatibility forms decomposed, marks and what shows nothing left out."""
    if character.isascii():
        return "" if _INVISIBLE.fullmatch(character) else character
    return "".join(
        part
        for part in unicodedata.normalize("NFKD", character)
        if unicodedata.category(part) not in ("Mn", "Me", "Cf", "Cs") and not _INVISIBLE.fullmatch(part)
    )
