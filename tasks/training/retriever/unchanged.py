"""Say whether a text may say that two images show the same, so that it is no negative of a pair that does (ours).

Reads and writes nothing. The reading errs on one side: a text that is wrongly taken to say so is only spared the pairs
without a change, and such a pair the negative.
"""

import re

from pairwright.tasks.texts.words import says_no_change

MOST_CHARACTERS = 2000
CHANGED = (
    r"(?:chang\w+|differ\w*|alter\w*|modif\w+|mov\w+|variations?|added|removed|replaced|missing|happen\w*|occurr\w*)"
)
SAME = re.compile(
    r"\b(?:unchanged|unaltered|unmodified|identical|indistinguishable|duplicates?"
    rf"|(?:no|not|zero|not one|without(?: any)?|hardly any|\w+n['’ ]t|never) (?:\w+ ){{0,4}}?{CHANGED}"
    rf"|(?:nothing|none|neither) (?:\w+ ){{0,4}}?{CHANGED}"
    r"|(?:is|are|was|were|remains?|stays?|stayed|remained|looks?|seems?|appears?|exactly|still|all|both|be)"
    r" (?:\w+ ){0,2}?(?:the )?same"
    r"|same (?:scene|image|photo\w*|picture|view|thing|content|as before)s?|just like before)\b",
    re.IGNORECASE,
)
EXCEPT = re.compile(r"\b(?:but|except|apart from|aside from|other than|however|though|only)\b", re.IGNORECASE)


def may_say_no_change(text: str) -> bool:
    """Say whether the text, or a part of it, may be a statement that nothing changed; a long one is read in part."""
    text = " ".join(text[:MOST_CHARACTERS].split())
    return says_no_change(text) or bool(SAME.search(text) and not EXCEPT.search(text))
