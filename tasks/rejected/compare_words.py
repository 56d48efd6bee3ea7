"""Compare two texts by their content words: are they equal, and does one contradict the other?

Reads and writes nothing. The rules are ours and use no grammar: they look at added and removed
words by their stems, without function words; "a" and "an" count as "one", and words that may
describe the same object count as equal. They err on one side: a text that may be as true as the
other counts as equal, even if a rejected text is lost by it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from pairwright.tasks.texts.differences import AUXILIARIES, NEGATIONS
from pairwright.tasks.texts.words import WORD

COLOURS = (
    "red orange yellow green turquoise blue purple pink white black gray brown beige tan cream "
    "gold silver maroon navy teal cyan violet crimson"
)
NUMBERS = "two three four five six seven eight nine ten eleven twelve several many few"
DENIALS = f"{NEGATIONS} lack lacks lacking lacked missing absent gone no-one nobody"


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";")]


IRREGULAR = _split(
    "gray: grey; color: colour coloured colored; person: people persons; man: men; woman: women;"
    "child: children; foot: feet; mouse: mice; goose: geese; leaf: leaves; shelf: shelves;"
    "knife: knives; stand: standing stood; sit: sat; hold: held; run: ran; lie: lying laying laid;"
    "wear: wore worn"
)
FORMS = {
    "no": DENIALS,
    "one": "a an 1 single",
    **{word: str(count) for count, word in enumerate(NUMBERS.split()[:11], 2)},
    **dict(forms.split(": ") for forms in IRREGULAR),
}
"""Irregular forms; all denials are one word."""
OPPOSITES = _split(
    "left right; up down; top bottom; front back behind; above below under beneath on over;"
    "inside outside in; near far; open closed shut; empty full; day night; light dark bright;"
    "large small; tall short; long short; old new young; sit stand lie walk run; raise lower;"
    "more fewer less; more fewer; wet dry; front rear"
)
"""Words of a list exclude one another, so that adding or removing one changes the meaning."""
RELATIONS = (
    "left right behind front above below under beneath over inside outside near beside between "
    "against"
)
WEAK = "on in at with of by to from into onto along"
"""Interchangeable prepositions, ignored unless a ``RELATIONS`` word replaces one."""
ALIKE = _split(
    "gray silver; purple violet; turquoise teal cyan blue; turquoise green; red crimson maroon;"
    "blue navy; beige tan cream; brown tan; white cream; yellow gold; orange red;"
    "large big huge tall; small little tiny short; photo photograph picture image scene view shot;"
    "man guy gentleman male; woman lady female; child kid boy toddler; child kid girl toddler;"
    "jacket coat; car automobile; bike bicycle; motorbike motorcycle; couch sofa; road street;"
    "sidewalk pavement; house building home; wood wooden; metal metallic steel iron; mug cup;"
    "middle centre center; several many few; close near next beside; under below beneath;"
    "over above; closed shut; stone rock; ocean sea water; lake water; river water;"
    "grass lawn field; bright light sunny"
)
"""Words of a list may describe the same object."""
KINDS = {
    "person": (
        "man woman boy girl child kid adult lady guy player pedestrian worker rider toddler "
        "gentleman"
    ),
    "animal": "dog cat horse cow sheep bird bear elephant zebra giraffe duck goat",
    "bird": "duck goose pigeon parrot chicken",
    "dog": "puppy poodle",
    "cat": "kitten",
    "vehicle": "car truck bus van motorcycle bicycle taxi lorry train",
    "car": "taxi van sedan",
    "food": "pizza cake sandwich bread apple banana fruit vegetable",
    "fruit": "apple banana orange pear",
    "plant": "tree flower bush grass",
    "furniture": "chair table sofa couch bed desk bench",
    "clothing": "shirt jacket coat dress hat trousers",
}
"""Kinds of a general word, which may describe the same object: a poodle is a dog, a dog an
animal."""
LEAST_SHARED = 0.85
"""Least share of common content words of equal texts, unless the others are telling (colours,
numbers, denials)."""
MOST_CHARACTERS = 6000  # compared part of a text, as every word is compared with every other
FUNCTION = frozenset(
    f"{AUXILIARIES} the this that these those it its their his her there here where which who "
    "while and or but also as for so than then very just same any scene image images photo "
    "picture".split()
)
_WEAK = frozenset(WEAK.split())
_FOLDED = {form: word for word, forms in FORMS.items() for form in forms.split()}
NO_CHANGE = re.compile(
    r"\b(?:unchanged|identical"
    r"|(?:no|not one|without(?: any)?) (?:\w+ )?(?:changes?|differences?|(?:has |is )?changed)"
    r"|nothing (?:\w+ ){0,3}?(?:has |is |was )?(?:been )?"
    r"(?:changed|changes|added|different|altered)"
    r"|scene (?:(?:is|remains|stays) the same(?=$|[.,;]| as\b)|has not changed)"
    r"|same (?:scene|image|photo\w*|picture|view|thing|content))\b",
    re.IGNORECASE,
)
EXCEPT = re.compile(
    r"\b(?:but|except|apart from|aside from|other than|however|though)\b", re.IGNORECASE
)
Halves = tuple[str, str]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without its endings: "holds" and "holding" are one; cruder than a lemma."""
    word = word.lower().replace("’", "'")
    word = _FOLDED.get(word, word)
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if re.search(r"(?:[sxz]|[cs]h)es$", word):
        word = word[:-2]
    elif re.search(r"[^sui]s$", word) and len(word) > 3:
        word = word[:-1]
    for end, least in (("ing", 6), ("ed", 5)):
        if word.endswith(end) and len(word) >= least:
            word = re.sub(r"([^lsz])\1$", r"\1", word.removesuffix(end))
    without_e = word.removesuffix("e") if len(word) > 3 else word
    return _FOLDED.get(word, without_e)


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


