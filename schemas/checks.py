"""Reasons why a description fails a check, and which of them show that it is wrong (ours).

A check also fails without a result (an answer that cannot be read). Such a description is not used, but it is not known
to be wrong, so it must not become a rejected text. Rows name the setting behind a reason ("judge: low rating
(judging.min_rating=3)").
"""

from pairwright.schemas.rows import CheckRow

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
LOW_RATING = "judge: low rating"
NO_RATING = "judge: no rating"
AGAINST = frozenset(
    {NOT_TURNED_ROUND, NONE_IN_SWAPPED, FIRST_UNGROUNDED, SECOND_UNGROUNDED, BOTH_UNGROUNDED, LOW_RATING}
)
"""Reasons that a description itself is wrong. A difference found between an image and itself discredits its writer."""


def without_bound(why: str) -> str:
    """Return a reason without its setting and bound, so that it stays the same under another bound."""
    return why.partition(" (")[0]


def speaks_against(check: CheckRow) -> bool:
    """Return whether a check found the description wrong, so that it can be a rejected text."""
    return not check.passed and without_bound(check.why) in AGAINST
