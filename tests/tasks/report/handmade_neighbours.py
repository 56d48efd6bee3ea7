"""Five images A to E and what a search found for each, by hand: every similarity is exact in
float32.

       p: A        B        C        D        E         q: A        B        C        D        E
    A              .9375    .8125    .625                           .625     .75               .375
    B     .9375             .5       .3125                 .625              .5625    .1875
    C     .8125    .5                .125                  .75      .5625             .4375
    D     .625              .125              .4375                 .1875    .4375             .3125
    E     .1875    .125              .4375                 .375              .125     .3125

The band is 0.5 to 0.9; a set whose best is below 0.5 is refused (D and E, by q).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import ImageRow, ItemRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.store.open_tables import Build
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade import HOSTILE, Handmade, build_handmade, make_images, make_pairs

FOUND = {
    "A": ("B .9375 C .8125 D .625", "C .75 B .625 E .375"),
    "B": ("A .9375 C .5 D .3125", "A .625 C .5625 D .1875"),
    "C": ("A .8125 B .5 D .125", "A .75 B .5625 D .4375"),
    "D": ("A .625 E .4375 C .125", "C .4375 E .3125 B .1875"),
    "E": ("D .4375 A .1875 B .125", "A .375 D .3125 C .125"),
}
EMBEDDERS = ("p", "q <b>")
MINING = MiningConfig(min_similarity=0.5, max_similarity=0.9, min_best_similarity=0.5)
LINE = (
    ("images", "items", ItemRow, ImageRow, "sources"),
    ("neighbours", "images", ImageRow, NeighbourRow, "mining"),
    ("pairs", "images", ImageRow, PairRow, "mining"),
)


def make_five() -> dict[str, ImageRow]:
    """Return the images by their letter; their names are hostile."""
    images = zip("ABCDE", make_images(2, 3), strict=False)
    return {letter: replace(row, name=f"{letter} {HOSTILE}") for letter, row in images}


def make_neighbours(images: dict[str, ImageRow]) -> list[NeighbourRow]:
    """Return the raw search results."""
    rows = []
    for letter, texts in FOUND.items():
        words = [text.split() for text in texts]
        results = {
            "neighbours": tuple(tuple(images[name].key for name in text[::2]) for text in words),
            "similarities": tuple(tuple(map(float, text[1::2])) for text in words),
        }
        key = images[letter].key
        about = {"source": key, "embedders": EMBEDDERS}
        rows.append(row_of(NeighbourRow, "neighbours", key, **about, **results))
    return rows


def pair_key(images: dict[str, ImageRow], letters: str) -> str:
    """Return the key of a pair of letters."""
    return make_key("pair", *sorted(images[letter].key for letter in letters))


@contextmanager
def build_neighbours(root: Path, images: dict[str, ImageRow]) -> Iterator[Build]:
    """Write the dataset, with A and B its only pair, and yield it resolved."""
    rows = [*images.values()]
    tables = {"images": rows, "neighbours": make_neighbours(images), "pairs": make_pairs(rows[:2])}
    how = {"until": "pairs", "line": LINE, "rows_per_shard": 3}
    with build_handmade(root, Handmade(tables), **how) as (build, _):
        yield build
