"""Find the sentences of a text by their ends (the rules are ours).

Reads and writes nothing. What is not the end of a sentence for certain (a title, an initial, the number of an item)
does not count as one.
"""

import re

END = re.compile(r"[.!?…]+[\"'”’)\]]*(?= [\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])")
OPENER = re.compile(
    r" [\"'“‘(\[]*(?:The|An?|It|Its|In|On|At|To|There|This|That|These|Those|He|She|They|His|Her|Their|Some|Several|Many"
    r"|Both|One|Two|Three|Behind|Below|Above|Next|Near|Another|Overall|Also|Beside|Beyond|Under|With|And|But)\b(?!\.)"
)
"""What a sentence usually begins with; after an abbreviation that may end one, nothing else does."""
TITLES = "mr mrs ms dr prof gen col capt lt sgt rev fig figs vs approx cf al e.g i.e ca"
SHORTENED = "st mt ave blvd rd sq jr sr co inc ltd corp etc dept est min max p.m a.m"
NEVER_LAST, SOMETIMES_LAST = frozenset(TITLES.split()), frozenset(SHORTENED.split())
"""Abbreviations that end no sentence, and those that may."""
LETTERS = re.compile(r"[A-Z]|[^\W\d_](?:\.[^\W\d_])+")
"""An initial ("J."), or letters with full stops ("U.S.")."""
ENUMERATED = re.compile(r"\(?(?:\d{1,2}|[a-z])[.)]+", re.IGNORECASE)


def split_by_rules(text: str) -> tuple[str, ...]:
    """Return the sentences; joined by spaces they are the text, put on one line."""
    text = " ".join(text.split())
    sentences: list[str] = []
    start = 0
    for match in END.finditer(text):
        if _is_end(text[start : match.end()], text[match.end() :]):
            sentences.append(text[start : match.end()])
            start = match.end() + 1
    return (*sentences, text[start:]) if text else ()


def _is_end(before: str, after: str) -> bool:
    """Say whether a sentence ends between the two: not after an abbreviation, an initial, or the number of an item."""
    if ENUMERATED.fullmatch(before):
        return False
    last = before.rpartition(" ")[2].lstrip("\"'“‘([")
    word = last.removesuffix(".")
    if word == last or word.endswith((".", "!", "?")):  # another end than one full stop, or a quotation's
        return True
    if word.lower() in NEVER_LAST or (word.lower() in ("no", "nos") and after[1:2].isdigit()):
        return False
    return bool(OPENER.match(after)) if word.lower() in SOMETIMES_LAST or LETTERS.fullmatch(word) else True


def ends_short(text: str) -> bool:
    """Say whether a text ends in an abbreviation that ends no sentence: it was cut off at its full stop."""
    return text.rpartition(" ")[2].lower().lstrip("\"'“‘([").removesuffix(".") in NEVER_LAST
