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
from pairwright.tasks.evaluation.measured import measure_mean, resample
from pairwright.tasks.evaluation.read_captions import Matched, Prediction

METRICS = [
    (score_captions.measure_bleu, Bleu(), {"verbose": 0}),
    (score_captions.measure_rouge, Rouge(), {}),
    (score_captions.measure_cider, Cider(), {}),
]
WORDS = st.sampled_from(["a", "b", "c", "dd", "left-hand", "'s", "ünï", "1\N{NO-BREAK SPACE}1/2"])
PREDICTED = st.lists(WORDS, max_size=12).map(" ".join)
REFERENCE = st.lists(WORDS, max_size=9).map(" ".join)
ITEMS = st.tuples(PREDICTED, st.lists(REFERENCE, min_size=1, max_size=4))
CORPORA = st.lists(ITEMS, min_size=1, max_size=8).filter(
    lambda items: any(any(references) for _, references in items)
)
"""Some references may be blank, but not all."""


def score(measured):
    """Return the scores of the whole corpus."""
    return measured.conclude(measured.statistics.sum(axis=0))


@given(CORPORA)
def test_they_equal_the_reference_implementation(corpus):
    predictions, references = (list(texts) for texts in zip(*corpus, strict=True))
    theirs = dict(enumerate(references)), {item: [text] for item, text in enumerate(predictions)}
    for measure, metric, options in METRICS:
        measured = measure(predictions, references)
        whole, of_items = metric.compute_score(*theirs, **options)
        assert np.abs(score(measured) - np.atleast_1d(whole)).max() < 1e-9
        each = measured.conclude(measured.statistics)
        assert np.abs(each - np.atleast_2d(of_items).T).max() < 1e-9


def test_scores_by_hand():
    # BLEU: 2 + 4 words against 4 + 4: exp(1 - 8/6). ROUGE-L: "the car gone" (3 of 4 words), and
    # "car is" (2 of 2).
    bleu = score(score_captions.measure_bleu(["a b", "c d e f"], [["a b c d"], ["c d e f"]]))
    assert bleu[0] == pytest.approx(math.exp(1 - 8 / 6))
    rouge = score(
        score_captions.measure_rouge(["the car is gone"], [["the red car was gone", "car is"]])
    )
    assert rouge[0] == pytest.approx((1 + 1.44) * 3 / 4 / (1 + 1.44 * 3 / 4))


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (score_captions.measure_bleu, 0),
        (score_captions.measure_rouge, 1),
        (score_captions.measure_cider, 0),
    ],
)
def test_scores_without_words(measure, expected):
    assert score(measure(["", ""], [[""], ["", ""]])) == pytest.approx(expected, abs=1e-3)


