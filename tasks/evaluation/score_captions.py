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

import numpy as np

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.measured import Floats, Measured, Score, conclude, measure_mean
from pairwright.tasks.evaluation.ptb_rules import tokenise
from pairwright.tasks.evaluation.read_captions import Matched

MODULES = tuple(
    f"java.base/java.{name}=ALL-UNNAMED"
    for name in ("lang", "math", "util", "util.concurrent", "net", "text")
)
"""Used by pre-Java-9 programs."""
INSTALL = "pycocoevalcap is not installed: python -m pip install -c constraints.txt -e '.[cpu,evaluation]'"
METEOR_JAR, SPICE_JAR = "meteor/meteor-1.5.jar", "spice/spice-1.0.jar"
CORE_NLP = ("spice/lib/stanford-corenlp-3.6.0.jar", "spice/lib/stanford-corenlp-3.6.0-models.jar")
FETCH = "python -m pycocoevalcap.spice.get_stanford_models"
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # of METEOR's exact, stem, synonym and paraphrase matches
COUNTS = 23
"""METEOR's numbers per item: lengths of both texts and of their function words; per kind of match
the content words of both and the function words of both; chunks; matched words of both. """


def require_installed() -> None:
    """Raise ``ConfigError`` where pycocoevalcap is not installed."""
    if not find_spec("pycocoevalcap"):
        raise ConfigError(INSTALL)


class UnavailableError(Exception):
    """Reason, in one sentence, why a program cannot be run or failed."""


def find_jar(place: str) -> Path:
    """Return a file of pycocoevalcap; ``UnavailableError`` without Java, package, or file."""
    if not shutil.which("java"):
        raise UnavailableError("no Java (`java` is not on the PATH)")
    found = find_spec("pycocoevalcap")
    folders = list(found.submodule_search_locations or ()) if found else []
    if not folders:
        raise UnavailableError(INSTALL)
    path = Path(folders[0], place)
    if not path.is_file():
        raise UnavailableError(f"{path} is missing")
    return path


def run_java(
    words: Sequence[str], given: bytes, *, limit_s: float, folder: Path | None = None
) -> bytes:
    """Return the output of ``java WORDS`` for an input; ``UnavailableError`` on failure or timeout."""
    opened = (
        [word for module in MODULES for word in ("--add-opens", module)] if "-jar" in words else []
    )
    command = [shutil.which("java") or "java", *opened, *words]
    try:
        done = subprocess.run(  # noqa: S603  (ours)
            command, input=given, capture_output=True, timeout=limit_s, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Java exceeded {limit_s:g} s and was killed") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no error output"]
        raise UnavailableError(f"Java ended with {done.returncode}: {lines[0][:300]}")
    return done.stdout


def measure_meteor(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, limit_s: float
) -> Measured:
    """Return METEOR's counts of each item, whose sums give the score, so that resamples need no Java."""
    rows = ([*texts, text] for text, texts in zip(predictions, references, strict=True))
    fields = ([text.replace("|||", "").replace("  ", " ") for text in row] for row in rows)
    given = "".join(" ||| ".join(["SCORE", *row]) + "\n" for row in fields)
    words = ["-Xmx2G", "-jar", str(find_jar(METEOR_JAR)), "-", "-", "-stdio", "-l", "en", "-norm"]
    lines = run_java(words, given.encode(), limit_s=limit_s).decode().splitlines()
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
    counts[np.all(matched == counts[:, 0:2], axis=1) & (counts[:, 20] == 1), 20] = 0
    return Measured(names=("METEOR",), statistics=counts, conclude=conclude_meteor)


