"""Score captions against references: tokens, metrics, intervals, and metrics that could not be run.

BLEU (Papineni et al. 2002), ROUGE-L (Lin 2004) and CIDEr-D (Vedantam et al. 2015) are
pycocoevalcap's; METEOR 1.5 and SPICE 1.0 are its Java programs, run as by coco-caption, with a time
limit. METEOR needs 2 GB, SPICE 8 GB and two files of Stanford CoreNLP 3.6.0 (400 MB), which
pycocoevalcap would fetch; here nothing is fetched. CIDEr-D's intervals keep the document
frequencies of the whole corpus. CPU; no network.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.measured import (
    Floats,
    Measured,
    Score,
    compute_scores,
    measure_mean,
)
from pairwright.tasks.evaluation.ptb_rules import split_ptb_words
from pairwright.tasks.evaluation.read_captions import Matched

MODULES = tuple(
    f"java.base/java.{name}=ALL-UNNAMED"
    for name in ("lang", "math", "util", "util.concurrent", "net", "text")
)
"""Used by pre-Java-9 programs."""
INSTALL = (
    "pycocoevalcap is not installed: "
    "python -m pip install -c constraints.txt -e '.[cpu,evaluation]'"
)
METEOR_JAR = "meteor/meteor-1.5.jar"
SPICE_JAR = "spice/spice-1.0.jar"
CORE_NLP = ("spice/lib/stanford-corenlp-3.6.0.jar", "spice/lib/stanford-corenlp-3.6.0-models.jar")
FETCH = "python -m pycocoevalcap.spice.get_stanford_models"
# METEOR's parameters for English.
ALPHA = 0.85
BETA = 0.2
GAMMA = 0.6
DELTA = 0.75
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # of METEOR's exact, stem, synonym and paraphrase matches
COUNTS = 23
"""METEOR's numbers per item: lengths of both texts and of their function words; per kind of match
the content words of both and the function words of both; chunks; matched words of both."""


def require_installed() -> None:
    """Raise ``ConfigError`` where pycocoevalcap is not installed."""
    if not find_spec("pycocoevalcap"):
        raise ConfigError(INSTALL)


class UnavailableError(Exception):
    """Reason, in one sentence, why a program cannot be run or failed."""


def find_jar(name: str) -> Path:
    """Return a file of pycocoevalcap; ``UnavailableError`` without Java, package, or file."""
    if not shutil.which("java"):
        raise UnavailableError("no Java (`java` is not on the PATH)")
    spec = find_spec("pycocoevalcap")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise UnavailableError(INSTALL)
    path = Path(folders[0], name)
    if not path.is_file():
        raise UnavailableError(f"{path} is missing")
    return path


def run_java(
    arguments: Sequence[str],
    stdin: bytes,
    *,
    limit_s: float,
    folder: Path | None = None,
) -> bytes:
    """Return the output of ``java ARGUMENTS``; ``UnavailableError`` on failure or timeout."""
    command = [shutil.which("java") or "java"]
    if "-jar" in arguments:
        for module in MODULES:
            command += ("--add-opens", module)
    command += arguments
    try:
        process = subprocess.run(  # noqa: S603  (ours)
            command, input=stdin, capture_output=True, timeout=limit_s, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Java exceeded {limit_s:g} s and was killed") from None
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[0][:300] if lines else "no error output"
        raise UnavailableError(f"Java ended with {process.returncode}: {reason}")
    return process.stdout


def measure_meteor(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    limit_s: float,
) -> Measured:
    """Return METEOR's counts of each item.

    The score is computed from their sums, so that resamples need no Java.
    """
    requests: list[str] = []
    for prediction, texts in zip(predictions, references, strict=True):
        fields = [_clean_meteor_field(text) for text in (*texts, prediction)]
        requests.append(" ||| ".join(["SCORE", *fields]) + "\n")
    arguments = ["-Xmx2G", "-jar", str(find_jar(METEOR_JAR)), "-", "-", "-stdio"]
    arguments += ["-l", "en", "-norm"]
    output = run_java(arguments, "".join(requests).encode(), limit_s=limit_s)
    lines = output.decode().splitlines()
    try:
        counts = np.array([line.split() for line in lines], dtype=np.float64)
    except ValueError as error:
        raise UnavailableError(f"METEOR printed invalid counts: {error}") from error
    if counts.shape != (len(predictions), COUNTS):
        raise UnavailableError(
            f"METEOR printed counts of {len(lines)} items, not of {len(predictions)}"
        )
    # Zero chunks where all words match in order: METEOR does not penalise such texts.
    matched = counts[:, 4:20].reshape(len(counts), -1, 2).sum(axis=1)
    is_whole = np.all(matched == counts[:, 0:2], axis=1)
    counts[is_whole & (counts[:, 20] == 1), 20] = 0
    return Measured(names=("METEOR",), statistics=counts, conclude=conclude_meteor)


def _clean_meteor_field(text: str) -> str:
    return text.replace("|||", "").replace("  ", " ")


def conclude_meteor(sums: Floats) -> Floats:
    """Return METEOR of summed counts, by the program's formula (Denkowski and Lavie 2014)."""
    lengths = sums[..., 0:2]
    function_words = sums[..., 2:4]
    # Axes: kind of match, content or function words, side.
    matches = sums[..., 4:20].reshape(*sums.shape[:-1], len(WEIGHTS), 2, 2)
    by_words = WEIGHTS @ matches.swapaxes(-3, -2)
    sides = np.array([DELTA, 1 - DELTA]) @ by_words
    weighed = DELTA * (lengths - function_words) + (1 - DELTA) * function_words
    precision, recall = np.moveaxis(_share(sides, weighed), -1, 0)
    mean = _share(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    matched_words = sums[..., 21:23].mean(axis=-1)
    fragmentation = _share(sums[..., 20], matched_words)
    score = mean * (1 - GAMMA * fragmentation**BETA)
    return score[..., None]


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(
        part,
        whole,
        out=np.zeros_like(whole),
        where=whole > 0,
    )


def measure_spice(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    limit_s: float,
) -> Measured:
    """Return SPICE of each item; the corpus' score is their mean."""
    jar = find_jar(SPICE_JAR)
    package = jar.parent.parent
    missing = [Path(name).name for name in CORE_NLP if not (package / name).is_file()]
    if missing:
        raise UnavailableError(f"missing {', '.join(missing)} (400 MB); fetch with: {FETCH}")
    items: list[dict[str, Any]] = []
    for prediction, texts in zip(predictions, references, strict=True):
        items.append({"image_id": len(items), "test": prediction, "refs": list(texts)})
    with tempfile.TemporaryDirectory(prefix="pairwright-spice-") as folder:
        given_path = Path(folder, "given.json")
        scores_path = Path(folder, "made.json")
        given_path.write_text(json.dumps(items), encoding="utf-8")
        arguments = ["-Xmx8G", "-jar", str(jar), str(given_path), "-out", str(scores_path)]
        arguments += ["-subset", "-silent"]
        run_java(arguments, b"", limit_s=limit_s, folder=jar.parent)
        try:
            scores = _read_spice_scores(scores_path, len(items))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"SPICE wrote unreadable scores: {error!r}") from error
    return measure_mean("SPICE", scores)