def test_an_interval_is_of_its_seed():
    measured = measure_mean("x", np.random.default_rng(0).random(50))
    first, again, other = (resample(measured, resamples=200, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(score_captions, "find_spec", lambda _: None)
    matched = Matched([Prediction("1", "a", ("a",))], 0, 0, 0, 0)
    with pytest.raises(ConfigError, match=r"pip install .*evaluation"):
        score_captions.score_captions(matched, score_captions.ScoringConfig())


@pytest.mark.parametrize(("confidence", "deviations"), [(0.95, 1.96), (0.5, 0.674)])
def test_an_interval_of_a_mean_is_the_normal_one(confidence, deviations):
    """Of 400 zeros and ones in equal parts: 0.5 ± 1.96 * sqrt(0.25 / 400) = 0.451 to 0.549."""
    measured = measure_mean("x", np.repeat([0.0, 1.0], 200))
    (interval,) = resample(measured, resamples=4000, seed=3, confidence=confidence)
    half = deviations * math.sqrt(0.25 / 400)
    assert list(interval) == pytest.approx([0.5 - half, 0.5 + half], abs=0.006)


@pytest.mark.parametrize("measure", [score_captions.measure_bleu, score_captions.measure_rouge])
def test_a_sum_of_statistics_is_the_score_of_the_drawn_corpus(measure):
    predictions = ["a b c", "a b c d e f", "x y", "a c b d"]
    references = [["a b c d"], ["a b c d e g", "a b"], ["x y z"], ["a b c d"]]
    drawn = [0, 2, 2, 1]
    sums = measure(predictions, references).statistics[drawn].sum(axis=0)
    corpus = [[texts[item] for item in drawn] for texts in (predictions, references)]
    expected = measure(*corpus)
    assert expected.conclude(sums) == pytest.approx(score(expected))


needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
RED = "the red car is gone"
PREDICTIONS = ["the car has gone away", RED, "", "x y z"]
REFERENCES = [[RED, "a red automobile left"], [RED], [RED], ["a b c"]]
# What METEOR 1.5 prints of each, for `EVAL`.
EACH = [0.3300263119426977, 1.0, 0.0, 0.0]


def java_children():
    """Return the Java programs that this process has left; other tests leave servers of their
    own."""
    tasks = [(task / "children").read_text() for task in Path("/proc/self/task").iterdir()]
    pids = [pid for children in tasks for pid in children.split()]
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]


def test_meteor_s_formula_by_hand():
    # One content word of two is found, of two texts of two content words each, in one chunk: P = R
    # = 1/2, and with chunks / matches = 1 the penalty is 0.6.
    row = np.zeros(23)
    row[[0, 1, 4, 5, 20, 21, 22]] = [2, 2, 1, 1, 1, 1, 1]
    assert score_captions.conclude_meteor(row)[0] == pytest.approx(0.5 * (1 - 0.6))
    assert score_captions.conclude_meteor(np.zeros((2, 23))).tolist() == [[0.0], [0.0]]


@pytest.mark.slow
@needs_java
def test_meteor_equals_its_own_scores():
    measured = score_captions.measure_meteor(PREDICTIONS, REFERENCES, limit_s=120)
    assert measured.conclude(measured.statistics)[:, 0] == pytest.approx(EACH, abs=1e-12)
    rows = " ||| ".join(" ".join(map(str, row)) for row in measured.statistics)
    words = ["-Xmx2G", "-jar", str(score_captions.find_jar("meteor/meteor-1.5.jar"))]
    words += ["-", "-", "-stdio", "-l", "en", "-norm"]
    printed = score_captions.run_java(words, f"EVAL ||| {rows}\n".encode(), limit_s=120).split()
    assert float(printed[-1]) == pytest.approx(score(measured)[0], abs=1e-12)


@needs_java
def test_a_program_that_takes_too_long_is_ended():
    with pytest.raises(score_captions.UnavailableError, match=r"0\.3 s"):
        score_captions.measure_meteor(PREDICTIONS, REFERENCES, limit_s=0.3)
    assert java_children() == []


@needs_java
def test_a_program_that_fails_is_quoted():
    with pytest.raises(score_captions.UnavailableError, match=r"no-such\.jar"):
        score_captions.run_java(["-jar", "no-such.jar"], b"", limit_s=60)


@pytest.mark.parametrize("measure", [score_captions.measure_meteor, score_captions.measure_spice])
def test_metrics_that_lack_java(monkeypatch, tmp_path, measure):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(score_captions.UnavailableError, match="Java"):
        measure(PREDICTIONS, REFERENCES, limit_s=60)


@needs_java
def test_spice_fetches_nothing_unasked():
    folder = score_captions.find_jar(score_captions.SPICE_JAR).parent / "lib"
    before = sorted(folder.iterdir())
    if (folder / Path(score_captions.CORE_NLP[0]).name).exists():
        pytest.skip("CoreNLP's files are here")
    files = r"stanford-corenlp-3\.6\.0\.jar, .*models.jar .*get_stanford_models"
    with pytest.raises(score_captions.UnavailableError, match=files):
        score_captions.measure_spice(PREDICTIONS, REFERENCES, limit_s=60)
    assert sorted(folder.iterdir()) == before
