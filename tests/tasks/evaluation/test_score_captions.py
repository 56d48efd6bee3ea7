"""Scores equal pycocoevalcap's, of the corpus and of each item; intervals are those of resampled
items."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import score_captions
from pairwright.tasks.evaluation import score_captions as metrics
from pairwright.tasks.evaluation.measured import Measured, measure_mean, resample
from pairwright.tasks.evaluation.read_captions import Matched, Prediction
from pairwright.tasks.evaluation.score_captions import (
    ScoringConfig,
    UnavailableError,
    conclude_meteor,
    find_jar,
    measure_bleu,
    measure_cider,
    measure_meteor,
    measure_rouge,
    measure_spice,
    run_java,
)

METRICS = [
    (measure_bleu, Bleu(), {"verbose": 0}),
    (measure_rouge, Rouge(), {}),
    (measure_cider, Cider(), {}),
]
WORDS = st.sampled_from(["a", "b", "c", "dd", "left-hand", "'s", "ünï", "1\N{NO-BREAK SPACE}1/2"])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
ITEMS = st.tuples(
    TEXTS, st.lists(st.lists(WORDS, max_size=9).map(" ".join), min_size=1, max_size=4)
)
CORPORA = st.lists(ITEMS, min_size=1, max_size=8).map(
    lambda items: tuple(map(list, zip(*items, strict=True)))
)
CORPORA = CORPORA.filter(
    lambda corpus: any(map(any, corpus[1]))
)  # some references may be blank, but not all


def scores(measured: Measured):
    return measured.conclude(measured.statistics.sum(axis=0)), measured.conclude(
        measured.statistics
    )


@given(CORPORA)
def test_they_equal_the_reference_implementation(corpus):
    predictions, references = corpus
    theirs = dict(enumerate(references)), {item: [text] for item, text in enumerate(predictions)}
    for measure, metric, options in METRICS:
        mine, each = scores(measure(predictions, references))
        whole, of_items = metric.compute_score(*theirs, **options)
        assert np.abs(mine - np.atleast_1d(whole)).max() < 1e-9
        assert np.abs(each - np.atleast_2d(of_items).T).max() < 1e-9


def test_by_hand_without_words_and_by_another_seed():
    # BLEU: 2 + 4 words against 4 + 4: exp(1 - 8/6). ROUGE-L: "the car gone" (3 of 4 words), and
    # "car is" (2 of 2).
    whole, _ = scores(measure_bleu(["a b", "c d e f"], [["a b c d"], ["c d e f"]]))
    assert whole[0] == pytest.approx(math.exp(1 - 8 / 6))
    whole, _ = scores(measure_rouge(["the car is gone"], [["the red car was gone", "car is"]]))
    assert whole[0] == pytest.approx((1 + 1.44) * 3 / 4 / (1 + 1.44 * 3 / 4))
    for measure, _, _ in METRICS:
        assert scores(measure(["", ""], [[""], ["", ""]]))[0] == pytest.approx(
            0 if measure != measure_rouge else 1, abs=1e-3
        )
    measured = measure_mean("x", np.random.default_rng(0).random(50))
    first, again, other = (resample(measured, resamples=200, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setattr(score_captions, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install .*evaluation"):
        score_captions.score_captions(
            Matched([Prediction("1", "a", ("a",))], 0, 0, 0, 0), ScoringConfig()
        )


@pytest.mark.parametrize(("confidence", "deviations"), [(0.95, 1.96), (0.5, 0.674)])
def test_an_interval_of_a_mean_is_the_normal_one(confidence, deviations):
    """Of 400 zeros and ones in equal parts: 0.5 ± 1.96 * sqrt(0.25 / 400) = 0.451 to 0.549."""
    measured = measure_mean("x", np.repeat([0.0, 1.0], 200))
    ((low, high),) = resample(measured, resamples=4000, seed=3, confidence=confidence)
    half = deviations * math.sqrt(0.25 / 400)
    assert (low, high) == (
        pytest.approx(0.5 - half, abs=0.006),
        pytest.approx(0.5 + half, abs=0.006),
    )


def test_a_sum_of_statistics_is_the_score_of_the_drawn_corpus():
    predictions = ["a b c", "a b c d e f", "x y", "a c b d"]
    references = [["a b c d"], ["a b c d e g", "a b"], ["x y z"], ["a b c d"]]
    drawn = [0, 2, 2, 1]
    for measure in (measure_bleu, measure_rouge):
        sums = measure(predictions, references).statistics[drawn].sum(axis=0)
        wanted = measure(
            [predictions[item] for item in drawn], [references[item] for item in drawn]
        )
        assert wanted.conclude(sums) == pytest.approx(scores(wanted)[0])


needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="no Java")

PREDICTIONS = ["the car has gone away", "the red car is gone", "", "x y z"]
REFERENCES = [
    ["the red car is gone", "a red automobile left"],
    ["the red car is gone"],
    ["the red car is gone"],
    ["a b c"],
]
# What METEOR 1.5 prints of each, for `EVAL`.
EACH = [0.3300263119426977, 1.0, 0.0, 0.0]


def java_children():
    """Return the Java programs that this process has left; other tests leave servers of their
    own."""
    found = [
        pid
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
    return [pid for pid in found if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]


def test_the_formula_by_hand():
    # One content word of two is found, of two texts of two content words each, in one chunk: P = R
    # = 1/2, and with
    # chunks / matches = 1 the penalty is 0.6.
    row = np.zeros(23)
    row[[0, 1, 4, 5, 20, 21, 22]] = [2, 2, 1, 1, 1, 1, 1]
    assert conclude_meteor(row)[0] == pytest.approx(0.5 * (1 - 0.6))
    assert conclude_meteor(np.zeros((2, 23))).tolist() == [[0.0], [0.0]]


@pytest.mark.slow
@needs_java
def test_meteor_equals_its_own_scores():
    measured = measure_meteor(PREDICTIONS, REFERENCES, limit_s=120)
    assert measured.conclude(measured.statistics)[:, 0] == pytest.approx(EACH, abs=1e-12)
    given = (
        b"EVAL ||| "
        + b" ||| ".join(" ".join(map(str, row)).encode() for row in measured.statistics)
        + b"\n"
    )
    words = [
        "-Xmx2G",
        "-jar",
        str(find_jar("meteor/meteor-1.5.jar")),
        "-",
        "-",
        "-stdio",
        "-l",
        "en",
        "-norm",
    ]
    printed = run_java(words, given, limit_s=120).split()
    assert float(printed[-1]) == pytest.approx(
        measured.conclude(measured.statistics.sum(axis=0))[0], abs=1e-12
    )


@needs_java
def test_a_program_that_takes_too_long_is_ended():
    with pytest.raises(UnavailableError, match=r"0\.3 s"):
        measure_meteor(PREDICTIONS, REFERENCES, limit_s=0.3)
    assert java_children() == []


@needs_java
def test_a_program_that_fails_says_why():
    with pytest.raises(UnavailableError, match=r"no-such\.jar"):
        run_java(["-jar", "no-such.jar"], b"", limit_s=60)


def test_without_java_both_say_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for measure in (measure_meteor, measure_spice):
        with pytest.raises(UnavailableError, match="Java"):
            measure(PREDICTIONS, REFERENCES, limit_s=60)


@needs_java
def test_spice_fetches_nothing_unasked():
    folder = find_jar(metrics.SPICE_JAR).parent / "lib"
    before = sorted(folder.iterdir())
    if (folder / Path(metrics.CORE_NLP[0]).name).exists():
        pytest.skip("CoreNLP's files are here")
    with pytest.raises(
        UnavailableError, match=r"stanford-corenlp-3\.6\.0\.jar, .*models.jar .*get_stanford_models"
    ):
        measure_spice(PREDICTIONS, REFERENCES, limit_s=60)
    assert sorted(folder.iterdir()) == before
