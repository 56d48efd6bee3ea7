"""CHAIR (Rohrbach et al. 2018) on rendered scenes: does a description name what is not in the photograph?

All objects of a rendered photograph are known, so that nothing is hallucinated only because nobody annotated it.
Reads ``ImageRow`` with graphs, and ``PreferenceRow``: photographs that were trained on are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.prompts import load
from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.evaluation.benchmark import (
    LONG,
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
from pairwright.tasks.evaluation.benchmarks.scene_rows import held_out, read_scenes, trained_images
from pairwright.tasks.evaluation.find_things import Words, is_described, words_of

PROMPT = "describe_image"
RULE = (
    "Each noun of a rendered shape, or another word for it, is a mention, unless it is denied. CHAIR_i: mentions of "
    "shapes that are not in the photograph, of all mentions; CHAIR_s: descriptions with such a mention; recall: shapes "
    "in the photograph that are mentioned; described: of mentions with a colour, material or size, those that some "
    "object in the photograph has, all together."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Photograph:
    """Be a photograph and what is in it."""

    asked: Asked
    graph: SceneGraph


def open_exam(data: Data) -> Exam:
    """Return one question for each photograph of a dataset that was not trained on."""
    trained = trained_images(data)
    rows = list(read_scenes(data).values())
    kept = [row for row in rows if row.key not in trained]
    notes = (held_out(len(kept), len(rows), data),)
    photographs = [
        Photograph(asked=_ask(row), graph=row.graph) for row in sorted(kept, key=lambda row: row.key) if row.graph
    ]
    words = words_of(row.graph for row in rows if row.graph)

    def mark(replies: Replies) -> Marked:
        counted = [one for one in photographs if one.asked.item in replies.items]
        return Marked(marks=_marks(counted, replies, words))

    return Exam(questions=[one.asked for one in photographs], mark=mark, read_answers=False, notes=notes)


def _ask(row: ImageRow) -> Asked:
    return Asked(
        name=row.key,
        item=row.key,
        text=f"<image>\n{load(PROMPT).render()}",
        images=(row.image,),
        prompt=PROMPT,
        most_tokens=LONG,
    )


def _marks(photographs: Sequence[Photograph], replies: Replies, words: Words) -> list[Mark]:
    counts = [_count(one.graph, replies.texts.get(one.asked.name, ""), words) for one in photographs]
    mentions, absent, named, there, said, right = map(list, zip(*counts, strict=True)) if counts else [[]] * 6
    ratios = {"CHAIR_i": (absent, mentions), "recall": (named, there), "described": (right, said)}
    return [mark_mean("CHAIR_s", [count > 0 for count in absent]), mark_ratios(ratios)]


def _count(graph: SceneGraph, text: str, words: Words) -> tuple[int, int, int, int, int, int]:
    """Return mentions, those of what is not there, shapes named and there, things described, and those rightly."""
    found = list(words.find(text))
    shapes = {thing.shape for thing in graph.objects}
    said = [thing for thing in found if is_described(thing)]
    return (
        len(found),
        sum(thing.shape not in shapes for thing in found),
        len(shapes & {thing.shape for thing in found}),
        len(shapes),
        len(said),
        sum(bool(thing.select(graph)) for thing in said),
    )


BENCHMARK = Benchmark(
    name="scenes",
    measures="whether a description of a rendered photograph names things that are not there (CHAIR)",
    layout="a dataset of rendered scenes: pairwright build --profile scenes",
    open=open_exam,
    rule=RULE,
)
