"""Find the words of a text that say something (ours).

They are all but articles, pronouns, forms of "be" and "have", prepositions that say little, and words for the picture
as such. Plurals count as singulars, all negations as one word.
"""

import re

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
DENYING = "no not none never nothing neither nor without lacks lack lacking missing absent"
PICTURE = "image picture photo photograph photography shot view scene"
SMALL = (
    "a an the this that these those it its itself they their them there here which who whose what of and or as in on "
    "at to with by for from into but while some any all also same is are was were be been being am has have had having "
    "do does did doing s"
)
NEGATIONS = frozenset(DENYING.split())
EMPTY = frozenset(f"{PICTURE} {SMALL}".split())


def content_words(text: str) -> list[str]:
    """Return the words of a text that say something, in order and in lower case; a negation is "no"."""
    found = (_plain(word.lower().replace("’", "'")) for word in WORD.findall(text))
    return [word for word in found if word not in EMPTY]


def _plain(word: str) -> str:
    """Return a word's singular, or "no" for what denies."""
    if word in NEGATIONS or word.endswith("n't"):
        return "no"
    word = word.removesuffix("'s")
    is_plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word.removesuffix("s") if is_plural else word
