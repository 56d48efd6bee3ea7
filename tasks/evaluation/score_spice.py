"""SPICE 1.0, as coco-caption runs it, by the Java program that pycocoevalcap brings.

It also needs two files of Stanford CoreNLP 3.6.0 (about 400 MB), which pycocoevalcap fetches as soon as its class is
made. Here nothing is fetched: where they are missing, the reason says which command brings them. Needs 8 GB.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from pairwright.tasks.evaluation.corpus import Corpus, Measured, measure_mean
from pairwright.tasks.evaluation.run_java import UnavailableError, find_jar, run_java

NAME = "SPICE"
JAR = "spice/spice-1.0.jar"
MODELS = ("spice/lib/stanford-corenlp-3.6.0.jar", "spice/lib/stanford-corenlp-3.6.0-models.jar")
FETCH = "python -m pycocoevalcap.spice.get_stanford_models"


def measure_spice(corpus: Corpus, *, limit_s: float) -> Measured:
    """Return SPICE of each item; the corpus' score is their mean.

    Raises:
        UnavailableError: Java, pycocoevalcap or CoreNLP's files are not there, or the program failed or took longer
            than ``limit_s``.
    """
    jar = find_jar(JAR)
    missing = [name for name in MODELS if not (jar.parent.parent / name).is_file()]
    if missing:
        names = ", ".join(Path(name).name for name in missing)
        raise UnavailableError(f"it needs {names} (400 MB), which nothing fetches unasked; they come with: {FETCH}")
    with tempfile.TemporaryDirectory(prefix="pairwright-spice-") as folder:
        return measure_mean(NAME, _run(jar, corpus, Path(folder), limit_s))


def _run(jar: Path, corpus: Corpus, folder: Path, limit_s: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    pairs = zip(corpus.predictions, corpus.references, strict=True)
    items = [{"image_id": item, "test": text, "refs": list(texts)} for item, (text, texts) in enumerate(pairs)]
    given, made = folder / "given.json", folder / "made.json"
    given.write_text(json.dumps(items), encoding="utf-8")
    words = ["-Xmx8G", "-jar", str(jar), str(given), "-out", str(made), "-subset", "-silent"]
    run_java(words, b"", limit_s=limit_s, folder=jar.parent)
    try:
        found = json.loads(made.read_bytes())
        scores = {int(one["image_id"]): one["scores"]["All"]["f"] for one in found}
        return np.array([np.nan if scores[n] is None else float(scores[n]) for n in range(len(items))])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"SPICE wrote no scores that can be read: {error!r}") from error
