"""METEOR 1.5 for English, as coco-caption runs it, by the Java program that pycocoevalcap brings.

The program matches words (as they are, by stem, by WordNet, by paraphrase) and writes counts per item; the score is
made here of their sums, by the program's own formula (Denkowski and Lavie 2014), so that resamples need no Java.
Needs Java and pycocoevalcap; takes 2 GB.
"""

import numpy as np

from pairwright.tasks.evaluation.corpus import Corpus, Floats, Measured
from pairwright.tasks.evaluation.run_java import UnavailableError, find_jar, run_java

NAME = "METEOR"
JAR = "meteor/meteor-1.5.jar"
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])
"""Of exact, stem, synonym and paraphrase matches."""
COUNTS = 23
"""Numbers per item: lengths of both texts and of their function words; per kind of match the content words of both and
the function words of both; chunks; matched words of both."""


def measure_meteor(corpus: Corpus, *, limit_s: float) -> Measured:
    """Return the counts that METEOR makes of each item.

    Raises:
        UnavailableError: there is no Java, no pycocoevalcap, or the program failed or took longer than ``limit_s``.
    """
    pairs = zip(corpus.predictions, corpus.references, strict=True)
    given = "".join(" ||| ".join(["SCORE", *map(_field, texts), _field(text)]) + "\n" for text, texts in pairs)
    words = ["-Xmx2G", "-jar", str(find_jar(JAR)), "-", "-", "-stdio", "-l", "en", "-norm"]
    lines = run_java(words, given.encode(), limit_s=limit_s).decode().splitlines()
    try:
        counts = np.array([line.split() for line in lines], dtype=np.float64)
    except ValueError as error:
        raise UnavailableError(f"METEOR printed what is no count: {error}") from error
    if counts.shape != (len(corpus.predictions), COUNTS):
        raise UnavailableError(f"METEOR printed counts of {len(lines)} items, not of {len(corpus.predictions)}")
    return Measured((NAME,), _unbroken(counts), conclude_meteor)


def _unbroken(counts: Floats) -> Floats:
    """Count no chunk where all words of both texts match in order: only such a text is not punished for its one."""
    matched = counts[:, 4:20].reshape(len(counts), -1, 2).sum(axis=1)
    whole = np.all(matched == counts[:, 0:2], axis=1) & (counts[:, 20] == 1)
    chunks = np.where(whole, 0, counts[:, 20])
    return np.concatenate([counts[:, :20], chunks[:, None], counts[:, 21:]], axis=1)


def conclude_meteor(sums: Floats) -> Floats:
    """Return METEOR of sums of its counts."""
    lengths, function_words = sums[..., 0:2], sums[..., 2:4]
    matches = sums[..., 4:20].reshape(*sums.shape[:-1], len(WEIGHTS), 2, 2)  # kind, content or function, side
    sides = np.array([DELTA, 1 - DELTA]) @ (WEIGHTS @ matches.swapaxes(-3, -2))
    weighed = DELTA * (lengths - function_words) + (1 - DELTA) * function_words
    precision, recall = np.moveaxis(_share(sides, weighed), -1, 0)
    mean = _share(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    broken = _share(sums[..., 20], sums[..., 21:23].mean(axis=-1))
    return (mean * (1 - GAMMA * broken**BETA))[..., None]


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def _field(text: str) -> str:
    return text.replace("|||", "").replace("  ", " ")
