"""Find the nouns of captions with a spaCy pipeline, named by its package or folder.

Needs spaCy (the extra ``nouns``) and a pipeline with a tagger and a lemmatizer; CPU; fetches
nothing. Captions are tagged one at a time, so that nouns do not depend on the shard.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.errors import ModelError, wrap_errors
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.weights import identify_files

UNUSED = (
    "parser",
    "ner",
    "entity_linker",
    "entity_ruler",
    "senter",
    "sentencizer",
    "textcat",
    "textcat_multilabel",
)
"""Slow pipeline parts that affect neither parts of speech nor lemmas."""
NOUN_TAGS = frozenset({"NOUN", "PROPN"})
MODIFIERS = NOUN_TAGS | {"ADJ"}
MAX_PAIRS = 1 << 20
"""Word pairs in the similarity cache."""
PROBE = "There are two dogs on the table."


@runtime_checkable
class NounFinder(Protocol):
    """Model that finds nouns in texts."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with what it finds."""
        ...

    def nouns(self, texts: Iterable[str]) -> Iterable[tuple[str, ...]]:
        """Yield the lemmas of each text's nouns, in order."""
        ...

    def phrases(self, texts: Iterable[str]) -> Iterable[tuple[str, ...]]:
        """Yield each text's noun phrases in the singular, without repetition ("red toy car")."""
        ...


