"""Find the nouns of captions with a spaCy pipeline, which a profile names by its package or its folder.

Needs spaCy (the extra ``nouns``) and a pipeline that tags and lemmatises; CPU; nothing is fetched. Captions are tagged
one at a time, so that the nouns of one do not depend on what else is in its shard.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.schemas.config import FILLERS, NounsConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.weights import identify_files

UNUSED = ("parser", "ner", "entity_linker", "entity_ruler", "senter", "sentencizer", "textcat", "textcat_multilabel")
"""Parts of a pipeline that give neither a part of speech nor a lemma; they take more time than all others."""
MOST_WORDS = 1 << 20
"""Pairs of words whose likeness is kept."""
PROBE = "There are two dogs on the table."


def find_nouns_of(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield the lemmas of each text's nouns, in their order."""
    wanted = {"NOUN", "PROPN"} if config.proper_nouns else {"NOUN"}
    for document in _tagged(texts, config):
        lemmas = (_lemma(token) for token in document if token.pos_ in wanted)
        yield tuple(lemma for lemma in lemmas if lemma)


def find_phrases_of(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield what each text names, each once: nouns with the adjectives and nouns before them ("red toy car").

    Those are left out that only say where something is ("the left side").
    """
    for document in _tagged(texts, config):
        phrases = dict[str, None]()
        for named, run in groupby(document, key=lambda token: token.pos_ in {"ADJ", "NOUN", "PROPN"}):
            words = list(run) if named else []
            while words and words[-1].pos_ == "ADJ":
                words.pop()
            if words and _lemma(words[-1]) not in {"", *FILLERS}:
                phrases[" ".join(word.lower_ for word in words)] = None
        yield tuple(phrases)


def _tagged(texts: Iterable[str], config: NounsConfig) -> Iterator[Any]:
    pipeline = _load_pipeline(pin_model(config).model)
    with pipeline.memory_zone():  # else the vocabulary keeps every word that it has met
        yield from pipeline.pipe(texts, batch_size=1)


def _lemma(token: Any) -> str:
    """Return how the word is compared; empty for what is no word: "2x", the "t" of "t-shirt"."""
    lemma = (token.lemma_ or token.lower_).strip().casefold()
    return lemma if lemma.isalpha() and not (len(lemma) == 1 and lemma.isascii()) else ""


def pin_model(config: NounsConfig) -> NounsConfig:
    """Return the configuration with the pipeline's version, or the hash of its folder's files; loads nothing."""
    if importlib.util.find_spec("spacy") is None:
        raise ModelError("nouns: needs spaCy, not installed here: python -m pip install -e '.[cpu,nouns]'")
    place, found = _find(config.model)
    if config.revision and config.revision != found:
        raise ModelError(
            f"nouns.revision: {config.model} is {found} on this machine, not {config.revision}: it has changed since "
            "the dataset was built. Put the old one back, or build with the new one (its nouns get their own table)"
        )
    return config.model_copy(update={"model": place, "revision": found})


def _find(model: str) -> tuple[str, str]:
    """Return what spaCy loads, and what tells it from others."""
    if re.fullmatch(r"[A-Za-z]\w*", model) and importlib.util.find_spec(model):
        try:
            return model, f"{model} {importlib.metadata.version(model)}"
        except importlib.metadata.PackageNotFoundError:
            pass  # a folder that Python could import from, not an installed package
    folder = Path(model).absolute()
    if (folder / "meta.json").is_file():
        return str(folder), identify_files(sorted(file for file in folder.rglob("*") if file.is_file()))
    if folder.is_dir():
        raise ModelError(f"nouns.model: {folder} is no spaCy pipeline: it holds no meta.json")
    raise ModelError(
        f"nouns.model: the spaCy pipeline {model} is not installed here. Fetch it with: python -m spacy download "
        f"{model}\nor name an installed one, or a folder that holds one: --set nouns.model=..."
    )


def name_model(config: NounsConfig) -> tuple[str, ...]:
    """Return what identifies the pipeline, for the table's fingerprint."""
    return (config.revision or pin_model(config).revision,)


@lru_cache(maxsize=1)
def _load_pipeline(model: str, field: str = "nouns.model") -> Any:
    import spacy  # heavy: only workers load it

    try:
        pipeline = spacy.load(model, exclude=UNUSED)
        probe = pipeline(PROBE)
    except Exception as error:  # spaCy raises what its parts raise: of the system, of its configuration, of Thinc
        raise ModelError(f"{field}: {model} cannot be loaded: {type(error).__name__}: {error}") from error
    if lacking := [what for what in ("POS", "LEMMA") if not probe.has_annotation(what)]:
        raise ModelError(
            f"{field}: {model} gives words no {' and no '.join(lacking)} (its parts: "
            f"{', '.join(pipeline.pipe_names) or 'none'}): name a pipeline with a tagger and a lemmatizer"
        )
    return pipeline


class WordPipeline:
    """Pipeline that finds nouns, and says whether two words mean about the same by vectors of words."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self.likeness = lru_cache(MOST_WORDS)(self._likeness)
        """The cosine of two words' vectors; 0 where one is not known."""

    def nouns(self, text: str) -> list[str]:
        """Return the lemmas of a text's nouns in lower case, in their order."""
        found = [token for token in self._pipeline(text) if token.pos_ in ("NOUN", "PROPN")]
        return [(token.lemma_ or token.text).lower() for token in found]

    def _likeness(self, one: str, other: str) -> float:
        first, second = self._pipeline.make_doc(one), self._pipeline.make_doc(other)
        # Two unknown words have no angle between them; spaCy would warn and say 0.
        return float(first.similarity(second)) if first.has_vector and second.has_vector else 0.0


def find_word_pipeline(model: str, folder: Path, field: str) -> WordPipeline | None:
    """Return a pipeline by its package's name, or from a folder of that name in ``folder``; ``None``: there is none."""
    local = folder / model
    if importlib.util.find_spec("spacy") is None or not (local.is_dir() or importlib.util.find_spec(model)):
        return None
    pipeline = _load_pipeline(str(local) if local.is_dir() else model, field)
    if not pipeline.vocab.vectors_length:
        raise ModelError(f"{field}: {model} has no vectors of words")
    return WordPipeline(pipeline)
