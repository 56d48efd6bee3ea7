"""Score captions against references: tokens, the metrics, an interval for each score, and what could not be run.

BLEU (Papineni et al. 2002), ROUGE-L (Lin 2004) and CIDEr-D (Vedantam et al. 2015) are pycocoevalcap's; METEOR and
SPICE are its Java programs, run where there is Java. CIDEr-D keeps the document frequencies of the whole corpus in its
intervals. CPU; no network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.java_metrics import INSTALL, UnavailableError, measure_meteor, measure_spice
from pairwright.tasks.evaluation.measured import Floats, Measured, Score, conclude, measure_mean
from pairwright.tasks.evaluation.ptb_rules import tokenise
from pairwright.tasks.evaluation.read_captions import Matched

METRICS = ("bleu", "meteor", "rouge-l", "cider-d", "spice")
ORDERS = 4
"""Words of BLEU's and CIDEr-D's longest n-grams."""


@dataclass(frozen=True)
class ScoringConfig:
    """How captions are scored: ``METRICS``, the bootstrap (0 resamples: no intervals)."""

    metrics: tuple[str, ...] = METRICS
    resamples: int = 1000
    seed: int = 0
    limit_s: float = 600
    """Time limit of each Java program."""

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise ConfigError(f"--metric {name}: unknown metric; choose from {', '.join(METRICS)}")


@dataclass(frozen=True)
class CaptionScores:
    """Scores of the corpus as fractions (CIDEr-D reaches 10)."""

    scores: list[Score]
    skipped: dict[str, str]
    """Metrics that could not be run, and why."""
    references: int


def score_captions(
    matched: Matched, config: ScoringConfig, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> CaptionScores:
    """Return the scores of items; ``progress`` hears how many steps are done, of how many."""
    if not find_spec("pycocoevalcap"):
        raise ConfigError(INSTALL)
    steps = len(config.metrics) + 2
    predictions = [tokenise(item.prediction) for item in matched.items]
    references = [[tokenise(text) for text in item.references] for item in matched.items]
    measures: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]]], Measured]] = {
        "bleu": measure_bleu,
        "meteor": partial(measure_meteor, limit_s=config.limit_s),
        "rouge-l": measure_rouge,
        "cider-d": measure_cider,
        "spice": partial(measure_spice, limit_s=config.limit_s),
    }
    measured: list[Measured] = []
    skipped: dict[str, str] = {}
    for number, name in enumerate(config.metrics):
        progress(number + 1, steps)
        try:
            measured.append(measures[name](predictions, references))
        except UnavailableError as error:
            skipped[name] = str(error)
    progress(steps - 1, steps)
    return CaptionScores(
        scores=conclude(measured, resamples=config.resamples, seed=config.seed),
        skipped=skipped,
        references=sum(map(len, references)),
    )


def measure_bleu(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return the lengths and matches of each item, of which BLEU-1 to BLEU-4 are made."""
    from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

    rows: list[list[float]] = []
    for prediction, texts in zip(predictions, references, strict=True):
        counts = cook_test(prediction, cook_refs(texts, n=ORDERS), eff="closest", n=ORDERS)
        rows.append([counts["testlen"], counts["reflen"], *counts["guess"], *counts["correct"]])
    names = tuple(f"BLEU-{order}" for order in range(1, ORDERS + 1))
    return Measured(names=names, statistics=np.array(rows, np.float64), conclude=conclude_bleu)


def conclude_bleu(sums: Floats) -> Floats:
    """Return BLEU-1 to BLEU-4 of sums of lengths, reference lengths, n-grams and matches."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    def score(row: Floats) -> list[float]:
        scorer = BleuScorer(n=ORDERS)
        length, wanted, guess, correct = row[0], row[1], row[2 : 2 + ORDERS], row[2 + ORDERS :]
        scorer.ctest = [{"testlen": length, "reflen": [wanted], "guess": guess, "correct": correct}]
        return scorer.compute_score(option="closest")[0]

    return np.apply_along_axis(score, -1, sums)


def measure_rouge(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return ROUGE-L of each item; the corpus' score is their mean."""
    from pycocoevalcap.rouge.rouge import Rouge

    rouge = Rouge()
    pairs = zip(predictions, references, strict=True)
    return measure_mean("ROUGE-L", [rouge.calc_score([prediction], texts) for prediction, texts in pairs])


def measure_cider(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return CIDEr-D of each item; the corpus' score is their mean. One item alone scores 0."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    if not any(text.split() for texts in references for text in texts):  # which the scorer does not expect
        return measure_mean("CIDEr-D", np.zeros(len(predictions)))
    scorer = CiderScorer(n=ORDERS, sigma=6.0)
    for prediction, texts in zip(predictions, references, strict=True):
        scorer += (prediction, texts)
    return measure_mean("CIDEr-D", scorer.compute_score()[1])
