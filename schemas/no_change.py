"""Say whether a half of an implicit-change description says that nothing changed (ours).

The reading is a careful one: every word of the half must be about sameness. "The same scene with no visible change" is
said to be no change; "the same scene with a car" or "no change in the colour of the car" are not, since something else
may have changed.
"""

import re

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
SAME = frozenset(("same", "identical", "unchanged", "unaltered", "unmodified"))
VAGUE = re.compile(r"\b(?<!exact )(?<!exactly the )(?<!very )same (?!image|picture|photo)")
"""The same scene, view or setting may hold other things."""
CHANGES = (
    "change changes changed changing difference differences different differ differs alteration alterations altered "
    "modification modifications modified variation variations added removed moved replaced missing taken"
)
DENIALS = "no not nothing none never without neither nor zero isn't aren't doesn't hasn't haven't"
AROUND = (
    "a an the this that it its there which as to with from in of on at by between and or for all both is are was were "
    "be been being has have had having does do did remains remain remained remaining stays stayed kept first second "
    "one two image images picture pictures photo photos photograph photographs scene scenes view frame setting "
    "composition content contents version copy everything object objects element elements detail details anything "
    "thing things whatsoever again still just exact exactly very completely entirely totally fully perfectly visually "
    "virtually absolutely visible noticeable apparent discernible detectable observable obvious significant notable "
    "real actual any compared when before previous original earlier way away respect sign signs kind sort"
)
CHANGE, DENIAL = frozenset(CHANGES.split()), frozenset(DENIALS.split())
KNOWN = SAME | CHANGE | DENIAL | frozenset(AROUND.split())


def says_no_change(half: str) -> bool:
    """Say whether the half, its verb left out, says that both images show the same and nothing else."""
    half = half.lower().replace("’", "'")
    words = WORD.findall(half)
    if not all(word in KNOWN for word in words):
        return False
    denied = next((place for place, word in enumerate(words) if word in DENIAL), len(words))
    changes = [place for place, word in enumerate(words) if word in CHANGE]
    same = [place for place, word in enumerate(words) if word in SAME and (word != "same" or not VAGUE.search(half))]
    if any(place < denied for place in changes) or any(denied < place < denied + 4 for place in same):
        return False
    return bool(changes or same)
