"""Look up the scene graphs of a pair's two images."""

from collections.abc import Mapping

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import Dropped, ImageRow, PairRow


def pair_graphs(row: PairRow, images: Mapping[str, ImageRow]) -> Graphs | Dropped:
    """Return both scene graphs, or why there are none."""
    first, second = images.get(row.first), images.get(row.second)
    if first is None or second is None:
        return Dropped(source_key=row.key, reason="image is missing", detail=row.second if first else row.first)
    if first.graph is None or second.graph is None:
        return Dropped(source_key=row.key, reason="no scene graph", detail=first.name if second.graph else second.name)
    return first.graph, second.graph
