import math

import numpy as np
import pytest

from pairwright.tasks.evaluation.corpus import Corpus, measure_mean, number_words
from pairwright.tasks.evaluation.count_ngrams import count_ngrams
from pairwright.tasks.evaluation.resample import resample
from pairwright.tasks.evaluation.score_bleu import measure_bleu
from pairwright.tasks.evaluation.score_rouge import measure_rouge


def bleu(corpus):
    words = number_words(corpus)
    return measure_bleu(words, count_ngrams(words))


def test_an_interval_of_a_mean_is_the_normal_one():
    """Of 400 zeros and ones in equal parts: 0.5 ± 1.96 * sqrt(0.25 / 400) = 0.451 to 0.549."""
    scores = np.repeat([0.0, 1.0], 200)
    ((low, high),) = resample([measure_mean("x", scores)], resamples=4000, seed=3)
    half = 1.96 * math.sqrt(0.25 / 400)
    assert low == pytest.approx(0.5 - half, abs=0.006)
    assert high == pytest.approx(0.5 + half, abs=0.006)


def test_the_share_is_what_is_asked_for():
    scores = np.repeat([0.0, 1.0], 200)
    ((low, high),) = resample([measure_mean("x", scores)], resamples=4000, seed=3, confidence=0.5)
    assert high - low == pytest.approx(2 * 0.674 * math.sqrt(0.25 / 400), abs=0.006)


def test_one_item_has_no_spread():
    corpus = Corpus(["a b c d e"], [["a b c d f"]])
    measured = [bleu(corpus), measure_rouge(corpus)]
    ends = resample(measured, resamples=50, seed=0)
    wanted = np.concatenate([one.conclude(one.statistics[0]) for one in measured])
    assert ends == pytest.approx(np.stack([wanted, wanted], axis=1))


def test_a_sum_of_statistics_is_the_score_of_the_drawn_corpus():
    predictions = ["a b c", "a b c d e f", "x y", "a c b d"]
    references = [["a b c d"], ["a b c d e g", "a b"], ["x y z"], ["a b c d"]]
    drawn = [0, 2, 2, 1]
    again = Corpus([predictions[item] for item in drawn], [references[item] for item in drawn])
    for measure in (bleu, measure_rouge):
        measured, wanted = measure(Corpus(predictions, references)), measure(again)
        sums = measured.statistics[drawn].sum(axis=0)
        assert measured.conclude(sums) == pytest.approx(wanted.conclude(wanted.statistics.sum(axis=0)))


def test_the_seed_decides():
    scores = [measure_mean("x", np.random.default_rng(0).random(50))]
    first, again, other = (resample(scores, resamples=200, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_parts_make_no_difference_to_what_is_drawn(monkeypatch):
    scores = [measure_mean("x", np.random.default_rng(0).random(50))]
    whole = resample(scores, resamples=200, seed=1)
    monkeypatch.setattr("pairwright.tasks.evaluation.resample.AT_ONCE", 700)
    assert np.allclose(resample(scores, resamples=200, seed=1), whole)
