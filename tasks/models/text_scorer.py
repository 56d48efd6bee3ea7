"""Fit of texts to images, by the text tower of the CLIP model that embeds the images.

Texts are truncated to the tower's length (OpenAI's models: 77 tokens), as by CLIP's own tokenizer;
``pieces`` splits a text without loss. Only the text tower stays in memory.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import GroundingConfig, RejectionsConfig
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, Encoder
from pairwright.tasks.models.devices import choose_device, count_processes
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.open_clip_embedder import (
    FIELD,
    create_model,
    create_tokenizer,
    identify_clip,
)

CLIP_LENGTH = 77
BATCH = 64
"""Fixed batch size, so that last digits depend neither on timing nor on other texts."""

CLAUSE_END = re.compile(r"[,;:.!?…)\]–—][\"'”’]*$|^[–—-]$")
OPENERS = (
    "and but or while whereas which who whose where when with as because although though that so "
    "then behind next beside near under above"
)
"""Words that usually begin a clause."""
LONGEST_WORD = 100
BYTES_PER_CHARACTER = 4
"""Maximum tokens per character of a byte-level tokenizer."""


NO_MODEL = "scene-graph"
"""Scorer that reads no vectors."""
Scoring = GroundingConfig | RejectionsConfig


@runtime_checkable
class Scorer(Protocol):
    """Model from texts to vectors in the space of the embedder of the same name."""

    @property
    def name(self) -> str:
        """Name in profiles: that of the embedder."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` unit vectors, for cosines with images' vectors."""
        ...

    def split_text(self, text: str) -> tuple[str, ...]:
        """Return the text in pieces that ``embed`` reads in full."""
        ...


def name_texts(config: Scoring) -> tuple[str, ...]:
    """Return the version of the text model in a stage's configuration, if any."""
    if config.clip is None or config.scorer == NO_MODEL:
        return ()
    return (SCORERS.make(config.scorer, config).version,)


def count_scorers(config: Scoring) -> int | None:
    """Return how many processes load the text model: one per GPU, else one per worker."""
    return count_processes(_has_weights, config)


def _has_weights(config: Scoring) -> bool:
    is_used = config.enabled and config.scorer != NO_MODEL
    return is_used and SCORERS.has_weights(config.scorer)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClipTexts:
    """Text tower of a CLIP model; its weights are loaded at the first use, once per process."""

    config: ClipConfig
    name: str = "clip"

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return identify_clip(self.config)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` unit vectors, for cosines with images' vectors."""
        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        encoder, tokenize = _load(self)
        count = len(texts)
        padding = [texts[-1]] * (-count % BATCH)
        tokens = tokenize([*texts, *padding]).numpy()
        vectors = encoder.encode(list(tokens))[:count]
        if not np.isfinite(vectors).all():
            raise ModelError(f"{FIELD}: its text tower gave a vector that is not finite")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(norms, np.finfo(np.float32).tiny)

    def split_text(self, text: str) -> tuple[str, ...]:
        """Return the text in pieces that ``embed`` reads in full, cut at the ends of clauses."""
        _, tokenize = _load(self)
        length = int(tokenize.context_length or CLIP_LENGTH)
        return cut_text(text, partial(count_tokens, tokenize), length)


def _make_open_clip(config: Scoring) -> Scorer:
    if config.clip is None:
        raise ValueError(f"no CLIP model was filled into {type(config).__name__}")
    return OpenClipTexts(config=config.clip)


def _pin_with_images(config: Scoring) -> Scoring:
    """Return the configuration: the weights are pinned with those of the embedder."""
    return config


SCORERS: ModelRegistry[Scoring, Scorer] = ModelRegistry(
    "scorers",
    Scorer,
    {"clip": OwnModel(_make_open_clip, _pin_with_images)},
    reserved=(NO_MODEL,),
)
"""All models that embed texts, by name."""


def count_tokens(tokenizer: Any, text: str) -> int:
    """Return a text's tokens under an open_clip tokenizer, untruncated, marks included."""
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is None:  # CLIP's own
        return len(tokenizer.encode(text)) + 2
    if hasattr(tokenizer, "clean_fn"):
        text = tokenizer.clean_fn(text)
    return len(inner(text)["input_ids"])


@lru_cache(maxsize=1)
def _load(scorer: OpenClipTexts) -> tuple[Encoder, Any]:
    import torch

    device = choose_device()
    model = create_model(scorer.config).eval()
    model.requires_grad_(requires_grad=False)
    model.visual = torch.nn.Identity()
    encoder = Encoder(
        network=model.to(device).encode_text,
        device=device,
        batches=AdaptiveBatches(BATCH),
    )
    return encoder, create_tokenizer(scorer.config)


def cut_text(
    text: str,
    count: Callable[[str], int],
    most: int,
) -> tuple[str, ...]:
    """Return the text, on one line, in pieces of at most ``most`` tokens (ours).

    A piece ends after punctuation, or before a word that begins a clause, if there is one in its
    second half; else where it is full. Words longer than a piece (base64) are split. ``count``
    returns a text's tokens, start and end included.
    """
    words: list[str] = []
    for word in text.split():
        words.extend(_parts(word, count, most))
    pieces: list[str] = []
    while words:
        fitting = _count_fitting(words, count, most)
        end = _find_end(words, fitting)
        pieces.append(" ".join(words[:end]))
        words = words[end:]
    return tuple(pieces)


def _count_fitting(
    words: Sequence[str],
    count: Callable[[str], int],
    most: int,
) -> int:
    """Return how many of the words have at most ``most`` tokens; at least one."""

    def count_first(end: int) -> int:
        return count(" ".join(words[:end]))

    # Each word has at least one token, which bounds the search.
    last = min(len(words), most)
    fitting = bisect_right(range(1, last + 1), most, key=count_first)
    return max(fitting, 1)


def _find_end(words: Sequence[str], fitting: int) -> int:
    """Return the number of words before the last end of a clause in a piece's second half."""
    for end in range(fitting, fitting // 2, -1):
        if end == len(words):
            return end
        ends_clause = CLAUSE_END.search(words[end - 1])
        if ends_clause or words[end].lower() in OPENERS.split():
            return end
    return fitting


def _parts(
    word: str,
    count: Callable[[str], int],
    most: int,
) -> Iterator[str]:
    """Yield a word, or its parts where it does not fit alone."""
    length = len(word)
    size = max((most - 2) // BYTES_PER_CHARACTER, 1)
    if length <= size or (length <= LONGEST_WORD and count(word) <= most):
        yield word
    else:
        for start in range(0, length, size):
            yield word[start : start + size]
