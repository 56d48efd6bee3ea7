"""Tokenise captions as coco-caption does: by Stanford's PTBTokenizer where there is Java, else by its rules in Python.

Words come in lower case and without punctuation. Line breaks in a text count as spaces. PTBTokenizer looks beyond the
end of a line at times (a "no." keeps its dot where the next text begins with a digit: 40 of 60,000 made-up captions);
so predictions and references are two files for it, as in coco-caption. The rules in Python take each text for itself.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pairwright.tasks.evaluation.java_metrics import UnavailableError, find_jar, run_java
from pairwright.tasks.evaluation.ptb_rules import tokenise

JAR = "tokenizer/stanford-corenlp-3.4.1.jar"
CLASS = "edu.stanford.nlp.process.PTBTokenizer"
PUNCTUATION = frozenset(["''", "``", "-LRB-", "-RRB-", "-LCB-", "-RCB-", "--", "...", *"'`.?!,:-;"])
"""What coco-caption leaves out. Its brackets are in capitals and those of the tokeniser are not: they stay in."""
TOKENISERS = ("auto", "java", "python")
JAVA, PYTHON = "PTBTokenizer 3.4.1 (Java)", "PTBTokenizer's rules in Python"
_BREAKS = re.compile("[\n\r\x0b\x0c\u2028\u2029]")


@dataclass(frozen=True)
class Tokenised:
    """Tokens of each file's texts, joined by one space each; by what; and why not by Java where that was preferred."""

    files: list[list[str]]
    by: str
    reason: str = ""


def tokenise_texts(*files: Sequence[str], tokeniser: str = "auto", limit_s: float = 600) -> Tokenised:
    """Return the tokens of each text of each file, by one of ``TOKENISERS`` (``auto``: Java's where it runs).

    Raises:
        UnavailableError: Java's was asked for, and does not run.
    """
    reason = ""
    if tokeniser != "python":
        try:
            return Tokenised([tokenise_with_java(texts, limit_s=limit_s) for texts in files], JAVA)
        except UnavailableError as error:
            if tokeniser == "java":
                raise
            reason = str(error)
    return Tokenised([[tokenise(_BREAKS.sub(" ", text)) for text in texts] for texts in files], PYTHON, reason)


def tokenise_with_java(texts: Sequence[str], *, limit_s: float) -> list[str]:
    """Return the tokens of each text.

    Raises:
        UnavailableError: it does not run, or takes longer than ``limit_s``.
    """
    jar = find_jar(JAR)
    with tempfile.TemporaryDirectory(prefix="pairwright-tokens-") as folder:
        given = Path(folder, "texts")
        given.write_text("".join(_BREAKS.sub(" ", text) + "\n" for text in texts), encoding="utf-8")
        words = ["-cp", str(jar), CLASS, "-preserveLines", "-lowerCase", str(given)]
        lines = run_java(words, b"", limit_s=limit_s).decode().split("\n")[:-1]
    if len(lines) != len(texts):
        raise UnavailableError(f"PTBTokenizer made {len(lines)} lines of {len(texts)}")
    return [" ".join(word for word in line.rstrip().split(" ") if word not in PUNCTUATION) for line in lines]
