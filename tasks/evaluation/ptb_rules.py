"""Tokenise as Stanford's PTBTokenizer 3.4.1 with ``-preserveLines -lowerCase``, without Java.

coco-caption's tokeniser is a scanner: the rule with the longest match wins, lookahead included (as
the 's after a word), and the earlier of two equally long ones. The rules were derived by
comparison, and tests compare wherever there is Java: equal on captions, hyphens, quotes,
contractions, numbers and common symbols; different in rare cases (addresses with odd endings,
telephone numbers, emoticons, some newspaper abbreviations and non-Latin scripts).
"""

import re
from functools import lru_cache

NBSP = "\N{NO-BREAK SPACE}"
_APOSTROPHE = "['’\x92]"
_QUOTE = "['’\x92`‘\x91‛]"
_NUMERALS = r"\u00B2\u00B3\u00B9\u00BC-\u00BE\u2070-\u209C\u2150-\u218B"
_LETTER = (
    rf"(?:[^\W\d_{_NUMERALS}]"
    r"|[\u00AD\u0300-\u036F\u0591-\u05BD\u064B-\u065E\u0900-\u0903\u093C\u093E-\u094E]"
    r"|&[aeiou](?:acute|grave|uml);)"
)
_ALNUM = rf"(?:{_LETTER}|\d)"
_WORD = rf"{_LETTER}{_ALNUM}*(?:[.!?]{_LETTER}{_ALNUM}*)*"
_UNSIGNED = r"(?:\d*(?:[.:,]\d+)+|\d+)"
_NUMBER = rf"[-+]?{_UNSIGNED}"
_HYPHEN = "[-_\u058a\u2010\u2011]"
_HYPHENED = rf"{_ALNUM}(?:{_ALNUM}|[.,])*(?:-(?:[a-z](?:\.[a-z])+\.|{_ALNUM}+))+"
_ELIDED = rf"(?:[dol]{_QUOTE}{_ALNUM})?"
_THING = rf"{_ELIDED}(?:{_ALNUM}+|{_NUMBER})(?:{_HYPHEN}{_ELIDED}(?:{_ALNUM}+|{_UNSIGNED}))*"
_SHORT = rf"{_APOSTROPHE}(?:m|s|d|re|ve|ll|em)"
_ALWAYS = (
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri calif fla "
    "inc cos? corp ltd univ tel est ext sq ft jr sr bros esq ed\\.d ph\\.d etc al bldg vs mrs? ms "
    "drs? profs? lt col gen maj sgt capt cpl ste? ave pres mt dept blvd rd [a-z](?:\\.[a-z])+"
).replace(" ", "|")
_OPENERS = (
    "A|About|According|Additionally|After|An|As|At|But|He|Her|Here|However|If|In|It|Last|Many"
    "|More|Now|Once|One|Other|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They"
    "|This|We|What|When|While|Yet|You"
)
_URL = (
    r"(?:(?:https?|ftp)://[^\s<>|()\[\]{}\"]+(?<![.!?,;:&])"
    r"|(?:www\.)?(?:[\w-]{1,99}\.){1,9}(?:com|net|org|edu)(?:/[^\s<>|()]+)?)"
)
_NOT_LETTER = r"(?=[^a-z]|$)"

