"""The words for COCO's objects, as CHAIR (Rohrbach et al. 2018) reads and finds them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.known_words import singular_in, words_in
from pairwright.tasks.evaluation.read_json import read_text

YOUNG, CARRIERS = ("baby", "adult"), "passenger"
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub")
VEHICLES = ("jet", "train")
SPECIAL = {"bow tie": "tie", "toilet seat": "toilet", "home plate": "home plate", "train track": "train track"}
"""Two words that are one thing, or none of COCO's."""


@dataclass(frozen=True)
class CocoWords:
    """Be the words for COCO's objects."""

    kinds: dict[str, str]
    """By word, or words with spaces between them, the object."""

    def find(self, text: str) -> list[tuple[str, str]]:
        """Return each word for an object in a text, with the object."""
        words = [singular_in(word, self._parts) or word for word in words_in(text)]
        joined = self._join(words)
        if "toilet" in joined and "seat" in joined:  # the seat of the toilet is no chair
            joined = [word for word in joined if word != "seat"]
        return [(word, self.kinds[word]) for word in joined if word in self.kinds]

    def _join(self, words: list[str]) -> list[str]:
        """Put words together that are one thing: "traffic light", "baby elephant"."""
        joined: list[str] = []
        place = 0
        while place < len(words):
            both = self._doubles.get(" ".join(words[place : place + 2]))
            joined.append(both or words[place])
            place += 2 if both else 1
        return joined

    @cached_property
    def _doubles(self) -> dict[str, str]:
        own = {word: word for word in self.kinds if word.count(" ") == 1}
        young = {f"{age} {animal}": animal for age in YOUNG for animal in ANIMALS}
        return own | young | {f"{CARRIERS} {vehicle}": vehicle for vehicle in VEHICLES} | SPECIAL

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for words in (*self.kinds, *self._doubles) for part in words.split())


def read_coco_words(path: Path) -> CocoWords:
    """Return the words of a file: a line per object, its own name first.

    Raises:
        ConfigError: it cannot be read, or holds nothing.
    """
    lines = [[word.strip() for word in line.split(",")] for line in read_text(path).split("\n") if line.strip()]
    kinds = {word: line[0] for line in lines for word in line if word}
    if not kinds:
        raise ConfigError(f"{path}: holds no words")
    return CocoWords(kinds)