def _read_spice_scores(path: Path, count: int) -> list[float]:
    """Return SPICE of each item; NaN: undefined."""
    scores: dict[int, float | None] = {}
    for item in json.loads(path.read_bytes()):
        scores[int(item["image_id"])] = item["scores"]["All"]["f"]
    values = [scores[index] for index in range(count)]
    return [np.nan if value is None else float(value) for value in values]


Measure = Callable[[Sequence[str], Sequence[Sequence[str]]], Measured]
"""Measures predictions and their references, item by item."""
Progress = Callable[[int, int], None]
METRICS = ("bleu", "meteor", "rouge-l", "cider-d", "spice")
ORDERS = 4  # maximum n-gram of BLEU and CIDEr-D


@dataclass(frozen=True)
class ScoringConfig:
    """Metrics (of ``METRICS``) and bootstrap (0 resamples: no intervals)."""

    metrics: tuple[str, ...] = METRICS
    resamples: int = 1000
    seed: int = 0
    limit_s: float = 600  # time limit of each Java program

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                names = ", ".join(METRICS)
                raise ConfigError(f"--metric {name}: unknown metric; choose from {names}")


@dataclass(frozen=True)
class CaptionScores:
    """Scores of a corpus as fractions (CIDEr-D up to 10)."""

    scores: list[Score]
    skipped: dict[str, str]  # unavailable metrics, with reasons
    references: int