_WORDS = (
    r"(can)not",
    rf"(gon|got|lem|gim|wan)(?:na|ta|me){_NOT_LETTER}",
    rf"({_LETTER}*[a-mo-z])n{_APOSTROPHE}t",
    rf"(n{_APOSTROPHE}t){_NOT_LETTER}",
    rf"(n{_APOSTROPHE}{_LETTER}{{2}})",
    rf"({_WORD}){_SHORT}",
    rf"({_WORD})",
    rf"([ldj]{_APOSTROPHE}|ma{_APOSTROPHE}am|c{_APOSTROPHE}mon|n?e{_APOSTROPHE}er"
    rf"|o{_APOSTROPHE}(?:er|clock)|ol{_APOSTROPHE})",
    rf"(y{_APOSTROPHE}){_LETTER}",
    rf"((?:{_ALWAYS})\.)",
    rf"([a-z]\.)(?! +(?-i:{_OPENERS})\b(?!['’]))",
    r"((?:pp|ca|figs?|prop|nos?|art|op)\.) ?\d",
    rf"({_WORD}\.)[,;:]",
    r"((?-i:[A-Z]+(?:(?:[+&]|&amp;)[A-Z]+)+))",
)
_EMAIL = (
    r"(<?[a-z0-9][^\s\"<>|(){}]{0,200}@(?:[^\s\"<>|(){}.]{1,99}\.){0,9}[^\s\"<>|(){}.]{1,99}>?)"
)
_WORDS_OR_NUMBERS = (
    rf"({_HYPHENED}){_SHORT}",
    rf"({_THING}){_SHORT}",
    rf"({_THING})",
    rf"({_HYPHENED})",
    r"([a-z0-9]+(?:-[a-z]+){0,2}(?:\\?/[a-z0-9]+(?:-[a-z]+){0,2}){1,2})",
    rf"({_URL})",
    _EMAIL,
)
_NUMBERS = (
    r"(\d{1,2}[-/]\d{1,2}[-/]\d{2,4})",
    rf"({_NUMBER})",
    r"((?:\d{1,4}[- \u00A0])?\d{1,4}(?:\\?/|\u2044)\d{1,4})",
)
_SYMBOLS = (
    _EMAIL,
    rf"({_APOSTROPHE}t)(?:is|was)",
    rf"({_APOSTROPHE}n{_APOSTROPHE}|{_APOSTROPHE}(?:em|till?|cause|[2-9]0s))",
    rf"({_APOSTROPHE}n){_NOT_LETTER}",
    rf"({_SHORT}){_NOT_LETTER}",
    rf"({_APOSTROPHE}\d\d)(?=\s|$)",
    r"(</?[a-z][\w:.-]*(?:\s+[\w:.-]+(?:=(?:\"[^\"]*\"|'[^']*'|[\w:.-]+))?)*\s*/?>"
    r"|<[!?][a-z-][^<>]*>)",
    r"(&(?:mdash|amp|lt|gt|quot|nbsp|apos|[aeiou](?:acute|grave|uml)|#\d+);)",
    r"(@[a-z_][a-z_0-9]*|#[^\W\d_]+)",
    rf"({_NUMBER})",
    r"([?!]{2,}|<<|>>|\.{3,}|\*+|_+|@+|\#+|--+|``|'')",
    r"([\u207A\u207B\u208A\u208B]?(?:[\u2070\u00B9\u00B2\u00B3\u2074-\u2079]+|[\u2080-\u2089]+))",
    r"(\S)",
)
"""Each rule's first group is the word; the rest of the match is lookahead."""
_KEPT = re.compile(
    "[!-~\u00a1-\u00ac\u00ae-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u2016\u2017\u201a"
    "\u201e-\u2023\u2030-\u2038\u203b\u203c\u203e-\u2042\u2044\u2070-\u207e\u208a-\u208e\u20ac"
    "\u2100-\u214f\u2190-\u245f\u249c-\u24e9\u2500-\u2775\u2794-\u2bff\u3001\u3002\u3012\u30fb"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    "\uffe0\uffe1\uffe5\uffe6]"
)
"""Symbols that are words; others, such as emoji, vanish."""
_WRITTEN = {
    "(": "-lrb-",
    ")": "-rrb-",
    "[": "-lsb-",
    "]": "-rsb-",
    "{": "-lcb-",
    "}": "-rcb-",
    "\u00a2": "cents",
    "\u00a3": "#",
    "\u00a4": "$",
    "\u20ac": "$",
    "\u00bc": "1/4",
    "\u00bd": "1/2",
    "\u00be": "3/4",
    "\u2153": "1/3",
    "\u2154": "2/3",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": "''",
    "&mdash;": "--",
    "&nbsp;": "",
    "&apos;": "",
}
_DROPPED = frozenset(["''", "``", "--", "...", *"'`.?!,:-;\"“”‘’‛«»‹›–—―…"])
"""coco-caption's punctuation, and PTBTokenizer's spellings of it."""
# Line breaks, and characters beyond 16 bits.
_PARTING = re.compile("[\n\r\x0b\x0c\u2028\u2029\U00010000-\U0010ffff]")
# A word to which no other rule applies.
_PLAIN = re.compile(r"(?!(?i:cannot|gonna|gotta|lemme|gimme|wanna)\b)[A-Za-z]+(?=,? |$)")


@lru_cache(maxsize=1024)
def _rules(first: str) -> tuple[re.Pattern[str], ...]:
    """Return the rules for words that begin with a character."""
    if first.isspace():
        rules = ()
    elif first.isdecimal():
        rules = _NUMBERS + _WORDS_OR_NUMBERS
    elif first.isalpha():
        rules = _WORDS + _WORDS_OR_NUMBERS
    else:
        rules = _SYMBOLS
    return tuple(re.compile(rule, re.IGNORECASE) for rule in rules)


def split_ptb_words(text: str) -> str:
    """Return the words of a text, lower-case, without punctuation, separated by spaces."""
    text = _PARTING.sub(" ", text)
    position = 0
    words: list[str] = []
    while position < len(text):
        match = _match_word(text, position)
        if match is None:
            position += 1
            continue
        group = match.lastindex or 0
        words.append(_write(match[group]))
        position = match.end(group)
    return " ".join(word for word in words if word and word not in _DROPPED)


def _match_word(text: str, position: int) -> re.Match[str] | None:
    """Return the longest match of a rule at a position."""
    plain = _PLAIN.match(text, position)
    if plain:
        return plain
    matches = [rule.match(text, position) for rule in _rules(text[position])]
    return max(
        filter(None, matches),
        key=re.Match.end,
        default=None,
    )


def _write(word: str) -> str:
    if word in _WRITTEN:
        return _WRITTEN[word]
    if len(word) > 1 and not set(word) - set("-."):
        return "--"
    if len(word) == 1 and not word.isalnum() and not _KEPT.match(word):
        return ""
    if word.isascii() and word.isalnum():
        return word.lower()
    word = "".join(_WRITTEN[letter] if letter in "()" else letter for letter in word)
    return re.sub(_QUOTE, "'", word.replace("\u00ad", "").replace(" ", NBSP)).lower()
