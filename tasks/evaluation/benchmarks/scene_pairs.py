"""Statements about two rendered photographs: is what only one of them shows said of the right one (ours)?

Reads ``PairRow`` and ``ImageRow`` with graphs: of a thing that only one photograph shows, one statement says which one,
and one says the other. Pairs of which an image was trained on are left out.
"""

from collections.abc import Iterator

from pairwright.prompts import load
from pairwright.schemas.claims import Selector
from pairwright.schemas.rows import make_key
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.evaluation.benchmark import Asked, Benchmark, Data, Exam, Marked, Replies, mark_mean
from pairwright.tasks.evaluation.benchmarks.choices import RULE, Choice, grade
from pairwright.tasks.evaluation.benchmarks.scene_rows import ShownPair, held_out, read_pairs

PROMPT = "judge_pair_statement"
OPTIONS = ("True", "False")
SIDES = ("first", "second")
NOTE = "both: pairs of statements of which the true one and the false one were judged rightly (chance: 25 %)"


def open_exam(data: Data) -> Exam:
    """Return two statements for each pair of a dataset that was not trained on."""
    pairs, of = read_pairs(data)
    choices = [choice for pair in pairs for choice in _ask(pair)]
    notes = (held_out(len(choices) // 2, of, data), NOTE)

    def mark(replies: Replies) -> Marked:
        taken, right = grade(choices, replies)
        held: dict[str, bool] = {}
        for choice in choices:
            if choice.asked.name in right:
                held[choice.asked.item] = held.get(choice.asked.item, True) and right[choice.asked.name]
        marks = [mark_mean("accuracy", list(right.values())), mark_mean("both", list(held.values()))]
        return Marked(marks=marks, taken=taken)

    return Exam(questions=[choice.asked for choice in choices], mark=mark, notes=notes)


def _ask(pair: ShownPair) -> Iterator[Choice]:
    """Yield a true statement and a false one about a thing that only one photograph shows; none where there is none."""
    only = [(side, thing) for side in (0, 1) for thing in _only(pair.graphs[side], pair.graphs[1 - side])]
    if not only:
        return
    side, thing = only[int(make_key("statement", pair.key)[:8], 16) % len(only)]
    words = " ".join(filter(None, (thing.size, thing.colour, thing.material, thing.shape)))
    for place, answer in ((side, "True"), (1 - side, "False")):
        said = f"The {SIDES[place]} image shows a {words}, and the {SIDES[1 - place]} image shows none."
        asked = Asked(
            name=f"{pair.key}_{answer}",
            item=pair.key,
            text=load(PROMPT).render(statement=said),
            images=pair.images,
            prompt=PROMPT,
        )
        yield Choice(asked=asked, answer=answer, options=OPTIONS)


def _only(graph: SceneGraph, other: SceneGraph) -> Iterator[Selector]:
    """Yield what a photograph shows and another does not, not even in another size."""
    for thing in graph.objects:
        looks = Selector(shape=thing.shape, colour=thing.colour, material=thing.material)
        if not looks.select(other):
            yield looks


BENCHMARK = Benchmark(
    name="scene-pairs",
    measures="whether true and false statements about what only one of two rendered photographs shows are told apart",
    layout="a dataset of rendered scenes: pairwright build --profile scenes",
    open=open_exam,
    rule=RULE,
)