def conclude_meteor(sums: Floats) -> Floats:
    """Return METEOR of summed counts, by the program's formula (Denkowski and Lavie 2014)."""
    lengths, function_words = sums[..., 0:2], sums[..., 2:4]
    matches = sums[..., 4:20].reshape(
        *sums.shape[:-1], len(WEIGHTS), 2, 2
    )  # kind, content or function, side
    sides = np.array([DELTA, 1 - DELTA]) @ (WEIGHTS @ matches.swapaxes(-3, -2))
    weighed = DELTA * (lengths - function_words) + (1 - DELTA) * function_words
    precision, recall = np.moveaxis(_share(sides, weighed), -1, 0)
    mean = _share(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    broken = _share(sums[..., 20], sums[..., 21:23].mean(axis=-1))
    return (mean * (1 - GAMMA * broken**BETA))[..., None]


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def measure_spice(
    predictions: Sequence[str], references: Sequence[Sequence[str]], *, limit_s: float
) -> Measured:
    """Return SPICE of each item; the corpus' score is their mean."""
    jar = find_jar(SPICE_JAR)
    if missing := [
        Path(name).name for name in CORE_NLP if not (jar.parent.parent / name).is_file()
    ]:
        raise UnavailableError(f"missing {', '.join(missing)} (400 MB); fetch with: {FETCH}")
    pairs = zip(predictions, references, strict=True)
    items = [
        {"image_id": item, "test": text, "refs": list(texts)}
        for item, (text, texts) in enumerate(pairs)
    ]
    with tempfile.TemporaryDirectory(prefix="pairwright-spice-") as folder:
        given, made = Path(folder, "given.json"), Path(folder, "made.json")
        given.write_text(json.dumps(items), encoding="utf-8")
        words = ["-Xmx8G", "-jar", str(jar), str(given), "-out", str(made), "-subset", "-silent"]
        run_java(words, b"", limit_s=limit_s, folder=jar.parent)
        try:
            scores = {
                int(one["image_id"]): one["scores"]["All"]["f"]
                for one in json.loads(made.read_bytes())
            }
            found = [
                np.nan if scores[item] is None else float(scores[item])
                for item in range(len(items))
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"SPICE wrote unreadable scores: {error!r}") from error
    return measure_mean("SPICE", found)


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
                raise ConfigError(
                    f"--metric {name}: unknown metric; choose from {', '.join(METRICS)}"
                )


@dataclass(frozen=True)
class CaptionScores:
    """Scores of a corpus as fractions (CIDEr-D up to 10)."""

    scores: list[Score]
    skipped: dict[str, str]  # unavailable metrics, with reasons
    references: int


def score_captions(
    matched: Matched,
    config: ScoringConfig,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> CaptionScores:
    """Return the scores of items; ``progress`` receives finished and total steps."""
    measured, skipped = measure_captions(matched, config, progress=progress)
    scores = conclude(measured, resamples=config.resamples, seed=config.seed)
    return CaptionScores(scores, skipped, sum(len(item.references) for item in matched.items))


def measure_captions(
    matched: Matched,
    config: ScoringConfig,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[list[Measured], dict[str, str]]:
    """Return the metrics' statistics, and unavailable metrics with reasons."""
    require_installed()
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
        counts = cook_test(prediction, cook_refs(texts, n=ORDERS), eff="closest", n=ORDERS)
        rows.append([counts["testlen"], counts["reflen"], *counts["guess"], *counts["correct"]])
    names = tuple(f"BLEU-{order}" for order in range(1, ORDERS + 1))
    return Measured(names=names, statistics=np.array(rows, np.float64), conclude=conclude_bleu)


def conclude_bleu(sums: Floats) -> Floats:
    """Return BLEU-1 to BLEU-4 of summed lengths, reference lengths, n-grams and matches."""
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
    return measure_mean(
        "ROUGE-L", [rouge.calc_score([prediction], texts) for prediction, texts in pairs]
    )


def measure_cider(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Measured:
    """Return CIDEr-D of each item; the corpus' score is their mean. One item alone scores 0."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    if not any(text.split() for texts in references for text in texts):  # unsupported by the scorer
        return measure_mean("CIDEr-D", np.zeros(len(predictions)))
    scorer = CiderScorer(n=ORDERS, sigma=6.0)
    for prediction, texts in zip(predictions, references, strict=True):
        scorer += (prediction, texts)
    return measure_mean("CIDEr-D", scorer.compute_score()[1])
