"""Reasons why a description fails a check, and which of them show that it is wrong (ours).

A check also fails without a result (an answer that cannot be read). Such a description is not used,
but it is not known to be wrong. Rows name the setting behind a reason ("judge: low rating
(judging.min_rating=3)").
"""

CHECK_TABLES = ("controlled", "grounded", "regions", "confirmed", "judged")
"""Tables of the checks, in the order in which descriptions pass them."""
MEANINGS = {
    "swapped": "The pair in the other order must give the description the other way round.",
    "same": "One of the images, shown twice, must give no difference.",
    "grounded": "Each half must fit its own image better than the other one.",
    "regions": "Something that it names must lie where the two images, aligned, differ.",
    "confirmed": "Each statement must be true of its own image, and one false of the other.",
    "judged": "A model rates the description: 0 is wrong, 5 is right in every word.",
}
"""What each check asks of a description, for people."""
NOT_TURNED_ROUND = "swapped pair: not the other way round"
NONE_IN_SWAPPED = "swapped pair: no difference"
UNREADABLE_SWAPPED = "swapped pair: "
"""Prefix of the reason why the answer was refused ("cut off")."""
SEEN_IN_SAME = "same image twice: a difference"
UNREADABLE_SAME = "same image twice: "
FIRST_UNGROUNDED = "grounding: first half fits the second image as well"
SECOND_UNGROUNDED = "grounding: second half fits the first image as well"
BOTH_UNGROUNDED = "grounding: both halves fit the other image as well"
NOTHING_AFFIRMED = "grounding: no half says what is there"
NOTHING_CHANGED = "regions: nothing changed"
UNCHANGED = "regions: nothing that it names has changed"
CHANGED = "regions: a place changed, against its words"
NOT_FOUND = "regions: nothing that it names was found"
NAMES_NOTHING = "regions: it names no thing"
TWO_VIEWPOINTS = "regions: two viewpoints"
NOT_ALIGNED = "regions: not aligned: "
"""Prefix of the reason why images cannot be aligned. With it, ``NAMES_NOTHING`` and
``TWO_VIEWPOINTS``, the check is off for a description, which passes."""
LOW_RATING = "judge: low rating"
NO_RATING = "judge: no rating"
INVENTED = "claims: a statement is true of neither image"
EXCHANGED = "claims: a statement is true of the other image"
SHARED = "claims: all statements are true of both images"
NOT_SAME = "claims: the images do not show the same"
UNANSWERED = "claims: no verdict"
UNSURE = "claims: not sure enough"
AGAINST = frozenset(
    {
        INVENTED,
        EXCHANGED,
        SHARED,
        NOT_SAME,
        NOT_TURNED_ROUND,
        NONE_IN_SWAPPED,
        FIRST_UNGROUNDED,
        SECOND_UNGROUNDED,
        BOTH_UNGROUNDED,
        NOTHING_CHANGED,
        UNCHANGED,
        CHANGED,
        LOW_RATING,
    }
)
"""Reasons that a description itself is wrong. A difference found between an image and itself
discredits its writer."""


def without_bound(why: str) -> str:
    """Return a reason without its setting and bound, which is the same under another bound."""
    return why.partition(" (")[0]


def speaks_against(why: str) -> bool:
    """Return whether a failed check found the description wrong."""
    return without_bound(why) in AGAINST
