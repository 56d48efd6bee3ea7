"""Measure what models say of rendered scenes: against what was to be said, and against the two scene graphs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pairwright as pw
from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import Graphs, holds
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.texts.differences import Difference, read_difference
from tests.bench.drawn_scenes import draw_rows

DRAWN_TESTS = 400
MEASURES = {
    "CIDEr-D": ("cider", 1),
    "of another pair": ("cider_elsewhere", 1),
    "all statements true": ("true", 100),
    "statements true": ("statements", 100),
    "of another pair, too": ("elsewhere", 100),
    "unreadable": ("unreadable", 100),
}
"""Columns of a table: what ``measure`` calls it, and what it is multiplied by."""


def measure(rows: Sequence[PreferenceRow], answers: Sequence[str], graphs: Mapping[str, Graphs]) -> dict[str, Any]:
    """Return what the answers to some rows are worth.

    ``statements`` is the share of statements that hold of the row's own scenes, ``elsewhere`` of those of another row,
    half the rows away; so with ``cider`` and ``cider_elsewhere``. What is said without looking is worth as much there.
    """
    judged = [judge(answer, graphs[row.subject]) for row, answer in zip(rows, answers, strict=True)]
    others = [*rows[len(rows) // 2 :], *rows[: len(rows) // 2]]
    elsewhere = [judge(answer, graphs[row.subject]) for row, answer in zip(others, answers, strict=True)]
    return {
        "rows": len(rows),
        "cider": cider([row.chosen for row in rows], answers),
        "cider_elsewhere": cider([row.chosen for row in others], answers),
        "true": sum(bool(own) and all(own) for own in judged) / len(rows),
        "statements": _share(judged),
        "elsewhere": _share(elsewhere),
        "unreadable": sum(not own for own in judged) / len(rows),
        "distinct": len(set(answers)) / len(rows),
        "examples": [[row.chosen, answer] for row, answer in zip(rows[:3], answers[:3], strict=True)],
    }


def _share(judged: Sequence[Sequence[bool]]) -> float:
    said = [one for own in judged for one in own]
    return sum(said) / max(len(said), 1)


def find_rows(dataset: str) -> tuple[list[PreferenceRow], dict[str, Graphs]]:
    """Return the rows of a dataset to train and to test on, with their graphs.

    Args:
        dataset: a build; or so many drawn pairs: "drawn:6000", with a seed "drawn:6000:1".
    """
    kind, *numbers = dataset.split(":")
    if kind == "drawn":
        number, seed = (*map(int, numbers), 0)[:2]
        return draw_rows(number, DRAWN_TESTS, seed=seed)
    rows = [chosen_alone(row) for row in read_preferences(dataset) if row.split in ("train", "test")]
    return rows, read_graphs(dataset, rows)


def chosen_alone(row: PreferenceRow) -> PreferenceRow:
    """Return a row without what is not trained on here, so that the runs' tables are small."""
    return replace(row, negatives=(), rejected_images=(), removal_scores=(), rejected_image_maker="")


def read_graphs(dataset: str, rows: Sequence[PreferenceRow]) -> dict[str, Graphs]:
    """Return the graphs of both images of each row's pair, by the row's subject."""
    images = {row.key: row for row in pw.open(dataset)["images"].rows(without=("image",))}
    pairs = {row.key: row for row in pw.open(dataset)["pairs"].rows()}
    found: dict[str, Graphs] = {}
    for row in rows:
        first, second = (images[key].graph for key in (pairs[row.subject].first, pairs[row.subject].second))
        assert first is not None
        assert second is not None
        found[row.subject] = (first, second)
    return found


def read_preferences(dataset: str) -> list[PreferenceRow]:
    """Return all preferences of a dataset."""
    return list(pw.open(dataset)["preferences"].rows())


def read_answers(run: Path) -> dict[str, str]:
    """Return what the model of a finished run said of each held-out row, by the row's key."""
    lines = (run / "answers" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["id"]: one["text"] for one in map(json.loads, lines)}


def judge(answer: str, graphs: Graphs) -> list[bool]:
    """Return whether each statement that can be read of an answer holds of the two scene graphs."""
    joined = re.sub(r"' (\w+) '", r"'\1'", answer)  # NAMC's words have spaces between them: "reading ' stop '"
    read = read_difference(joined, difference_verbs())
    if not isinstance(read, Difference):
        return []
    reading = read_phrases(read.first_half, read.second_half)
    return [holds(claim, graphs) for claim in reading.claims]


def cider(references: Sequence[str], answers: Sequence[str]) -> float:
    """Return CIDEr-D, in the usual points (times 100), of lower-cased words without punctuation."""
    from pairwright.tasks.evaluation.score_captions import measure_cider

    def tokens(text: str) -> str:
        return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())

    measured = measure_cider([tokens(text) for text in answers], [[tokens(text)] for text in references])
    return 100 * float(measured.conclude(measured.statistics.sum(axis=0))[0])
