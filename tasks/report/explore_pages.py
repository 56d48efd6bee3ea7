"""Render the pages of a dataset's images: a grid of thumbnails, an image's neighbours, a map of images and pairs.

Reads the file of cards, the vectors, and the images of requested thumbnails. Thumbnails are made on
request and deleted with this process, since a picture may have to be removed. The map is t-SNE
(scikit-learn) of a bounded number of images by the vectors of one embedder.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import duckdb
import numpy as np
from jinja2 import Environment
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pairwright.schemas.decisions import Decisions
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.report.card_table import PLAIN
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.search_cards import Key, Name, PageQuery, Search
from pairwright.tasks.store.index import Index
from pairwright.tasks.store.vectors import Vectors, open_vectors, write_vectors

ON_A_PAGE, MOST_LINES = 100, 5_000
SIDE = 240  # pixels of a thumbnail's longer side
SIZE = (1000, 640)
NAME = re.compile(r"([0-9a-f]{32})\.jpg")
SHADES = 5
OPEN = ("is-open", "none")
# most images of a map: t-SNE takes ten seconds for these, and time grows faster than their number
MOST_IMAGES = 2_000
FEWEST, PERPLEXITY, STEPS = 10, 30.0, 500
CLUSTERS, COMPONENTS = 8, 50
ROWS = 50_000
Drawn = tuple[
    NDArray[np.float32], NDArray[np.int32]
]  # coordinates (N, 2) from 0 to 1, and k-means clusters


class NotMadeYetError(Exception):
    """The requested result is not ready."""


class Workshop:
    """Results of slow calls, made in the background one at a time and each once, by name."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self.made: dict[str, Future[Any]] = {}

    @property
    def is_busy(self) -> bool:
        """Return whether a call is running."""
        return not all(one.done() for one in [*self.made.values()])

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result; ``NotMadeYetError``: try again. Not thread-safe."""
        if name not in self.made:
            self.made[name] = self._pool.submit(make)
        if not self.made[name].done():
            raise NotMadeYetError
        try:
            return self.made[name].result()
        except Exception as error:
            raise StoreError(f"cannot make {name}: {error}") from error


class Exploration(PageQuery):
    """Query string of a page of images."""

    q: Annotated[str, Field(max_length=500)] = ""
    like: Key = ""  # image to show the neighbours of
    space: Name = ""  # embedder of the neighbours; empty: the first
    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    colour: Literal["cluster", "similarity", "decision"] = "cluster"


class Thumbnail(NamedTuple):
    """Image of the grid."""

    key: str
    name: str
    pairs: int
    total: int
    cosine: float | None = None  # cosine with the image of the neighbours


@dataclass
class ExplorePages:
    """Renderer of the pages about images."""

    tables: Tables
    database: duckdb.DuckDBPyConnection  # a cursor of its own, used concurrently with the cards'
    scratch: Path
    environment: Environment
    frame: Mapping[str, Any]
    workshop: Workshop
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._index = self.tables.index("embeddings")
        (self.scratch / "thumbs").mkdir()

    def _spaces(self) -> dict[str, Vectors]:
        def write(index: Index) -> dict[str, Vectors]:
            write_vectors(self.scratch / "vectors", index)
            return open_vectors(self.scratch / "vectors")

        found = (
            self.workshop.get("the matrix of vectors", partial(write, self._index))
            if self._index
            else {}
        )
        return {name: space for name, space in found.items() if name != perceptual_hash.NAME}

    def grid(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of thumbnails of a query string, and its HTTP status."""
        asked, fault = Exploration.parse(query)
        with self._lock:
            spaces = self._spaces() if asked.like else {}
            space = spaces.get(asked.space) or next(iter(spaces.values()), None)
            if asked.like and (space is None or space.units_of([asked.like]) is None):
                asked, fault, space = Exploration(), "the image has no vector", None
            if space is not None:
                nearest = dict(find_nearest(space, asked.like, ON_A_PAGE))
                found = {
                    one.key: one
                    for one in self._find(["i.key IN (SELECT unnest(?))"], [list(nearest)])
                }
                shown = [
                    found[key]._replace(cosine=cosine)
                    for key, cosine in nearest.items()
                    if key in found
                ]
            else:
                terms = Search(q=asked.q).words
                which = [f"contains(i.words, {PLAIN.format('?')})" for _ in terms]
                shown = self._find(which, terms, skip=(asked.page - 1) * ON_A_PAGE)
        total = shown[0].total if shown else 0
        told = {
            "here": "explore",
            "token": token,
            "asked": asked,
            "fault": fault,
            "shown": shown,
            "total": total,
        }
        told |= {
            "first": (asked.page - 1) * ON_A_PAGE + 1,
            "spaces": list(spaces),
            "previous": asked.page - 1,
        }
        told |= {"next": asked.page + 1 if asked.page * ON_A_PAGE < total else 0}
        return self.environment.get_template("explore.html.j2").render(
            {**self.frame, **told}
        ), 400 if fault else 200

    def _find(self, which: Sequence[str], values: list[Any], *, skip: int = 0) -> list[Thumbnail]:
        query = f"""SELECT i.key, i.name, (SELECT count(*) FROM cards c WHERE NOT c.candidate AND c.second IS NOT NULL
            AND i.number IN (c.first, c.second)), count(*) OVER () FROM images i WHERE {" AND ".join(["true", *which])}
            ORDER BY i.name, i.key LIMIT {ON_A_PAGE} OFFSET {skip:d}"""
        return [Thumbnail(*row) for row in self.database.execute(query, values).fetchall()]

    def thumbnail(self, name: str) -> Path | None:
        """Return the file of an image's thumbnail; ``None`` for other names."""
        if not NAME.fullmatch(name):
            return None
        path = self.scratch / "thumbs" / name
        with self._lock:  # one at a time: an image may be large
            for row in () if path.is_file() else self.tables.find("images", ImageRow, [path.stem]):
                image = Image.fromarray(decode_rgb(row.image))
                image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
                image.save(path, format="JPEG", quality=85)
        return path

    def map(self, query: Mapping[str, str], token: str, decisions: Decisions) -> tuple[str, int]:
        """Return the page of the map, and its HTTP status; ``NotMadeYetError``: ask again."""
        asked, fault = Exploration.parse(query)
        if self._index is None:
            return "", 404
        with self._lock:
            spaces = self._spaces()
            name = asked.space if asked.space in spaces else next(iter(spaces))
            names, pairs = self._read_map([key.decode() for key in spaces[name].keys.tolist()])
            drawn = self.workshop.get(
                f"the map of {name}", lambda: draw_map(spaces[name], list(names))
            )
        told = {
            "here": "map",
            "token": token,
            "asked": asked,
            "fault": fault,
            "spaces": list(spaces),
            "space": name,
        }
        told |= {"size": SIZE, "names": names, "most": MOST_IMAGES, "most_lines": MOST_LINES}
        told |= _plot(asked.colour, list(names), drawn, pairs, decisions)
        return self.environment.get_template("map.html.j2").render(
            {**self.frame, **told}
        ), 400 if fault else 200

    def _read_map(self, known: Sequence[str]) -> tuple[dict[str, str], list[Any]]:
        """Return the images of the map with names, and its pairs: key, key of the decision, images, similarity.

        Images are those of the first pairs by key, as keys are hashes.
        """
        first = """SELECT i.key, i.name FROM images i LEFT JOIN (SELECT number, min(key) AS pair FROM
            (SELECT unnest([first, second]) AS number, key FROM cards WHERE NOT candidate) GROUP BY 1) p USING (number)
            WHERE i.key IN (SELECT unnest(?)) ORDER BY p.pair NULLS LAST, i.key LIMIT ?"""
        names = dict(self.database.execute(first, [known, MOST_IMAGES]).fetchall())
        within = f"""SELECT c.key, c.decided, a.key, b.key, c.similarity
            FROM cards c JOIN images a ON a.number = c.first JOIN images b ON b.number = c.second WHERE NOT c.candidate
            AND a.key IN (SELECT unnest($1)) AND b.key IN (SELECT unnest($1)) ORDER BY c.key LIMIT {MOST_LINES}"""
        return names, self.database.execute(within, [list(names)]).fetchall()


