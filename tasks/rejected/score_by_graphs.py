"""Score removals by what they make untrue of a chosen text (after paper 004, section 3.1, with graphs for a scorer).

Reads a difference text's claims, the scene graphs and the elements of both images. An element's score is the share of
the text's claims that are true of the pair, and no longer true once its objects are taken out of its image's graph.
"""

from collections.abc import Sequence

import numpy as np

from pairwright.schemas.claims import CLAIMS, Graphs, holds
from pairwright.schemas.rows import DifferenceRow, ElementRow, ImageRow
from pairwright.schemas.scene import SceneChange, SceneGraph


def score_by_graphs(
    difference: DifferenceRow, images: tuple[ImageRow, ImageRow], elements: Sequence[tuple[int, ElementRow]]
) -> list[float]:
    """Return the score of each element (with its side); nothing where an image has no graph."""
    first, second = images[0].graph, images[1].graph
    if first is None or second is None:
        return []
    graphs = (first, second)
    true = [claim for claim in CLAIMS.validate_json(difference.claims) if holds(claim, graphs)]
    scores: list[float] = []
    for side, element in elements:
        left = _without(graphs, side, element.object_ids)
        broken = sum(not holds(claim, left) for claim in true)
        scores.append(float(np.float32(broken / max(len(true), 1))))
    return scores


def _without(graphs: Graphs, side: int, object_ids: Sequence[str]) -> Graphs:
    """Return the graphs as they are once the objects are gone from one image; a removal is a change of the scene."""
    graph = graphs[side]
    gone = tuple(SceneChange(type="removal", object_id=name) for name in object_ids)
    left: SceneGraph = graph.model_copy(
        update={
            "objects": tuple(thing for thing in graph.objects if thing.id not in object_ids),
            "changes": (*graph.changes, *gone),
        }
    )
    return (left, graphs[1]) if side == 0 else (graphs[0], left)
