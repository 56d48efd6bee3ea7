"""The preferences of a dataset before a judge that sees: which texts may be true, whatever they are meant to be?

Ours. The model that is asked is the judge. It sees the images of a preference and is asked of either text, apart from
the other, whether it is true. A rejected text that it takes for true may be no negative at all. Where its words are
known to be true or false the report needs no judge; this is for those of which nothing is known.

Reads ``PreferenceRow`` about two images with both texts; of many, the first by their keys, which is no order.
"""

from collections.abc import Iterator
from heapq import nsmallest

from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import (
    Asked,
    Benchmark,
    Data,
    Exam,
    Mark,
    Marked,
    Replies,
    mark_mean,
    mark_ratios,
)
from pairwright.tasks.evaluation.benchmarks.choices import RULE, Choice, read_choice

NAME = "preferences"
PROMPT = "judge_pair_statement"
TRUE, FALSE = "True", "False"
SIDES = ("chosen", "rejected")
MOST = 1_000
"""Preferences whose images are in memory together."""
PAIR = 2


def open_exam(data: Data) -> Exam:
    """Return two questions for each preference.

    Raises:
        ConfigError: there is none of two images and two texts.
    """
    rows = nsmallest(MOST, _rows(data), key=lambda row: row.key)
    if not rows:
        raise ConfigError(f"--data {data.folder}: has no preferences about two images with two texts")
    choices = {row.key: {side: _ask(row, side) for side in SIDES} for row in rows}

    def mark(replies: Replies) -> Marked:
        taken = {
            choice.asked.name: said
            for own in choices.values()
            for choice in own.values()
            if (said := read_choice(replies.texts.get(choice.asked.name, ""), choice))
        }
        counted = [row for row in rows if row.key in replies.items]
        said = {row.key: [taken.get(choices[row.key][side].asked.name, "") for side in SIDES] for row in counted}
        return Marked(marks=list(_marks(counted, said)), taken=taken)

    notes = ("told apart: the chosen text was taken for true, and the rejected one for false (chance: 25 %)",)
    return Exam(questions=[one.asked for own in choices.values() for one in own.values()], mark=mark, notes=notes)


def _rows(data: Data) -> Iterator[PreferenceRow]:
    for row in data.rows("preferences", without=("rejected_images",)):
        if isinstance(row, PreferenceRow) and len(row.images) == PAIR and row.chosen and row.rejected:
            yield row


def _ask(row: PreferenceRow, side: str) -> Choice:
    text = row.chosen if side == "chosen" else row.rejected
    asked = Asked(
        name=f"{row.key}_{side}",
        item=row.key,
        text=load(PROMPT).render(statement=as_written(text)),
        images=row.images,
        prompt=PROMPT,
    )
    return Choice(asked=asked, answer=TRUE if side == "chosen" else FALSE, options=(TRUE, FALSE))


def _marks(rows: list[PreferenceRow], said: dict[str, list[str]]) -> Iterator[Mark]:
    """Yield the shares of texts that were taken for true, of those of which anything was said."""
    ratios = {
        f"{side} taken for true": (
            [float(said[row.key][place] == TRUE) for row in rows],
            [float(bool(said[row.key][place])) for row in rows],
        )
        for place, side in enumerate(SIDES)
    }
    yield mark_ratios(ratios)
    yield mark_mean("told apart", [said[row.key] == [TRUE, FALSE] for row in rows])
    for maker in sorted({row.rejected_maker for row in rows}):
        own = [said[row.key][1] for row in rows if row.rejected_maker == maker]
        ratio = ([float(one == TRUE) for one in own], [float(bool(one)) for one in own])
        yield mark_ratios({"rejected taken for true": ratio}, category=maker)


BENCHMARK = Benchmark(
    name=NAME,
    measures="of a dataset, not of the model: which chosen and rejected texts a judge that sees takes for true",
    layout="a dataset with preferences about two images; its report shows what was found",
    open=open_exam,
    rule=RULE,
)
