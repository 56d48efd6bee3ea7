"""METEOR and SPICE: METEOR's own numbers, and what is said where a program cannot run."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pairwright.tasks.evaluation import score_captions as metrics
from pairwright.tasks.evaluation.score_captions import (
    UnavailableError,
    conclude_meteor,
    find_jar,
    measure_meteor,
    measure_spice,
    run_java,
)

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java on this machine")

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
    """Return the Java programs that this process has left; other tests leave servers of their own."""
    found = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in found if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]


def test_the_formula_by_hand():
    # One content word of two is found, of two texts of two content words each, in one chunk: P = R = 1/2, and with
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
    given = b"EVAL ||| " + b" ||| ".join(" ".join(map(str, row)).encode() for row in measured.statistics) + b"\n"
    words = ["-Xmx2G", "-jar", str(find_jar("meteor/meteor-1.5.jar")), "-", "-", "-stdio", "-l", "en", "-norm"]
    printed = run_java(words, given, limit_s=120).split()
    assert float(printed[-1]) == pytest.approx(measured.conclude(measured.statistics.sum(axis=0))[0], abs=1e-12)


@needs_java
def test_a_program_that_takes_too_long_is_ended():
    with pytest.raises(UnavailableError, match=r"0\.3 s"):
        measure_meteor(PREDICTIONS, REFERENCES, limit_s=0.3)
    assert java_children() == []


@needs_java
def test_a_program_that_fails_says_why():
    with pytest.raises(UnavailableError, match=r"no-such\.jar"):
        run_java(["-jar", "no-such.jar"], b"", limit_s=60)


def test_java_that_cannot_be_started_is_no_crash(monkeypatch, tmp_path):
    (tmp_path / "java").write_bytes(b"\x7fELF no program")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="Exec format error"):
        run_java(["-version"], b"", limit_s=60)


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
    with pytest.raises(UnavailableError, match=r"stanford-corenlp-3\.6\.0\.jar, .*models.jar .*get_stanford_models"):
        measure_spice(PREDICTIONS, REFERENCES, limit_s=60)
    assert sorted(folder.iterdir()) == before


@needs_java
def test_spice_that_fails_says_why(monkeypatch):
    """Without CoreNLP the program starts and fails; nothing but the look for the files is left out here."""
    monkeypatch.setattr(metrics, "CORE_NLP", ())
    if (find_jar(metrics.SPICE_JAR).parent / "lib/stanford-corenlp-3.6.0.jar").exists():
        pytest.skip("CoreNLP's files are here")
    with pytest.raises(UnavailableError, match="NoClassDefFoundError"):
        measure_spice(PREDICTIONS, REFERENCES, limit_s=120)
    assert java_children() == []