def _plot(
    colour: str, keys: Sequence[str], drawn: Drawn, pairs: Sequence[Any], decisions: Decisions
) -> dict[str, Any]:
    at = dict(zip(keys, (drawn[0] * SIZE).round(1).tolist(), strict=True))
    known = [one[4] for one in pairs if one[4] is not None]
    low = min(known, default=0.0)
    step = max((max(known, default=0.0) - low) / SHADES, 1e-9)

    def style(pair: Any) -> tuple[str, str]:
        one = decisions.by_key.get(pair[1]) or decisions.by_key.get(pair[0])
        if colour == "decision":
            return (f"is-{one.verdict}", one.verdict) if one else OPEN
        if colour == "cluster" or pair[4] is None:
            return OPEN
        shade = min(int((pair[4] - low) / step), SHADES - 1)
        return f"shade{shade}", f"{low + shade * step:.3f} to {low + (shade + 1) * step:.3f}"

    clusters = [(f"tone{number}", f"cluster {number + 1}") for number in drawn[1].tolist()]
    dots = clusters if colour == "cluster" else [OPEN] * len(keys)
    lines = [style(pair) for pair in pairs]
    legend = Counter(dots if colour == "cluster" else lines)
    return {
        "dots": [(key, *at[key], look) for key, (look, _) in zip(keys, dots, strict=True)],
        "lines": [
            (pair[0], *at[pair[2]], *at[pair[3]], look)
            for pair, (look, _) in zip(pairs, lines, strict=True)
        ],
        "legend": [(*words, count) for words, count in sorted(legend.items())],
    }