def _alike_pairs() -> Iterator[frozenset[str]]:
    """Yield pairs of stems that may describe the same object."""
    lists = list(ALIKE)
    for general, kinds in KINDS.items():
        lists += [f"{general} {kind}" for kind in kinds.split()]
    for entry in lists:
        yield from map(frozenset, combinations(_stems(entry), 2))


_TELLING = _stems(" ".join((COLOURS, NUMBERS, *OPPOSITES, "no"))) - _stems(WEAK)
_GENERAL = _stems("object thing item something")
_PAIRS = frozenset(_alike_pairs())
_NUMBERS = frozenset((*NUMBERS.split(), "no"))
_RELATIONS = _stems(RELATIONS)
_NO_CONTENT = FUNCTION | _WEAK


@dataclass(frozen=True, slots=True)
class Change:
    """Content words removed from and added to a text, in order."""

    went: tuple[str, ...]
    came: tuple[str, ...]
    shared: float  # share of the words of both texts, without "one", that are common
    denies: bool  # whether one of the texts denies something

    @property
    def is_none(self) -> bool:
        """Return whether both texts say the same, apart from minor words."""
        moved = {stem(word) for word in (*self.went, *self.came)}
        return self.shared >= LEAST_SHARED and not moved & _TELLING

    @property
    def adds_nothing(self) -> bool:
        """Return whether the new text says no more than the old one."""
        return not self.denies and not self.came

    @property
    def refusal(self) -> str:
        """Return why the new text does not contradict the old one; empty: it does.

        It does if a denial is added or removed, a number changes, or words are replaced by others
        that cannot describe the same object. Reordering, synonyms, additions and omissions do not.
        """
        if not self.went and not self.came:
            return "no other content"
        if any(stem(word) == "no" for word in (*self.went, *self.came)):
            return ""
        if not self.went:
            return "only adds words"
        return "" if self.came else "only leaves words out"


def compare_texts(old: str, new: str) -> Change:
    """Return the change from the old text to the new one."""
    before = _content_words(old)
    after = _content_words(new)
    went = _difference(before, after)
    came = _difference(after, before)
    _drop_alike(went, came)
    went, came = _drop_articles(went, came), _drop_articles(came, went)
    if came and not went and not _RELATIONS.isdisjoint(map(stem, came)):
        went = _difference(_weak_words(old), _weak_words(new))
    stems = [stem(word) for word in (*before, *after)]
    total = len(stems) - stems.count("one")
    moved = sum(stem(word) != "one" for word in (*went, *came))
    shared = 1 - moved / total if total else 1.0
    return Change(
        tuple(went),
        tuple(came),
        shared=shared,
        denies="no" in stems,
    )


def _drop_alike(went: list[str], came: list[str]) -> None:
    """Drop words from both lists that may describe the same object, in place."""
    for word in list(came):
        for other in went:
            if _are_alike(stem(word), stem(other)):
                went.remove(other)
                came.remove(word)
                break


def says_nothing_else(new: Halves, old: Halves) -> bool:
    """Return whether each half says no more than the other text's half.

    The new text is then as true as the old one.
    """
    changes = [compare_texts(*halves) for halves in zip(old, new, strict=True)]
    return all(change.is_none or change.adds_nothing for change in changes)


def only_repeats(new: Halves, human: str) -> bool:
    """Return whether a text only repeats people's text: no added content words, and no denial.

    People describe both images in one sentence, so the halves are joined, and repeated words count
    once.
    """
    joined = " ".join(new)
    distinct = {stem(word): word for word in _content_words(joined)}
    if compare_texts(human, " ".join(distinct.values())).adds_nothing:
        return True
    return denies_change(human) and denies_change(joined)


def denies_change(text: str) -> bool:
    """Return whether a text states that the two images are the same."""
    return NO_CHANGE.search(text) is not None and not EXCEPT.search(text)


def _words(text: str) -> list[str]:
    return WORD.findall(text[:MOST_CHARACTERS])


def _content_words(text: str) -> list[str]:
    return [word for word in _words(text) if word.lower() not in _NO_CONTENT]


def _weak_words(text: str) -> list[str]:
    return [word for word in _words(text) if word.lower() in _WEAK]


def _difference(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """Return the words of the first list that the second lacks, by their stems."""
    spare = Counter(stem(word) for word in second)
    missing: list[str] = []
    for word in first:
        spare[stem(word)] -= 1
        if spare[stem(word)] < 0:
            missing.append(word)
    return missing


def _drop_articles(mine: list[str], others: list[str]) -> list[str]:
    """Drop "a" and "one" unless the other text has another number in their place."""
    if any(stem(word) in _NUMBERS for word in others):
        return mine
    return [word for word in mine if stem(word) != "one"]


def _are_alike(first: str, second: str) -> bool:
    return frozenset((first, second)) in _PAIRS or not {first, second}.isdisjoint(_GENERAL)
