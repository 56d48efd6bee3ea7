"""Measure the caption metrics against pycocoevalcap: seconds on the same tokens, and how far the scores differ.

Run with ``make bench BENCH=captions``, or ``python -m tests.bench.bench_captions``; takes about a minute. 10,000
predictions, with five references each as in COCO and with one, drawn from a vocabulary whose frequencies fall as in
natural text; references are the prediction with words exchanged. Both sides get the same tokens, joined by spaces, and
start from there; each side's best of some turns counts, in CPU seconds of one thread. The bootstrap is timed beside.
"""

import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from pairwright.tasks.evaluation.corpus import Corpus, Measured, number_words
from pairwright.tasks.evaluation.count_ngrams import count_ngrams
from pairwright.tasks.evaluation.resample import resample
from pairwright.tasks.evaluation.score_bleu import measure_bleu
from pairwright.tasks.evaluation.score_cider import measure_cider
from pairwright.tasks.evaluation.score_rouge import measure_rouge

CAPTIONS, WORDS = 10_000, 5_000
TURNS = 3
TARGET = 5
RESAMPLES = 1_000


def make_corpus(references: int) -> Corpus:
    """Draw captions of 8 to 17 words; a reference has about two thirds of its prediction's words."""
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, WORDS + 1)
    chances /= chances.sum()
    names = np.array([f"word{number}" for number in range(WORDS)])

    def alter(caption: Any) -> str:
        drawn = rng.choice(WORDS, size=len(caption), p=chances)
        return " ".join(names[np.where(rng.random(len(caption)) < 0.4, drawn, caption)])

    captions = [rng.choice(WORDS, size=rng.integers(8, 18), p=chances) for _ in range(CAPTIONS)]
    return Corpus(
        [" ".join(names[one]) for one in captions], [[alter(one) for _ in range(references)] for one in captions]
    )


def bleu(corpus: Corpus) -> Measured:
    words = number_words(corpus)
    return measure_bleu(words, count_ngrams(words))


def cider(corpus: Corpus) -> Measured:
    words = number_words(corpus)
    return measure_cider(words, count_ngrams(words))


SIDES: dict[str, tuple[Callable[[Corpus], Measured], Any]] = {
    "BLEU-1..4": (bleu, Bleu()),
    "ROUGE-L": (measure_rouge, Rouge()),
    "CIDEr-D": (cider, Cider()),
}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def compare(corpus: Corpus) -> None:
    """Print one line per metric; the sides take turns."""
    theirs = dict(enumerate(corpus.references)), {item: [text] for item, text in enumerate(corpus.predictions)}
    for name, (measure, metric) in SIDES.items():
        own, other = [], []
        for _ in range(TURNS):
            own.append(timed(lambda: measure(corpus)))  # noqa: B023  (called at once)
            with contextlib.redirect_stdout(io.StringIO()):
                other.append(timed(lambda: metric.compute_score(*theirs)))  # noqa: B023
        seconds, reference = (min(turn[0] for turn in turns) for turns in (own, other))
        apart = difference(own[0][1], *other[0][1])
        ratio = f"{reference / seconds:6.1f}x (target {TARGET}x)"
        print(f"  {name:<10}{seconds:8.3f} s {reference:8.3f} s {ratio}  largest difference {apart:.0e}", flush=True)


def difference(measured: Measured, score: Any, scores: Any) -> float:
    """Return the largest difference of the corpus' scores and of any caption's."""
    corpus = measured.conclude(measured.statistics.sum(axis=0)) - np.atleast_1d(score)
    captions = measured.conclude(measured.statistics) - np.atleast_2d(scores).T
    return float(max(np.abs(corpus).max(), np.abs(captions).max()))


def main() -> None:
    """Print the tables."""
    for references in (5, 1):
        corpus = make_corpus(references)
        print(f"{CAPTIONS:,} captions, {references} references each: here, pycocoevalcap, ratio")
        compare(corpus)
    measured = [measure(corpus) for measure, _ in SIDES.values()]
    seconds, _ = timed(lambda: resample(measured, resamples=RESAMPLES, seed=0))
    print(f"  intervals of all of them, {RESAMPLES:,} resamples: {seconds:.1f} s")


if __name__ == "__main__":
    main()
