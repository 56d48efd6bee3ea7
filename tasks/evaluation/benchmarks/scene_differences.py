"""CHAIR on descriptions of how two rendered photographs differ: is each half of a description true of its photograph?

Ours, after CHAIR (Rohrbach et al. 2018), for what models are trained to say here. Pairs of which an image was trained
on are left out.
"""

import re
from collections.abc import Sequence

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Selector
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
from pairwright.tasks.evaluation.benchmarks.scene_rows import ShownPair, held_out, read_pairs
from pairwright.tasks.evaluation.find_things import Words, is_described, words_of

PROMPT = "ask_difference"
SECOND = re.compile(r"\bsecond (?:image|picture|photo(?:graph)?|one)\b", re.IGNORECASE)
RULE = (
    "What stands before the first mention of the second image is about the first one, the rest about the second; where "
    "it is not mentioned, all is about both, and a thing may be in either. Things are found as in `scenes`. changed: "
    "shapes of things that only one photograph shows, in any size, and that the answer mentions."
)


def open_exam(data: Data) -> Exam:
    """Return one question for each pair of a dataset that was not trained on."""
    pairs, of = read_pairs(data)
    notes = (held_out(len(pairs), of, data),)
    words = words_of(graph for pair in pairs for graph in pair.graphs)
    question = load_wordings(PROMPT).kinds["ask"][0].render()
    asked = [
        Asked(
            name=pair.key,
            item=pair.key,
            text=f"<image><image>{question}",
            images=pair.images,
            prompt=PROMPT,
            most_tokens=LONG,
        )
        for pair in pairs
    ]

    def mark(replies: Replies) -> Marked:
        counted = [pair for pair in pairs if pair.key in replies.items]
        return Marked(marks=_marks(counted, replies, words))

    return Exam(questions=asked, mark=mark, read_answers=False, notes=notes)


def _marks(pairs: Sequence[ShownPair], replies: Replies, words: Words) -> list[Mark]:
    counts = [_count(pair.graphs, replies.texts.get(pair.key, ""), words) for pair in pairs]
    mentions, absent, said, right, named, changed = map(list, zip(*counts, strict=True)) if counts else [[]] * 6
    ratios = {"CHAIR_i": (absent, mentions), "described": (right, said), "changed": (named, changed)}
    return [mark_mean("CHAIR_s", [count > 0 for count in absent]), mark_ratios(ratios)]


def _count(graphs: tuple[SceneGraph, SceneGraph], text: str, words: Words) -> tuple[int, int, int, int, int, int]:
    """Return mentions, those of what is not there, things described, those rightly, changes named, and changes."""
    halves = SECOND.split(text, maxsplit=1)
    about = [(halves[0], graphs[:1]), (halves[1], graphs[1:])] if len(halves) == 2 else [(text, graphs)]
    found = [(thing, shown) for half, shown in about for thing in words.find(half)]
    said = [(thing, shown) for thing, shown in found if is_described(thing)]
    changed = _only(*graphs) | _only(*graphs[::-1])
    return (
        len(found),
        sum(not _is_in(Selector(shape=thing.shape), shown) for thing, shown in found),
        len(said),
        sum(_is_in(thing, shown) for thing, shown in said),
        len(changed & {thing.shape for thing, _ in found}),
        len(changed),
    )


def _is_in(thing: Selector, graphs: Sequence[SceneGraph]) -> bool:
    return any(thing.select(graph) for graph in graphs)


def _only(graph: SceneGraph, other: SceneGraph) -> set[str | None]:
    """Return the shapes of things of a photograph whose like another does not show."""
    looks = (Selector(shape=one.shape, colour=one.colour, material=one.material) for one in graph.objects)
    return {one.shape for one in looks if not one.select(other)}


BENCHMARK = Benchmark(
    name="scene-differences",
    measures="whether a description of how two rendered photographs differ is true of each of them (CHAIR by halves)",
    layout="a dataset of rendered scenes: pairwright build --profile scenes",
    open=open_exam,
    rule=RULE,
)
