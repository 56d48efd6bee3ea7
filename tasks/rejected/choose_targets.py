"""Choose the element of a rendered pair whose removal makes most of its text false (by graphs).

Reads ``PairRow`` with its description and the graphs of its images, writes one ``TargetRow`` per
pair with such an element (paper 004, Eq. 9). The graphs decide it without pixels, so only elements
that reject a text need to be removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from pairwright.schemas.claims import Graphs
from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.removing import TargetsConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    DifferenceRow,
    Dropped,
    ImageRow,
    Images,
    PairRow,
    TargetRow,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.masks import read_runs
from pairwright.tasks.models.scene_models import tags_of
from pairwright.tasks.rejected.choose_removals import NO_DROP, NO_ELEMENT, share_broken, true_claims
from pairwright.tasks.store.stage import Stage, Uses


class Target(NamedTuple):
    """Removable element of one of the images, ordered from the best to the worst."""

    negative_drop: float
    area: float
    object_ids: tuple[str, ...]
    side: int


def choose_targets(
    rows: Sequence[PairRow],
    config: TargetsConfig,
    *,
    images: Images = NO_ROWS,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
) -> Iterator[TargetRow | Dropped]:
    """Yield each pair's element, or why it has none.

    Of equally good elements the smaller one is chosen, then the first by its objects.
    """
    for pair in rows:
        first = images[pair.first].graph
        second = images[pair.second].graph
        difference = differences.get(pair.key)
        if difference is None:
            yield Dropped(source_key=pair.key, reason="no difference description")
        elif first is None or second is None:
            yield Dropped(source_key=pair.key, reason="no rendered scene")
        else:
            yield _choose_target(pair, difference, (first, second), config.elements)


def _choose_target(
    pair: PairRow,
    difference: DifferenceRow,
    graphs: Graphs,
    config: ElementsConfig,
) -> TargetRow | Dropped:
    targets = _find_targets(difference, graphs, config)
    if not targets:
        return Dropped(source_key=pair.key, reason=NO_ELEMENT)
    target = min(targets)
    if not target.negative_drop:
        return Dropped(source_key=pair.key, reason=NO_DROP)
    image_key = (pair.first, pair.second)[target.side]
    return TargetRow(
        key=make_key("target", pair.key, difference.key, image_key, *target.object_ids),
        source_key=pair.key,
        subject=image_key,
        object_ids=target.object_ids,
        drop=-target.negative_drop,
    )


def _find_targets(
    difference: DifferenceRow, graphs: Graphs, config: ElementsConfig
) -> list[Target]:
    """Return the removable elements of both images with the share of true claims they break."""
    claims = true_claims(difference, graphs)
    targets: list[Target] = []
    for side, graph in enumerate(graphs):
        for object_ids, area in _find_elements(graph, config):
            drop = share_broken(claims, graphs, side, object_ids)
            targets.append(Target(-drop, area, object_ids, side))
    return targets


def _find_elements(
    graph: SceneGraph, config: ElementsConfig
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the removable elements and their shares of the image."""
    shares = {item.id: read_runs(item.mask).share for item in graph.objects}
    for tag in tags_of(graph):
        share = sum(shares[object_id] for object_id in tag.objects)
        if config.min_area <= share <= config.max_area:
            yield tag.objects, share


STAGE = Stage(
    name="targets",
    group="rejected",
    reads={"pairs": PairRow},
    writes=TargetRow,
    function=choose_targets,
    config=lambda profile: profile.targets,
    enabled=attrgetter("enabled"),
    uses=(
        Uses(table="images", row=ImageRow, on="about", without=("image", "captions")),
        Uses(table="differences", row=DifferenceRow, counts=True),
    ),
)
