"""Choose the removed element that rejects a chosen text the most (paper 004, section 3.1, with graphs for a scorer).

Reads a difference text's claims, the scene graphs and the removal candidates of both images, writes a ``RemovalScore``
for each. A candidate's score is the share of the text's claims that are true of the pair, and no longer true once the
candidate's objects are taken out of its image's graph.
"""

from collections.abc import Sequence

import numpy as np

from schemas.claims import CLAIMS, Graphs, holds
from schemas.rows import DifferenceRow, ImageRow, RemovalRow, RemovalScore
from schemas.scene import SceneChange, SceneGraph


def score_removals(
    difference: DifferenceRow,
    images: tuple[ImageRow, ImageRow],
    removals: tuple[Sequence[RemovalRow], Sequence[RemovalRow]],
) -> tuple[RemovalScore, ...]:
    """Score the candidates of the first and of the second image; the best is marked, none where none removes a claim.

    Of equals, the one of smaller area is chosen, then the one of lower key. Images without graphs have no scores.
    """
    first, second = images[0].graph, images[1].graph
    if first is None or second is None:
        return ()
    graphs = (first, second)
    true = [claim for claim in CLAIMS.validate_json(difference.claims) if holds(claim, graphs)]
    scored: list[tuple[float, int, RemovalRow]] = []
    for side in (0, 1):
        for removal in removals[side]:
            left = _without(graphs, side, removal.object_ids)
            broken = sum(not holds(claim, left) for claim in true)
            scored.append((broken / max(len(true), 1), side, removal))
    best = min(scored, key=_rank, default=None)
    return tuple(
        RemovalScore(
            removal=removal.key,
            tag=removal.tag,
            side=side,
            score=float(np.float32(score)),
            chosen=best is not None and score > 0 and (side, removal.key) == (best[1], best[2].key),
        )
        for score, side, removal in scored
    )


def _rank(candidate: tuple[float, int, RemovalRow]) -> tuple[float, float, str]:
    score, _, removal = candidate
    return -score, removal.area_share, removal.key


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
