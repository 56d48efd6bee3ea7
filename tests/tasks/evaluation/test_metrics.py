"""Scores by hand, and equality with pycocoevalcap on random captions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from pairwright.tasks.evaluation.corpus import Corpus, number_words
from pairwright.tasks.evaluation.count_ngrams import count_ngrams
from pairwright.tasks.evaluation.score_bleu import measure_bleu
from pairwright.tasks.evaluation.score_cider import measure_cider
from pairwright.tasks.evaluation.score_rouge import measure_rouge


def bleu(corpus):
    words = number_words(corpus)
    return measure_bleu(words, count_ngrams(words))


def cider(corpus):
    words = number_words(corpus)
    return measure_cider(words, count_ngrams(words))


def scores(measured):
    return measured.conclude(measured.statistics.sum(axis=0)), measured.conclude(measured.statistics)


def in_theirs(corpus):
    return dict(enumerate(corpus.references)), {item: [text] for item, text in enumerate(corpus.predictions)}


def assert_equal(corpus, measure, metric, **options):
    mine, each = scores(measure(corpus))
    whole, of_items = metric.compute_score(*in_theirs(corpus), **options)
    assert np.abs(mine - np.atleast_1d(whole)).max() < 1e-9
    assert np.abs(each - np.atleast_2d(of_items).T).max() < 1e-9


def test_bleu_by_hand():
    # 5 of 6 words are right ("the" once too often); the references have 5 and 9 words: 5 is closer to 6, so that
    # nothing is taken off. Of 2-grams "the car", "car is" and "is gone" are right, of 5.
    corpus = Corpus(["the the car is gone now"], [["the car is gone today", "a car that was there now is no more"]])
    whole, each = scores(bleu(corpus))
    assert whole[0] == pytest.approx(5 / 6)
    assert whole[1] == pytest.approx(math.sqrt(5 / 6 * 3 / 5))
    assert whole[2] == pytest.approx((5 / 6 * 3 / 5 * 2 / 4) ** (1 / 3))
    assert each[0] == pytest.approx(whole)


def test_bleu_takes_off_for_short_predictions_by_the_corpus_lengths():
    # 2 + 4 words against 4 + 4: exp(1 - 8/6); the shorter of two references as close (2 and 4 words) counts for 3.
    whole, _ = scores(bleu(Corpus(["a b", "c d e f"], [["a b c d"], ["c d e f"]])))
    assert whole[0] == pytest.approx(math.exp(1 - 8 / 6))
    whole, _ = scores(bleu(Corpus(["a b c"], [["a b c d", "a b"]])))
    assert whole[0] == pytest.approx(1)


def test_rouge_by_hand():
    # Common with the first: "the car gone" (3 of 4 words, of its 5); with the second: "car is" (2 of 2).
    whole, _ = scores(measure_rouge(Corpus(["the car is gone"], [["the red car was gone", "car is"]])))
    precision, recall = 3 / 4, 1.0
    assert whole[0] == pytest.approx((1 + 1.44) * precision * recall / (recall + 1.44 * precision))


def test_rouge_of_long_texts_is_no_worse():
    words = [f"w{number % 7}" for number in range(500)]
    whole, _ = scores(measure_rouge(Corpus([" ".join(words)], [[" ".join([*words[100:], "x"])]])))
    assert whole[0] == pytest.approx(2.44 * (400 / 500) * (400 / 401) / (400 / 401 + 1.44 * 400 / 500))


def test_cider_by_hand():
    # Two items. "a" is in the references of both: weight 0; "b" and "c" are each in one: weight log 2. Of 1-grams and
    # 2-grams the first item's prediction is right, longer ones there are none: 10 * (1 + 1 + 0 + 0) / 4. The second
    # has only "a" in common, which weighs nothing.
    whole, each = scores(cider(Corpus(["a b", "a d"], [["a b"], ["a c"]])))
    assert each[:, 0] == pytest.approx([5, 0])
    assert whole[0] == pytest.approx(2.5)


def test_cider_clips_and_punishes_other_lengths():
    # One word "b" three times against once: the product is clipped to 1 * 1, the norms are 3 and 1. Lengths are
    # counted in 2-grams: 2 and 0. The second item only makes the weight of "b" differ from 0.
    _, each = scores(cider(Corpus(["b b b", "x"], [["b"], ["y"]])))
    assert each[0, 0] == pytest.approx(10 / 4 * 1 / 3 * math.exp(-(2**2) / (2 * 36)))


@pytest.mark.parametrize(("measure", "score"), [(bleu, 0), (measure_rouge, 0), (cider, 0)])
def test_an_empty_prediction_has_nothing_right(measure, score):
    _, each = scores(measure(Corpus(["", "a b c d"], [["a b"], ["a b c d", "e"]])))
    assert each[0] == pytest.approx(score, abs=1e-6)
    assert each[1, -1] > 0.9


def test_one_item_alone_has_no_document_frequencies():
    assert scores(cider(Corpus(["a b"], [["a b"]])))[0][0] == 0


@pytest.mark.parametrize(("predictions", "references"), [([], []), (["a"], []), (["a"], [[]])])
def test_a_corpus_is_whole(predictions, references):
    with pytest.raises(ValueError, match="reference"):
        Corpus(predictions, references)


WORDS = st.sampled_from(["a", "b", "c", "dd", "left-hand", "'s", "ünï", "1\N{NO-BREAK SPACE}1/2"])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
ITEMS = st.tuples(TEXTS, st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=4))
CORPORA = st.lists(ITEMS, min_size=1, max_size=8).map(lambda items: Corpus(*map(list, zip(*items, strict=True))))


@given(CORPORA)
def test_they_equal_the_reference_implementation(corpus):
    assert_equal(corpus, bleu, Bleu(), verbose=0)
    assert_equal(corpus, measure_rouge, Rouge())
    assert_equal(corpus, cider, Cider())


def test_they_equal_the_reference_implementation_on_a_thousand_captions():
    rng = np.random.default_rng(7)

    def draw():
        return " ".join(f"w{word}" for word in rng.zipf(1.3, rng.integers(1, 30)).clip(max=3000))

    predictions = [draw() for _ in range(1000)]
    references = [[draw() for _ in range(rng.integers(1, 6))] + [text] * (len(text) % 2) for text in predictions]
    corpus = Corpus(predictions, references)
    assert_equal(corpus, bleu, Bleu(), verbose=0)
    assert_equal(corpus, measure_rouge, Rouge())
    assert_equal(corpus, cider, Cider())


def test_texts_without_any_word_score_nothing_and_do_not_fail():
    corpus = Corpus(["", ""], [[""], ["", ""]])
    assert scores(cider(corpus))[0][0] == 0
    assert scores(bleu(corpus))[0] == pytest.approx([0, 0, 0, 0], abs=1e-3)
