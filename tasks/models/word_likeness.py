"""Find nouns, and say whether two words mean about the same, by a spaCy pipeline that has vectors of words.

Needs spaCy (the extra ``nouns``) and the pipeline, an installed package or a folder; CPU; nothing is fetched.
"""

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ModelError

NOUNS = ("NOUN", "PROPN")
PROBE = "There are two dogs on the table."
MOST_WORDS = 1 << 20
"""Pairs of words whose likeness is kept."""


class WordPipeline:
    """Be a pipeline that tags, lemmatises, and has vectors."""

    def __init__(self, pipeline: Any) -> None:
        """Take a loaded pipeline."""
        self._pipeline = pipeline
        self.likeness = lru_cache(MOST_WORDS)(self._likeness)
        """The cosine of two words' vectors; 0 where one is not known."""

    def nouns(self, text: str) -> list[str]:
        """Return the lemmas of a text's nouns in lower case, in their order."""
        found = [token for token in self._pipeline(text) if token.pos_ in NOUNS]
        return [(token.lemma_ or token.text).lower() for token in found]

    def _likeness(self, one: str, other: str) -> float:
        first, second = self._pipeline.make_doc(one), self._pipeline.make_doc(other)
        # Two unknown words have no angle between them; spaCy would warn and say 0.
        return float(first.similarity(second)) if first.has_vector and second.has_vector else 0.0


def find_word_pipeline(model: str, folder: Path) -> WordPipeline | None:
    """Return a pipeline; ``None``: it is not on this machine.

    Args:
        model: name of the pipeline's package.
        folder: where a folder of this name may lie instead.

    Raises:
        ModelError: it cannot be loaded, or gives no nouns or vectors.
    """
    local = folder / model
    if importlib.util.find_spec("spacy") is None or not (local.is_dir() or importlib.util.find_spec(model)):
        return None
    import spacy  # heavy: only where its words are compared

    name = str(local) if local.is_dir() else model
    try:
        pipeline = spacy.load(name, exclude=["parser", "ner"])
        probe = pipeline(PROBE)
    except Exception as error:  # spaCy raises what its parts raise
        raise ModelError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not pipeline.vocab.vectors_length or not probe.has_annotation("POS") or not probe.has_annotation("LEMMA"):
        raise ModelError(f"{name} has no vectors of words, or does not tag and lemmatise them")
    return WordPipeline(pipeline)
