"""Say whether two words mean about the same, by the vectors of a spaCy pipeline.

Needs spaCy (the extra ``nouns``) and a pipeline with vectors, an installed package or a folder; CPU. Nothing is
fetched.
"""

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from schemas.errors import ModelError

Likeness = Callable[[str, str], float]


def find_likeness(model: str, folder: Path) -> Likeness | None:
    """Return what gives the cosine of two words' vectors; ``None``: the pipeline is not on this machine.

    Args:
        model: name of the pipeline's package.
        folder: where a folder of this name may lie instead.

    Raises:
        ModelError: the pipeline cannot be loaded, or has no vectors.
    """
    local = folder / model
    if importlib.util.find_spec("spacy") is None or not (local.is_dir() or importlib.util.find_spec(model)):
        return None
    import spacy  # heavy: only where its words are compared

    name = str(local) if local.is_dir() else model
    try:
        pipeline = spacy.load(name, exclude=["parser", "ner"])
    except Exception as error:  # spaCy raises what its parts raise
        raise ModelError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not pipeline.vocab.vectors_length:
        raise ModelError(f"{name} has no vectors of words")

    @lru_cache(maxsize=1 << 20)
    def likeness(one: str, other: str) -> float:
        first, second = pipeline.make_doc(one), pipeline.make_doc(other)
        # Two unknown words have no angle between them; spaCy would warn and say 0.
        return float(first.similarity(second)) if first.has_vector and second.has_vector else 0.0

    return likeness
