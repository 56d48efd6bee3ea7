"""Find the nouns of captions with a spaCy pipeline, named by its package or folder.

Needs spaCy (the extra ``nouns``) and a pipeline with a tagger and a lemmatizer; CPU; fetches
nothing. Captions are tagged one at a time, so that nouns do not depend on the shard.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.errors import ModelError
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
MOST_WORDS = 1 << 20  # word pairs in the similarity cache
PROBE = "There are two dogs on the table."


def find_nouns_of(texts: Iterable[str], config: NounsConfig) -> Iterator[tuple[str, ...]]:
    """Yield the lemmas of each text's nouns, in order."""
    wanted = {"NOUN", "PROPN"} if config.proper_nouns else {"NOUN"}
    pipeline = _load_pipeline(pin_model(config).model)
    with pipeline.memory_zone():  # else the vocabulary grows without end
        for document in pipeline.pipe(texts, batch_size=1):
            nouns = (token.lemma_ or token.lower_ for token in document if token.pos_ in wanted)
            lemmas = (noun.strip().casefold() for noun in nouns)
            # No nouns are "2x", and the "t" of "t-shirt".
            yield tuple(
                one for one in lemmas if one.isalpha() and not (len(one) == 1 and one.isascii())
            )


def pin_model(config: NounsConfig) -> NounsConfig:
    """Return the configuration with the pipeline's version, or the hash of its folder; loads nothing."""
    if importlib.util.find_spec("spacy") is None:
        raise ModelError(
            "nouns: needs spaCy, not installed here: python -m pip install -e '.[cpu,nouns]'"
        )
    place, found = _find(config.model)
    if config.revision and config.revision != found:
        raise ModelError(
            f"nouns.revision: {config.model} is {found} here, not {config.revision}: restore it, or set the new one"
        )
    return config.model_copy(update={"model": place, "revision": found})


def _find(model: str) -> tuple[str, str]:
    if re.fullmatch(r"[A-Za-z]\w*", model) and importlib.util.find_spec(model):
        try:
            return model, f"{model} {importlib.metadata.version(model)}"
        except importlib.metadata.PackageNotFoundError:
            pass  # a folder that Python could import from, not an installed package
    folder = Path(model).absolute()
    if (folder / "meta.json").is_file():
        return str(folder), identify_files(
            sorted(file for file in folder.rglob("*") if file.is_file())
        )
    raise ModelError(
        f"nouns.model: {model} is neither an installed spaCy pipeline nor a folder of one (with meta.json). Fetch it "
        f"with: python -m spacy download {model}"
    )


def name_model(config: NounsConfig) -> tuple[str, ...]:
    """Return the pipeline's identity, for the table's fingerprint."""
    return (config.revision or pin_model(config).revision,)


@lru_cache(maxsize=1)
def _load_pipeline(model: str, field: str = "nouns.model") -> Any:
    import spacy  # heavy: only workers load it

    try:
        pipeline = spacy.load(model, exclude=UNUSED)
        probe = pipeline(PROBE)
    except (
        Exception
    ) as error:  # spaCy raises what its parts raise: of the system, of its configuration, of Thinc
        raise ModelError(
            f"{field}: {model} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if lacking := [what for what in ("POS", "LEMMA") if not probe.has_annotation(what)]:
        raise ModelError(
            f"{field}: {model} gives words no {' and no '.join(lacking)}: name one with both"
        )
    return pipeline


class WordPipeline:
    """Pipeline that finds nouns, and compares words by their vectors."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self.likeness = lru_cache(MOST_WORDS)(
            self._likeness
        )  # cosine of two words' vectors; 0 for unknown words

    def nouns(self, text: str) -> list[str]:
        """Return the lemmas of a text's nouns in lower case, in order."""
        found = [token for token in self._pipeline(text) if token.pos_ in ("NOUN", "PROPN")]
        return [(token.lemma_ or token.text).lower() for token in found]

    def _likeness(self, one: str, other: str) -> float:
        first, second = self._pipeline.make_doc(one), self._pipeline.make_doc(other)
        # spaCy warns about unknown words.
        return float(first.similarity(second)) if first.has_vector and second.has_vector else 0.0


def find_word_pipeline(model: str, folder: Path, field: str) -> WordPipeline | None:
    """Return a pipeline by its package's name, or from ``folder``; ``None``: not installed."""
    local = folder / model
    if importlib.util.find_spec("spacy") is None or not (
        local.is_dir() or importlib.util.find_spec(model)
    ):
        return None
    pipeline = _load_pipeline(str(local) if local.is_dir() else model, field)
    if not pipeline.vocab.vectors_length:
        raise ModelError(f"{field}: {model} has no vectors of words")
    return WordPipeline(pipeline)