def _ignore_progress(_finished: int, _total: int) -> None:
    pass


def score_captions(
    matched: Matched,
    config: ScoringConfig,
    *,
    progress: Progress = _ignore_progress,
) -> CaptionScores:
    """Return the scores of items; ``progress`` receives finished and total steps."""
    measured, skipped = measure_captions(matched, config, progress=progress)
    scores = compute_scores(measured, resamples=config.resamples, seed=config.seed)
    references = sum(len(item.references) for item in matched.items)
    return CaptionScores(scores, skipped, references)


def measure_captions(
    matched: Matched,
    config: ScoringConfig,
    *,
    progress: Progress = _ignore_progress,
) -> tuple[list[Measured], dict[str, str]]:
    """Return the metrics' statistics, and unavailable metrics with reasons."""
    require_installed()
    predictions = [split_ptb_words(item.prediction) for item in matched.items]
    references = [[split_ptb_words(text) for text in item.references] for item in matched.items]
    measures: dict[str, Measure] = {
        "bleu": measure_bleu,
        "meteor": partial(measure_meteor, limit_s=config.limit_s),
        "rouge-l": measure_rouge,
        "cider-d": measure_cider,
        "spice": partial(measure_spice, limit_s=config.limit_s),
    }
    measured: list[Measured] = []
    skipped: dict[str, str] = {}
    for number, name in enumerate(config.metrics):
        progress(number + 1, len(config.metrics) + 1)
        try:
            measured.append(measures[name](predictions, references))
        except UnavailableError as error:
            skipped[name] = str(error)
    return measured, skipped


def measure_bleu(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return the lengths and matches of each item, for BLEU-1 to BLEU-4."""
    from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

    rows: list[list[float]] = []
    for prediction, texts in zip(predictions, references, strict=True):
        counts = cook_test(
            prediction,
            cook_refs(texts, n=ORDERS),
            eff="closest",
            n=ORDERS,
        )
        rows.append([counts["testlen"], counts["reflen"], *counts["guess"], *counts["correct"]])
    names = tuple(f"BLEU-{order}" for order in range(1, ORDERS + 1))
    return Measured(
        names=names,
        statistics=np.array(rows, np.float64),
        conclude=conclude_bleu,
    )


def conclude_bleu(sums: Floats) -> Floats:
    """Return BLEU-1 to BLEU-4 of summed lengths, reference lengths, n-grams and matches."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    def score_sums(row: Floats) -> list[float]:
        scorer = BleuScorer(n=ORDERS)
        counts = {
            "testlen": row[0],
            "reflen": [row[1]],
            "guess": row[2 : 2 + ORDERS],
            "correct": row[2 + ORDERS :],
        }
        scorer.ctest = [counts]
        return scorer.compute_score(option="closest")[0]

    return np.apply_along_axis(score_sums, -1, sums)


def measure_rouge(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return ROUGE-L of each item; the corpus' score is their mean."""
    from pycocoevalcap.rouge.rouge import Rouge

    rouge = Rouge()
    scores: list[float] = []
    for prediction, texts in zip(predictions, references, strict=True):
        scores.append(rouge.calc_score([prediction], texts))
    return measure_mean("ROUGE-L", scores)


def measure_cider(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return CIDEr-D of each item; the corpus' score is their mean. One item alone scores 0."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    has_words = any(any(map(str.split, texts)) for texts in references)
    if not has_words:  # unsupported by the scorer
        return measure_mean("CIDEr-D", np.zeros(len(predictions)))
    scorer = CiderScorer(n=ORDERS, sigma=6.0)
    for prediction, texts in zip(predictions, references, strict=True):
        scorer += (prediction, texts)
    return measure_mean("CIDEr-D", scorer.compute_score()[1])
