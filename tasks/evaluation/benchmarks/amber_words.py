"""What AMBER takes words of a description for: things that are there, things that models imagine, or made up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import find_file
from pairwright.tasks.evaluation.known_words import singular_in, words_in
from pairwright.tasks.evaluation.read_json import parse_json, read_text
from pairwright.tasks.models.word_likeness import WordPipeline, find_word_pipeline

ALIKE = 0.8
NO_NOUNS = frozenset(("can", "file", "hot", "leave", "sound", "support", "watch"))
"""Words of the lists that are mostly no nouns in descriptions; without a tagger they are not looked at (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Be what is in an image, and what models tend to imagine there."""

    truths: tuple[str, ...]
    decoys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Count what a description says."""

    mentions: int
    absent: int
    """Mentions of what is not there."""
    covered: int
    """Things that are there and mentioned."""
    truths: int
    imagined: int
    """Things that models tend to imagine, and this one did."""
    decoys: int


@dataclass(frozen=True)
class Lists:
    """Be AMBER's lists of words."""

    associated: dict[str, list[str]]
    """By thing, words that may stand for it."""
    safe: frozenset[str]
    """Words that never count as made up."""
    pipeline: WordPipeline | None
    """Finds nouns, and words that are alike; ``None``: there is none here."""

    @cached_property
    def things(self) -> frozenset[str]:
        """Return all words that are looked for."""
        return frozenset(self.associated) | {word for words in self.associated.values() for word in words}

    def check_scene(self, truth: Any, decoys: list[str] | None, where: str) -> Scene:
        """Return an image's scene.

        Raises:
            ConfigError: it is none, or the lists do not know one of its things.
        """
        if not isinstance(truth, list) or decoys is None:
            raise ConfigError(f"{where}: truth and hallu must be lists of words")
        if unknown := [word for word in (*truth, *decoys) if word not in self.associated]:
            raise ConfigError(f"{where}: relation.json has no {unknown[0]!r}")
        return Scene(truths=tuple(truth), decoys=tuple(decoys))

    def find(self, word: str, things: Sequence[str]) -> int | None:
        """Return which of some things a word stands for by the lists: words that are associated come first."""
        places = self._spread(things)
        return next((place for known, place in places if known == word), None)

    def find_alike(self, word: str, things: Sequence[str]) -> int | None:
        """Return which of some things a word is like."""
        if self.pipeline is None:
            return None
        like = self.pipeline.likeness
        return next((place for known, place in self._spread(things) if like(word, known) > ALIKE), None)

    def mentions(self, text: str) -> list[str]:
        """Return the words of the lists that a text says."""
        words = self.pipeline.nouns(text) if self.pipeline else [w for w in words_in(text) if w not in NO_NOUNS]
        return [known for word in words if (known := singular_in(word, self.things))]

    def _spread(self, things: Sequence[str]) -> list[tuple[str, int]]:
        words = [(word, place) for place, thing in enumerate(things) for word in self.associated[thing]]
        return words + [(thing, place) for place, thing in enumerate(things)]


def read_lists(folder: Path, vectors: str) -> Lists:
    """Return the lists of AMBER's data folder.

    Raises:
        ConfigError: a file is missing or of another form.
        ModelError: the pipeline with vectors is there, and cannot be loaded.
    """
    path = find_file(folder, "relation.json")
    held = parse_json(read_text(path), str(path))
    if not isinstance(held, dict) or not all(_is_list_of_words(words) for words in held.values()):
        raise ConfigError(f"{path}: must be an object of lists of words")
    safe = read_text(find_file(folder, "safe_words.txt")).split("\n")
    associated = {thing: [word.lower() for word in words] for thing, words in held.items()}
    return Lists(associated, frozenset(map(str.strip, safe)), find_word_pipeline(vectors, folder))


def _is_list_of_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def tally_answer(text: str, scene: Scene, lists: Lists) -> Tally:
    """Count what a description says, as AMBER's program does."""
    mentions = lists.mentions(text)
    covered: set[int] = set()
    imagined: set[int] = set()
    absent = 0
    for word in mentions:
        if word in lists.safe:
            continue
        if (place := lists.find(word, scene.truths)) is not None:
            covered.add(place)
            continue
        for place in (lists.find(word, scene.decoys), lists.find_alike(word, scene.decoys)):
            if place is not None:
                imagined.add(place)
        if (place := lists.find_alike(word, scene.truths)) is not None:
            covered.add(place)
        else:
            absent += 1
    return Tally(
        mentions=len(mentions),
        absent=absent,
        covered=len(covered),
        truths=len(scene.truths),
        imagined=len(imagined),
        decoys=len(scene.decoys),
    )