def draw_map(space: Vectors, keys: Sequence[str]) -> Drawn:
    """Return the map of some images."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    vectors = space.matrix[space.rows_of(keys)].astype(np.float32)
    count, distinct = len(vectors), len(np.unique(vectors, axis=0))
    if distinct < 3:
        return np.full((count, 2), 0.5, np.float32), np.zeros(count, np.int32)
    flat = PCA(min(COMPONENTS, *vectors.shape), random_state=0).fit_transform(vectors)
    groups = min(CLUSTERS, max(2, round((distinct / 2) ** 0.5)))
    clusters = KMeans(groups, n_init="auto", random_state=0).fit_predict(flat)
    if count >= FEWEST:
        perplexity = min(PERPLEXITY, (count - 1) / 3)
        flat = TSNE(
            init="pca", random_state=0, perplexity=perplexity, max_iter=STEPS
        ).fit_transform(flat)
    places = flat[:, :2] - flat[:, :2].min(axis=0)
    return (places / np.maximum(places.max(axis=0), 1e-9)).astype(np.float32), clusters.astype(
        np.int32
    )


def find_nearest(space: Vectors, key: str, count: int) -> list[tuple[str, float]]:
    """Return an image and its nearest neighbours with their cosines, the image itself first."""
    (row,) = space.rows_of([key])
    own = space.matrix[row].astype(np.float32)
    starts = range(0, len(space.keys), ROWS)
    cosines = np.concatenate(
        [space.matrix[at : at + ROWS].astype(np.float32) @ own for at in starts]
    )
    order = np.argsort(-cosines, kind="stable")
    best = [row, *order[order != row][: count - 1]]
    keys: list[bytes] = space.keys[best].tolist()
    return [
        (one.decode(), cosine) for one, cosine in zip(keys, cosines[best].tolist(), strict=True)
    ]
