"""Preferences of a dataset under a vision judge: which texts may be true, whatever their side (ours)?

The model is the judge. It sees a preference's images and is asked of each text separately whether it is true. A
rejected text judged true may be no negative. Complements the report's checks by claims, for texts without claims.

Reads ``PreferenceRow`` about two images with both texts; if many, those with the first keys, a random sample.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Literal

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.evaluation.benchmark import Data, Exam, Marked, Replies
from pairwright.tasks.evaluation.benchmarks.choices import Choice, judge_statement, read_choice
from pairwright.tasks.evaluation.measured import Measured, measure_mean, measure_ratios

NAME = "preferences"
MAX_ROWS = 1_000  # preferences whose images are in memory together


def open_exam(data: Data) -> Exam:
    """Return two questions for each preference."""
    held: Iterator[PreferenceRow] = data.rows("preferences", without=("rejected_images",))
    both = (row for row in held if len(row.images) == 2 and row.chosen and row.rejected)
    rows = nsmallest(MAX_ROWS, both, key=lambda row: row.key)
    if not rows:
        raise ConfigError(f"--data {data.folder}: has no preferences about two images with two texts")
    asked = [(row, _ask(row, "chosen"), _ask(row, "rejected")) for row in rows]

    def mark(replies: Replies) -> Marked:
        choices = [choice for _, *own in asked for choice in own]
        read = {one.name: read_choice(replies.texts.get(one.name, ""), one) for one in choices}
        said = [(row.rejected_maker, read[a.name], read[b.name]) for row, a, b in asked if row.key in replies.items]
        taken = {name: option for name, option in read.items() if option}
        return Marked(marks=list(_marks(said)), taken=taken)

    notes = ("told apart: the chosen text was judged true, and the rejected one false (chance: 25 %)",)
    return Exam(questions=[choice for _, *own in asked for choice in own], mark=mark, notes=notes)


def _ask(row: PreferenceRow, side: Literal["chosen", "rejected"]) -> Choice:
    name, text, answer = f"{row.key}_{side}", getattr(row, side), str(side == "chosen")
    return judge_statement(name, row.images, text, answer=answer, prompt="judge_pair_statement", item=row.key)


def _marks(said: Sequence[tuple[str, str | None, str | None]]) -> Iterator[Measured]:
    def believed(texts: Sequence[str | None]) -> tuple[list[float], list[float]]:
        return [text == "True" for text in texts], [text is not None for text in texts]

    chosen, rejected = [one for _, one, _ in said], [one for _, _, one in said]
    yield measure_ratios({"chosen taken for true": believed(chosen), "rejected taken for true": believed(rejected)})
    yield measure_mean("told apart", [texts == ["True", "False"] for _, *texts in said])
    for maker in sorted({maker for maker, _, _ in said}):
        own = [text for other, _, text in said if other == maker]
        yield measure_ratios({"rejected taken for true": believed(own)}, category=maker)
