"""Choose the element of a rendered pair that makes most of its text false when removed (paper 004, Eq. 9, by graphs).

Reads ``PairRow`` with its description and the graphs of its images, writes one ``TargetRow`` per
pair with such an element. The graphs decide it without pixels, so only elements that reject a text
need to be removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

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


def choose_targets(
    rows: Sequence[PairRow],
    config: TargetsConfig,
    *,
    images: Images = NO_ROWS,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
) -> Iterator[TargetRow | Dropped]:
    """Yield each pair's element, or why it has none; of equal ones the smaller, then the first by its objects."""
    for pair in rows:
        difference, keys = differences.get(pair.key), (pair.first, pair.second)
        first, second = (images[key].graph for key in keys)
        if difference is None or first is None or second is None:
            why = "no difference description" if difference is None else "no rendered scene"
            yield Dropped(source_key=pair.key, reason=why)
            continue
        graphs: Graphs = (first, second)
        true = true_claims(difference, graphs)
        found = [
            (-share_broken(true, graphs, side, ids), area, ids, side)
            for side, graph in enumerate(graphs)
            for ids, area in _elements(graph, config.elements)
        ]
        if not found or not min(found)[0]:
            yield Dropped(source_key=pair.key, reason=NO_DROP if found else NO_ELEMENT)
            continue
        drop, _, ids, side = min(found)
        key = make_key("target", pair.key, difference.key, keys[side], *ids)
        yield TargetRow(
            key=key, source_key=pair.key, subject=keys[side], object_ids=ids, drop=-drop
        )


def _elements(graph: SceneGraph, config: ElementsConfig) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the removable elements and their shares of the image."""
    shares = {thing.id: read_runs(thing.mask).share for thing in graph.objects}
    for tag in tags_of(graph):
        share = sum(shares[name] for name in tag.objects)
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
        Uses(table="images", row=ImageRow, on="images", without=("image", "captions")),
        Uses(table="differences", row=DifferenceRow, counts=True),
    ),
)
