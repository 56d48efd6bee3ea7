"""Say why a description fails a check, in phrases that are counted, and which of them say that it is wrong.

All of it is ours. A check can also fail because nothing came of it (an answer that cannot be read): such a description
is not taken, but nothing is known against it, so it must not become a rejected text.
"""

from pairwright.schemas.rows import CheckRow

NOT_TURNED_ROUND = "swapped pair: not the other way round"
NONE_IN_SWAPPED = "swapped pair: no difference"
UNREADABLE_SWAPPED = "swapped pair: "
"""Before the reason for which the answer was refused ("cut off")."""
SEEN_IN_SAME = "same image twice: a difference"
UNREADABLE_SAME = "same image twice: "
FIRST_UNGROUNDED = "grounding: first half fits the second image as well"
SECOND_UNGROUNDED = "grounding: second half fits the first image as well"
BOTH_UNGROUNDED = "grounding: both halves fit the other image as well"
NOTHING_AFFIRMED = "grounding: no half says what is there"
UNCHANGED = "regions: nothing changed where the things are that it names"
NOTHING_FOUND = "regions: nothing that it names was found"
NOT_ALIGNED = "regions: "
"""Before the reason why it is not known what changed ("too few features match"); such a check is off, and passed."""
LOW_RATING = "judge: low rating"
NO_RATING = "judge: no rating"
AGAINST = frozenset(
    {NOT_TURNED_ROUND, NONE_IN_SWAPPED, FIRST_UNGROUNDED, SECOND_UNGROUNDED, BOTH_UNGROUNDED, UNCHANGED, LOW_RATING}
)
"""What speaks against a description itself. A difference seen between an image and itself speaks against its writer."""


def speaks_against(check: CheckRow) -> bool:
    """Say whether a check found the description wrong, so that it may stand as a rejected text."""
    return not check.passed and check.why in AGAINST
