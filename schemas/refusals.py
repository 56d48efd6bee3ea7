"""Say of any model's answer whether it is none: the model declines, goes round in circles, or speaks of its captions.

The rules are ours. They look at words alone and know English only.
"""

import re

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
LONGEST_ROUND = 60
"""Words of a piece that is said again and again."""
LEAST_REPEATED = 24
"""Words that such pieces fill at the least: "a dog, a dog, a dog" is no loop yet."""
TIMES = 4
RUN = re.compile(r"([^\w]{1,4}?)\1{60,}")
"""Signs without words: a run of dashes is a rule of Markdown, one without end is none."""
QUOTED = re.compile(r"\"[^\"\n]{0,200}\"|[“„«][^”“»\n]{0,200}[”“»]|(?<!\w)['‘][^'’\n]{0,200}['’](?!\w)")
"""What a picture shows in writing; a sign may say anything."""
DECLINED = re.compile(
    r"\bas an? (?:\w+ ){0,3}(?:ai|language model|assistant)\b|\bi(?:['’]m| am) (?:\w+ ){0,3}language model\b"
    r"|\bi(?:['’]m| am) (?:(?:very|so|truly) )?(?:sorry|afraid|unable|not able)\b|\bi(?: must)? apologi[sz]e\b"
    r"|\bi (?:can(?:not|['’]t| not)|could(?: not|n['’]t)|do(?: not|n['’]t) (?:see|have (?:access|the ability)))\b"
    r"|\bno images? (?:was|were|are|have been|has been) (?:provided|attached|given|shared|uploaded)\b"
    r"|\bwithout (?:seeing|access to|being able to see) (?:the|both|any|either)\b"
    r"|\bplease (?:provide|upload|share|attach)\b",
    re.IGNORECASE,
)
TEXTS = r"(?:captions?|(?:image |given |provided |textual ){1,3}descriptions?)"
SAYING = (
    r"(?:mention|describe|state|say|specif|indicate|note|include|refer|suggest|read|tell|give|provide"
    r"|(?:is|are|was|were) (?:given|provided))"
)
CAPTIONS = re.compile(
    rf"\b(?:according to|based on|judging by|going by|as (?:\w+ )?(?:in|by)) (?:\w+ ){{0,3}}"
    rf"(?:{TEXTS}|descriptions?|context|annotations?)\b"
    rf"|\b(?:from|in|by) (?:the|both|each|its|their|either|these|this) (?:\w+ )?{TEXTS}\b"
    rf"|\b{TEXTS} (?:of|for|to) (?:the )?(?:both |two |first |second |other )?images?\b"
    r"|\b(?:first|second|other|both|two|image|image [12]['’]s) captions?\b|\bcaptions? (?:[12]|one|two)\b"
    rf"|\b(?:the|both|neither|either|each) {TEXTS}(?: \w+){{0,2}}? (?:(?:do|does|did)(?: not|n['’]t) )?{SAYING}"
    r"|\bdescriptions? (?:of|for) (?:the )?(?:(?:first|second|other) image|image (?:[12]|one|two))\b"
    r"|\b(?:not|n['’]t|nor|never) (?:\w+ )?(?:mention|specif|stated?\b)",
    re.IGNORECASE,
)

TOKENS = re.compile(
    r"<\|[^<>|\n]{0,64}\|>|</?(?:s|image|img|video|im_start|im_end|think|start_of_turn|end_of_turn)>|\[/?INST\]", re.I
)


def declines(text: str) -> bool:
    """Say whether the model speaks of itself instead of the images: it cannot see them, or is sorry."""
    return DECLINED.search(QUOTED.sub(" ", text)) is not None


def names_captions(text: str) -> bool:
    """Say whether a text speaks of captions that its reader, who sees images, does not have.

    What a picture itself shows may be called a caption ("a newspaper with a caption below the photo").
    """
    return CAPTIONS.search(QUOTED.sub(" ", text)) is not None


def has_tokens(text: str) -> bool:
    """Say whether a text holds what chat templates tell turns and images apart by: nothing may be trained on it."""
    return TOKENS.search(text) is not None


def repeats_itself(text: str) -> bool:
    """Say whether a piece of at most 60 words comes four times or more on end, whatever numbers stand between."""
    if RUN.search(text):
        return True
    words = [word.lower() for word in WORD.findall(text)]
    return any(_longest_echo(words, size) >= max(TIMES * size, LEAST_REPEATED) for size in range(1, LONGEST_ROUND + 1))


def _longest_echo(words: list[str], size: int) -> int:
    """Return the length of the longest stretch whose words are each the one that stands ``size`` words earlier."""
    longest = run = 0
    for word, earlier in zip(words[size:], words, strict=False):
        run = run + 1 if word == earlier else 0
        longest = max(longest, run)
    return longest + size if longest else 0
