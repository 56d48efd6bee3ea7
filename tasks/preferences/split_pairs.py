"""Put pairs into train, validation and test so that no image, and no group of images, is in two splits.

Reads all ``PairRow`` at once, writes ``SplitRow``. Pairs that share an image or a group (a rendered world, a video) are
one connected component; a component's split is drawn from the hash of its smallest image key and the seed, so that it
does not depend on what else is in the collection.
"""

from collections.abc import Iterator, Mapping, Sequence

from schemas.config import PreferencesConfig
from schemas.rows import ImageRow, PairRow, SplitRow, make_key
from tasks.store.stage import Stage, Uses


def split_pairs(
    rows: Sequence[PairRow],
    config: PreferencesConfig,
    *,
    everything: Sequence[PairRow],
    images: Mapping[str, ImageRow],
) -> Iterator[SplitRow]:
    """Yield one split for each pair of the shard, decided from all pairs."""
    components = find_components(everything, images)
    for pair in rows:
        component = components[pair.first]
        split = draw_split(component, config)
        key = make_key(pair.key, component, split)
        yield SplitRow(key=key, source_key=pair.key, subject=pair.key, component=component, split=split)


def find_components(pairs: Sequence[PairRow], images: Mapping[str, ImageRow]) -> dict[str, str]:
    """Return, for every image of a pair, the smallest image key that it is connected to."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        parents.setdefault(name, name)
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for pair in pairs:
        names = [pair.first, pair.second]
        names += [f"~{images[name].group}" for name in names if name in images and images[name].group]
        roots = sorted({root(name) for name in names})
        for other in roots[1:]:
            parents[other] = roots[0]
    return {name: root(name) for name in parents if not name.startswith("~")}


def draw_split(component: str, config: PreferencesConfig) -> str:
    """Return the split of a component: a draw that depends on its name and the seed alone."""
    draw = int(make_key("split", config.seed, component), 16) / 16**32
    if draw < config.test:
        return "test"
    return "validation" if draw < config.test + config.validation else "train"


STAGE = Stage(
    name="splits",
    version=1,
    group="preferences",
    reads="pairs",
    row=PairRow,
    writes=SplitRow,
    function=split_pairs,
    config="preferences",
    whole=True,
    uses=(
        Uses(table="pairs", row=PairRow, kind="all", name="everything"),
        Uses(table="images", row=ImageRow, on="images", of="everything", without=("image", "graph")),
    ),
    rows_per_shard=100_000,
)
