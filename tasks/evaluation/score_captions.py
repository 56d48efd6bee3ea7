"""Score captions against references: tokens, the metrics, an interval for each score, and what could not be run.

CPU; METEOR, SPICE and the usual tokeniser are Java programs, run where Java and pycocoevalcap are. No network.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.corpus import Corpus, Measured, Words, number_words
from pairwright.tasks.evaluation.count_ngrams import Counts, count_ngrams
from pairwright.tasks.evaluation.protocols import Matched
from pairwright.tasks.evaluation.resample import resample
from pairwright.tasks.evaluation.run_java import UnavailableError
from pairwright.tasks.evaluation.score_bleu import measure_bleu
from pairwright.tasks.evaluation.score_cider import measure_cider
from pairwright.tasks.evaluation.score_meteor import measure_meteor
from pairwright.tasks.evaluation.score_rouge import measure_rouge
from pairwright.tasks.evaluation.score_spice import measure_spice
from pairwright.tasks.evaluation.tokenise_texts import TOKENISERS, Tokenised, tokenise_texts

METRICS = ("bleu", "meteor", "rouge-l", "cider-d", "spice")


@dataclass(frozen=True)
class ScoringConfig:
    """How captions are scored.

    Attributes:
        metrics: of ``METRICS``.
        tokeniser: of ``TOKENISERS``.
        resamples: of the bootstrap; 0: no intervals.
        seed: of the bootstrap.
        limit_s: seconds that each Java program may take.
    """

    metrics: tuple[str, ...] = METRICS
    tokeniser: str = "auto"
    resamples: int = 1000
    seed: int = 0
    limit_s: float = 600

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise ConfigError(f"--metric {name}: there is no such one. There are: {', '.join(METRICS)}")
        if self.tokeniser not in TOKENISERS:
            raise ConfigError(f"--tokeniser {self.tokeniser}: there is no such one. There are: {', '.join(TOKENISERS)}")


@dataclass(frozen=True)
class Score:
    """A score of the corpus as a fraction (CIDEr-D reaches 10), and the ends of its interval."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Scores:
    """What was found.

    Attributes:
        scores: one per metric and order.
        skipped: metrics that could not be run, and why.
        tokenised_by: which tokeniser made the words.
        tokeniser_reason: why it was not Java's, where that was to be preferred.
        references: how many there were.
    """

    scores: list[Score]
    skipped: dict[str, str]
    tokenised_by: str
    tokeniser_reason: str
    references: int


def score_captions(
    matched: Matched, config: ScoringConfig, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Scores:
    """Return the scores of items; ``progress`` hears how many steps are done, of how many.

    Raises:
        ConfigError: Java's tokeniser was asked for, and does not run here.
    """
    steps = len(config.metrics) + 2
    tokenised, corpus = _tokenise(matched, config)
    count = cache(lambda: _count(corpus))  # BLEU and CIDEr-D are made of the same n-grams
    measured: list[Measured] = []
    skipped: dict[str, str] = {}
    for number, name in enumerate(config.metrics):
        progress(number + 1, steps)
        try:
            measured.append(_measure(name, corpus, count, limit_s=config.limit_s))
        except UnavailableError as error:
            skipped[name] = str(error)
    progress(steps - 1, steps)
    return Scores(
        scores=list(_conclude(measured, config)),
        skipped=skipped,
        tokenised_by=tokenised.by,
        tokeniser_reason=tokenised.reason,
        references=sum(len(texts) for texts in corpus.references),
    )


def _tokenise(matched: Matched, config: ScoringConfig) -> tuple[Tokenised, Corpus]:
    predictions = [item.prediction for item in matched.items]
    references = [text for item in matched.items for text in item.references]
    try:
        tokenised = tokenise_texts(predictions, references, tokeniser=config.tokeniser, limit_s=config.limit_s)
    except UnavailableError as error:
        raise ConfigError(f"--tokeniser {config.tokeniser}: {error}") from error
    rest = iter(tokenised.files[1])
    return tokenised, Corpus(tokenised.files[0], [[next(rest) for _ in item.references] for item in matched.items])


def _count(corpus: Corpus) -> tuple[Words, list[Counts]]:
    words = number_words(corpus)
    return words, count_ngrams(words)


def _measure(name: str, corpus: Corpus, count: Callable[[], tuple[Words, list[Counts]]], *, limit_s: float) -> Measured:
    if name == "rouge-l":
        return measure_rouge(corpus)
    if name == "meteor":
        return measure_meteor(corpus, limit_s=limit_s)
    if name == "spice":
        return measure_spice(corpus, limit_s=limit_s)
    return (measure_bleu if name == "bleu" else measure_cider)(*count())


def _conclude(measured: Sequence[Measured], config: ScoringConfig) -> Iterator[Score]:
    ends = resample(measured, resamples=config.resamples, seed=config.seed) if config.resamples and measured else None
    values = [
        (name, float(value))
        for one in measured
        for name, value in zip(one.names, one.conclude(one.statistics.sum(axis=0)), strict=True)
    ]
    for place, (name, value) in enumerate(values):
        yield Score(name, value) if ends is None else Score(name, value, *map(float, ends[place]))
