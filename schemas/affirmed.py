"""Keep of a half what it says is there, without what it says is not (ours).

Encoders of images and texts hardly know "no": they find "no dog" most like a dog. So what is denied is cut out. A half
is taken apart into clauses (at commas, semicolons, colons, full stops, "but", "while", "although", "and with").

* From "no", "without", "lacking" and their like on, the rest of the clause is cut: "a lawn without a dog" is "a lawn".
* A clause whose verb is denied, or that says something is missing or gone, is cut whole: "the dog is not there".

What is left counts only if it holds a content word; "a scene without a dog" affirms nothing.
"""

import re

from pairwright.schemas.content_words import content_words

CLAUSE = re.compile(
    r"[,;:.]\s+|[,;:.]$|\s+(?=(?:but|while|whereas|although|though|and (?:with|has|shows))\b)", re.IGNORECASE
)
REST_DENIED = re.compile(
    r"\b(?:no|without|lack(?:s|ing)?(?: of)?|devoid of|free of|instead of|rather than|except(?: for)?|none|nothing"
    r"|neither|nobody|nowhere|all but no)\b",
    re.IGNORECASE,
)
ALL_DENIED = re.compile(
    r"\b(?:not|never|cannot|\w+n['’]t|no longer|missing|absent|gone|removed|disappear\w*|vanish\w*|absence of)\b",
    re.IGNORECASE,
)
JOINING = re.compile(
    r"^(?:but|and|while|whereas|although|though)(?:\s+|$)|\s+(?:and|or|but|with|has|shows|that|which|who|in all)$",
    re.IGNORECASE,
)


def affirmed(half: str) -> str:
    """Return the half without what it denies; empty where no content is left."""
    if not denies(half):
        return half if content_words(half) else ""
    kept = (_kept(clause) for clause in CLAUSE.split(half))
    return ", ".join(clause for clause in kept if content_words(clause))


def denies(half: str) -> bool:
    """Say whether a half says of anything that it is not there."""
    return bool(REST_DENIED.search(half) or ALL_DENIED.search(half))


def _kept(clause: str) -> str:
    if ALL_DENIED.search(clause):
        return ""
    kept = REST_DENIED.split(clause, maxsplit=1)[0].strip()
    while (shorter := JOINING.sub("", kept)) != kept:
        kept = shorter
    return kept