def find_nouns_of(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield the lemmas of each text's nouns, in order, by the profile's finder."""
    yield from NOUN_FINDERS.make(config.finder, config).nouns(texts)


def find_phrases_of(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield each text's noun phrases without repetition, by the profile's finder."""
    yield from NOUN_FINDERS.make(config.finder, config).phrases(texts)


@dataclass(frozen=True, slots=True)
class SpacyFinder:
    """Finder of nouns by a spaCy pipeline."""

    config: NounsConfig
    name: str = "spacy"

    @property
    def version(self) -> str:
        """Return the pipeline's identity."""
        return self.config.revision or _pin_spacy(self.config).revision

    def nouns(self, texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Yield the lemmas of each text's nouns, in order."""
        return _find_nouns(texts, self.config)

    def phrases(self, texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """Yield each text's noun phrases without repetition."""
        return _find_phrases(texts, self.config)


def _find_nouns(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    tags = {"NOUN", "PROPN"} if config.proper_nouns else {"NOUN"}
    for document in _tag_words(texts, config):
        lemmas = [_lemma(token) for token in document if token.pos_ in tags]
        yield tuple(lemma for lemma in lemmas if _is_word(lemma))


def _find_phrases(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield each text's noun phrases without repetition ("red toy car").

    A noun in the singular, with the adjectives and nouns before it.
    """
    for document in _tag_words(texts, config):
        phrases: dict[str, None] = {}
        words: list[str] = []
        for token, following in zip_longest(document, document[1:]):
            if token.pos_ not in MODIFIERS:
                words = []
                continue
            if token.pos_ == "ADJ" or (following is not None and following.pos_ in NOUN_TAGS):
                words.append(token.lower_)
                continue
            lemma = _lemma(token)
            if _is_word(lemma):
                phrases[" ".join([*words, lemma])] = None
            words = []
        yield tuple(phrases)


def _tag_words(texts: Iterable[str], config: NounsConfig) -> Iterator[Any]:
    """Yield the texts as documents of the pipeline."""
    pipeline = _load_pipeline(_pin_spacy(config).model)
    with pipeline.memory_zone():  # else the vocabulary grows without end
        yield from pipeline.pipe(texts, batch_size=1)


def _lemma(token: Any) -> str:
    return (token.lemma_ or token.lower_).strip().casefold()


def _is_word(lemma: str) -> bool:
    """Return whether a lemma is a word, not "2x" or the "t" of "t-shirt"."""
    return lemma.isalpha() and not (len(lemma) == 1 and lemma.isascii())


def pin_model(config: NounsConfig) -> NounsConfig:
    """Return the configuration with the finder's version or hash; loads nothing."""
    return NOUN_FINDERS.pin(config.finder, config)


def _pin_spacy(config: NounsConfig) -> NounsConfig:
    if importlib.util.find_spec("spacy") is None:
        raise ModelError(
            "nouns: needs spaCy, not installed here: python -m pip install -e '.[cpu,nouns]'"
        )
    model, revision = _find(config.model)
    if config.revision and config.revision != revision:
        raise ModelError(
            f"nouns.revision: {config.model} is {revision} here, not {config.revision}: "
            "restore it, or set the new one"
        )
    return config.model_copy(update={"model": model, "revision": revision})


def _find(model: str) -> tuple[str, str]:
    """Return a pipeline's package or folder, and its identity."""
    if re.fullmatch(r"[A-Za-z]\w*", model) and importlib.util.find_spec(model):
        try:
            return model, f"{model} {importlib.metadata.version(model)}"
        except importlib.metadata.PackageNotFoundError:
            pass  # a folder that Python could import from, not an installed package
    folder = Path(model).absolute()
    if (folder / "meta.json").is_file():
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return str(folder), identify_files(files)
    raise ModelError(
        f"nouns.model: {model} is neither an installed spaCy pipeline nor a folder of one "
        f"(with meta.json). Fetch it with: python -m spacy download {model}"
    )


def name_model(config: NounsConfig) -> tuple[str, ...]:
    """Return the finder's identity, for the table's fingerprint."""
    return (NOUN_FINDERS.make(config.finder, config).version,)


def identify_finder(config: NounsConfig) -> str:
    """Return the finder's identity, without looking for a pipeline that no build has pinned."""
    if config.finder == "spacy" and not config.revision:
        return config.model
    return NOUN_FINDERS.make(config.finder, config).version


NOUN_FINDERS: ModelRegistry[NounsConfig, NounFinder] = ModelRegistry(
    "nouns", NounFinder, {"spacy": OwnModel(SpacyFinder, _pin_spacy)}
)
"""All finders of nouns, by name."""


@lru_cache(maxsize=1)
def _load_pipeline(model: str, field: str = "nouns.model") -> Any:
    import spacy  # heavy: only workers load it

    def refuse(error: Exception) -> ModelError:
        return ModelError(f"{field}: {model} cannot be loaded: {type(error).__name__}: {error}")

    with wrap_errors(refuse):  # spaCy has no error of its own: its parts raise theirs
        pipeline = spacy.load(model, exclude=UNUSED)
        probe = pipeline(PROBE)
    missing = [name for name in ("POS", "LEMMA") if not probe.has_annotation(name)]
    if missing:
        raise ModelError(
            f"{field}: {model} gives words no {' and no '.join(missing)}: name one with both"
        )
    return pipeline


class WordPipeline:
    """Pipeline that finds nouns, and compares words by their vectors."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        # Cosine of two words' vectors; 0 for unknown words.
        self.likeness = lru_cache(MAX_PAIRS)(self._likeness)

    def nouns(self, text: str) -> list[str]:
        """Return the lemmas of a text's nouns in lower case, in order."""
        tokens = [token for token in self._pipeline(text) if token.pos_ in ("NOUN", "PROPN")]
        return [(token.lemma_ or token.text).lower() for token in tokens]

    def _likeness(self, word: str, other: str) -> float:
        first = self._pipeline.make_doc(word)
        second = self._pipeline.make_doc(other)
        if not first.has_vector or not second.has_vector:  # spaCy warns about unknown words
            return 0.0
        return float(first.similarity(second))


def find_word_pipeline(model: str, folder: Path, field: str) -> WordPipeline | None:
    """Return a pipeline by its package's name, or from ``folder``; ``None``: not installed."""
    if importlib.util.find_spec("spacy") is None:
        return None
    local = folder / model
    if local.is_dir():
        pipeline = _load_pipeline(str(local), field)
    elif importlib.util.find_spec(model):
        pipeline = _load_pipeline(model, field)
    else:
        return None
    if not pipeline.vocab.vectors_length:
        raise ModelError(f"{field}: {model} has no vectors of words")
    return WordPipeline(pipeline)
