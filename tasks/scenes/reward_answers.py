"""Score answers about two rendered or planted photographs by what their scene graphs say (ours).

The reward of reinforcement learning: exact, for any answer, without a model. Reads the *truth* of a
pair, JSON of both graphs, as ``export --format grpo`` writes it; writes nothing. Needs pydantic
alone, so that a trainer's environment can import it.

- *Precision*: the share of the answer's statements that are true. A sentence in other words than
  ours is a statement that is not; a true denial of what neither photograph shows does not count.
- *Recall*: the share of the changes that it names. A change is named if the answer makes a true
  claim about each photograph that would be false there without the change. Of an unchanged scene:
  1 if it says so, else 0.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pairwright.schemas.claims import Claim, Graphs, content_changes, is_no_change, is_true_claim
from pairwright.schemas.scene import PLURALS, ChangeType, Mask, SceneChange, SceneGraph
from pairwright.tasks.scenes.read_claims import read_claims
from pairwright.tasks.serving.clean_text import clean_text

ATTRIBUTES: Mapping[ChangeType, tuple[str, ...]] = {
    "colour": ("colour",),
    "material": ("material",),
    "size": ("size",),
    "orientation": ("facing",),
    "pose": ("pose",),
    "text": ("text",),
    "move": ("column", "depth", "box"),
}
"""What a change of one object changes; by any other the whole object comes, goes or is another."""
HELD = 4096
"""Truths that are kept parsed."""


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """Precision and recall of an answer's statements, each from 0 to 1."""

    precision: float
    recall: float

    @property
    def reward(self) -> float:
        """Return their harmonic mean."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def reward(answer: str, row: Mapping[str, Any] | str) -> float:
    """Return the reward of an answer, from 0 to 1; ``row`` has the ``truth`` of its pair, or is it.

    ``ValueError``: the truth is not that of two photographs of one scene.
    """
    truth = row if isinstance(row, str) else row["truth"]
    return score_answer(answer, read_truth(truth)).reward


def score_answer(answer: str, graphs: Graphs) -> AnswerScore:
    """Score an answer about two photographs of one world; thoughts before it do not count."""
    shapes = {thing.shape for graph in graphs for thing in graph.objects}
    reading = read_claims(clean_text(answer).text, shapes - set(PLURALS))
    true_claims = [claim for claim in reading.claims if is_true_claim(claim, graphs)]
    counted = [claim for claim in true_claims if not _is_idle(claim, graphs)]
    statements = len(counted) + len(reading.claims) - len(true_claims) + reading.unread
    precision = len(counted) / statements if statements else 0.0
    return AnswerScore(precision, _measure_recall(counted, graphs))


def _is_idle(claim: Claim, graphs: Graphs) -> bool:
    """Return whether a true claim denies what neither photograph shows."""
    return claim.kind == "absent" and not any(claim.selector.select(graph) for graph in graphs)


def _measure_recall(claims: Sequence[Claim], graphs: Graphs) -> float:
    if is_no_change(graphs):
        return float(any(claim.kind == "no_change" for claim in claims))
    changes = find_changes(graphs)
    named = [change for change in changes if _is_named(change, claims, graphs)]
    return len(named) / len(changes)


def find_changes(graphs: Graphs) -> tuple[SceneChange, ...]:
    """Return what differs between two photographs of one world, apart from light and viewpoint.

    A change that both photographs have, to other values, is one.
    """
    changes: dict[tuple[ChangeType, str | None, tuple[str, ...]], SceneChange] = {}
    for change in sorted(content_changes(graphs[0]) ^ content_changes(graphs[1]), key=repr):
        changes.setdefault((change.type, change.object_id, change.object_ids), change)
    return tuple(changes.values())


def _is_named(change: SceneChange, claims: Iterable[Claim], graphs: Graphs) -> bool:
    """Return whether a claim about each photograph would be false there without the change."""
    sides: set[int] = set()
    without = (
        (_undo(change, graphs[0], graphs[1]), graphs[1]),
        (graphs[0], _undo(change, graphs[1], graphs[0])),
    )
    for claim in claims:
        if claim.kind != "no_change" and not is_true_claim(claim, without[claim.side]):
            sides.add(claim.side)
    return len(sides) == 2


def _undo(change: SceneChange, graph: SceneGraph, other: SceneGraph) -> SceneGraph:
    """Return a photograph's graph with the changed objects as the other photograph has them."""
    concerned = {change.object_id, *change.object_ids}
    theirs = {thing.id: thing for thing in other.objects if thing.id in concerned}
    names = ATTRIBUTES.get(change.type)
    if names is None:
        kept = [thing for thing in graph.objects if thing.id not in concerned]
        return graph.model_copy(update={"objects": (*kept, *theirs.values())})
    objects = list(graph.objects)
    for index, thing in enumerate(objects):
        if thing.id in theirs:
            values = {name: getattr(theirs[thing.id], name) for name in names}
            objects[index] = thing.model_copy(update=values)
    return graph.model_copy(update={"objects": tuple(objects)})


def dump_truth(graphs: Graphs) -> str:
    """Return the truth of a pair as JSON: both graphs, without pixels."""
    return json.dumps([_slim(graph).model_dump(exclude_defaults=True) for graph in graphs])


def _slim(graph: SceneGraph) -> SceneGraph:
    objects = tuple(
        thing.model_copy(
            update={
                "mask": Mask(height=thing.mask.height, width=thing.mask.width, counts=()),
                "touched": None,
            }
        )
        for thing in graph.objects
    )
    return graph.model_copy(update={"objects": objects, "covered": (), "exposure": ""})


@lru_cache(HELD)
def read_truth(truth: str) -> Graphs:
    """Return the graphs of a pair; ``ValueError``: it is no truth of one scene."""
    first, second = (SceneGraph.model_validate(graph) for graph in json.loads(truth))
    if first.world != second.world:
        raise ValueError(f"the photographs are of two worlds: {first.world}, {second.world}")
    return first, second


def reward_completions(
    completions: Sequence[Any],
    truth: Sequence[str],
    **columns: Any,  # noqa: ARG001 - trainers pass all columns
) -> list[float]:
    """Return the rewards of a batch, as TRL's and ms-swift's GRPO trainers ask for them.

    A completion is a text, or a list of messages of which the last one is the answer.
    """
    answers = [
        completion if isinstance(completion, str) else completion[-1]["content"]
        for completion in completions
    ]
    return [reward(answer, pair) for answer, pair in zip(answers, truth, strict=True)]


def compute_score(
    data_source: str,  # noqa: ARG001 - verl's signature
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,  # noqa: ARG001
) -> float:
    """Return the reward of an answer, as verl's ``custom_reward_function`` asks for it."""
    return reward(solution_str, ground_truth)
