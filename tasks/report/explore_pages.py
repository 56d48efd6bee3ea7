"""Render the pages of a dataset's images: thumbnails, neighbours of an image, a map with pairs.

Reads the file of cards, the vectors, and the images of requested thumbnails. Thumbnails are made on
request and deleted with this process, since a picture may have to be removed. The map is t-SNE
(scikit-learn) of a bounded number of images by the vectors of one embedder.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from pairwright.schemas.decisions import Decision, Decisions
from pairwright.schemas.errors import StoreError, wrap_errors
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.report.card_table import PLAIN
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.search_cards import Key, Name, PageQuery, Search
from pairwright.tasks.store.index import Index
from pairwright.tasks.store.vectors import Vectors, open_vectors, write_vectors

ON_A_PAGE = 100
MOST_LINES = 5_000
SIDE = 240  # pixels of a thumbnail's longer side
SIZE = (1000, 640)
NAME = re.compile(r"([0-9a-f]{32})\.jpg")
SHADES = 5
OPEN = ("is-open", "none")
# most images of a map: t-SNE takes ten seconds for these, and time grows faster than their number
MOST_IMAGES = 2_000
FEWEST = 10  # images that t-SNE needs
PERPLEXITY = 30.0
STEPS = 500
CLUSTERS = 8
COMPONENTS = 50
ROWS = 50_000
Drawn = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Coordinates (N, 2) from 0 to 1, and k-means clusters."""
Style = tuple[str, str]  # CSS class, and text of the legend


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
        futures = [*self.made.values()]
        return not all(future.done() for future in futures)

    def result(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result; ``NotMadeYetError``: try again. Not thread-safe."""
        if name not in self.made:
            self.made[name] = self._pool.submit(make)
        future = self.made[name]
        if not future.done():
            raise NotMadeYetError
        with wrap_errors(lambda error: StoreError(f"cannot make {name}: {error}")):
            return future.result()


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


class MapPair(NamedTuple):
    """Pair of a map."""

    key: str
    decided: str  # key of the decision
    first: str
    second: str
    similarity: float | None


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
        """Return the vectors of each embedder."""
        if self._index is None:
            return {}
        make = partial(_write_spaces, self.scratch / "vectors", self._index)
        spaces = self.workshop.result("the matrix of vectors", make)
        return {name: space for name, space in spaces.items() if name != perceptual_hash.NAME}

    def grid(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of thumbnails of a query string, and its HTTP status."""
        exploration, fault = Exploration.parse(query)
        with self._lock:
            spaces = self._spaces() if exploration.like else {}
            space = spaces.get(exploration.space) or next(iter(spaces.values()), None)
            if exploration.like and not _has_vector(space, exploration.like):
                exploration = Exploration()
                fault = "the image has no vector"
                space = None
            if space is None:
                thumbnails = self._search(exploration)
            else:
                thumbnails = self._find_neighbours(space, exploration.like)
        total = thumbnails[0].total if thumbnails else 0
        page = exploration.page
        content = {
            "here": "explore",
            "token": token,
            "asked": exploration,
            "fault": fault,
            "shown": thumbnails,
            "total": total,
            "first": (page - 1) * ON_A_PAGE + 1,
            "spaces": list(spaces),
            "previous": page - 1,
            "next": page + 1 if page * ON_A_PAGE < total else 0,
        }
        return self._render("explore.html.j2", content)

    def _render(self, template: str, content: Mapping[str, Any]) -> tuple[str, int]:
        """Return a page, and its HTTP status."""
        text = self.environment.get_template(template).render({**self.frame, **content})
        return text, 400 if content["fault"] else 200

    def _search(self, exploration: Exploration) -> list[Thumbnail]:
        """Return a page of the images whose texts have all words."""
        words = Search(q=exploration.q).words
        conditions = [f"contains(i.words, {PLAIN.format('?')})" for _ in words]
        return self._select(conditions, words, skip=(exploration.page - 1) * ON_A_PAGE)

    def _find_neighbours(self, space: Vectors, key: str) -> list[Thumbnail]:
        """Return an image and its nearest neighbours with their cosines."""
        cosines = dict(find_nearest(space, key, ON_A_PAGE))
        rows = self._select(["i.key IN (SELECT unnest(?))"], [list(cosines)])
        thumbnails = {row.key: row for row in rows}
        return [
            thumbnails[key]._replace(cosine=cosine)
            for key, cosine in cosines.items()
            if key in thumbnails
        ]

    def _select(
        self,
        conditions: Sequence[str],
        values: list[Any],
        *,
        skip: int = 0,
    ) -> list[Thumbnail]:
        query = f"""SELECT i.key, i.name, (SELECT count(*) FROM cards c WHERE NOT c.candidate
                AND c.second IS NOT NULL AND i.number IN (c.first, c.second)), count(*) OVER ()
            FROM images i WHERE {" AND ".join(["true", *conditions])}
            ORDER BY i.name, i.key LIMIT {ON_A_PAGE} OFFSET {skip:d}"""
        return [Thumbnail(*row) for row in self.database.execute(query, values).fetchall()]

    def thumbnail(self, name: str) -> Path | None:
        """Return the file of an image's thumbnail; ``None`` for other names."""
        if not NAME.fullmatch(name):
            return None
        path = self.scratch / "thumbs" / name
        with self._lock:  # one at a time: an image may be large
            if not path.is_file():
                for row in self.tables.find_rows("images", ImageRow, [path.stem]):
                    image = Image.fromarray(decode_rgb(row.image))
                    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
                    image.save(path, format="JPEG", quality=85)
        return path

    def map(
        self,
        query: Mapping[str, str],
        token: str,
        decisions: Decisions,
    ) -> tuple[str, int]:
        """Return the page of the map, and its HTTP status; ``NotMadeYetError``: ask again."""
        exploration, fault = Exploration.parse(query)
        if self._index is None:
            return "", 404
        with self._lock:
            spaces = self._spaces()
            name = exploration.space if exploration.space in spaces else next(iter(spaces))
            space = spaces[name]
            names = self._select_images(space)
            pairs = self._select_pairs(list(names))
            make = partial(draw_map, space, list(names))
            drawn = self.workshop.result(f"the map of {name}", make)
        content = {
            "here": "map",
            "token": token,
            "asked": exploration,
            "fault": fault,
            "spaces": list(spaces),
            "space": name,
            "size": SIZE,
            "names": names,
            "most": MOST_IMAGES,
            "most_lines": MOST_LINES,
            **_plot(exploration.colour, list(names), drawn, pairs, decisions),
        }
        return self._render("map.html.j2", content)

    def _select_images(self, space: Vectors) -> dict[str, str]:
        """Return the names of the map's images by key.

        They are those of the first pairs by key, as keys are hashes.
        """
        query = """SELECT i.key, i.name FROM images i
            LEFT JOIN (SELECT number, min(key) AS pair FROM
                (SELECT unnest([first, second]) AS number, key FROM cards WHERE NOT candidate)
                GROUP BY 1) p USING (number)
            WHERE i.key IN (SELECT unnest(?)) ORDER BY p.pair NULLS LAST, i.key LIMIT ?"""
        keys = [key.decode() for key in space.keys.tolist()]
        return dict(self.database.execute(query, [keys, MOST_IMAGES]).fetchall())

    def _select_pairs(self, images: Sequence[str]) -> list[MapPair]:
        """Return the pairs of the map's images."""
        query = f"""SELECT c.key, c.decided, a.key, b.key, c.similarity
            FROM cards c JOIN images a ON a.number = c.first JOIN images b ON b.number = c.second
            WHERE NOT c.candidate
                AND a.key IN (SELECT unnest($1)) AND b.key IN (SELECT unnest($1))
            ORDER BY c.key LIMIT {MOST_LINES}"""
        return [MapPair(*row) for row in self.database.execute(query, [images]).fetchall()]


def _write_spaces(folder: Path, index: Index) -> dict[str, Vectors]:
    write_vectors(folder, index)
    return open_vectors(folder)


def _has_vector(space: Vectors | None, key: str) -> bool:
    return space is not None and space.units_of([key]) is not None


def _plot(
    colour: str,
    keys: Sequence[str],
    drawn: Drawn,
    pairs: Sequence[MapPair],
    decisions: Decisions,
) -> dict[str, Any]:
    """Return the dots, lines and legend of the map for its template."""
    coordinates, clusters = drawn
    points = dict(zip(keys, (coordinates * SIZE).round(1).tolist(), strict=True))
    dots = [OPEN] * len(keys)
    lines = [OPEN] * len(pairs)
    if colour == "cluster":
        dots = [(f"tone{number}", f"cluster {number + 1}") for number in clusters.tolist()]
        legend = Counter(dots)
    else:
        lines = _line_styles(colour, pairs, decisions)
        legend = Counter(lines)
    return {
        "dots": list(_place_dots(points, dots)),
        "lines": list(_place_lines(pairs, points, lines)),
        "legend": [(*style, count) for style, count in sorted(legend.items())],
    }


def _place_dots(
    points: Mapping[str, Sequence[float]], styles: Sequence[Style]
) -> Iterator[tuple[Any, ...]]:
    """Yield the key, coordinates and CSS class of each image."""
    for (key, point), (look, _) in zip(points.items(), styles, strict=True):
        yield key, *point, look


def _place_lines(
    pairs: Sequence[MapPair],
    points: Mapping[str, Sequence[float]],
    styles: Sequence[Style],
) -> Iterator[tuple[Any, ...]]:
    """Yield the key, coordinates of both ends, and CSS class of each pair."""
    for pair, (look, _) in zip(pairs, styles, strict=True):
        yield pair.key, *points[pair.first], *points[pair.second], look


def _line_styles(
    colour: str,
    pairs: Sequence[MapPair],
    decisions: Decisions,
) -> list[Style]:
    if colour == "decision":
        return [_decision_style(pair, decisions) for pair in pairs]
    return _similarity_styles(pairs)


def _decision_style(pair: MapPair, decisions: Decisions) -> Style:
    decision: Decision | None = decisions.by_key.get(pair.decided) or decisions.by_key.get(pair.key)
    if decision is None:
        return OPEN
    return f"is-{decision.verdict}", decision.verdict


def _similarity_styles(pairs: Sequence[MapPair]) -> list[Style]:
    """Return a shade per pair, from the lowest to the highest similarity."""
    similarities = [pair.similarity for pair in pairs if pair.similarity is not None]
    low = min(similarities, default=0.0)
    high = max(similarities, default=0.0)
    step = max((high - low) / SHADES, 1e-9)
    styles: list[Style] = []
    for pair in pairs:
        if pair.similarity is None:
            styles.append(OPEN)
            continue
        shade = min(int((pair.similarity - low) / step), SHADES - 1)
        text = f"{low + shade * step:.3f} to {low + (shade + 1) * step:.3f}"
        styles.append((f"shade{shade}", text))
    return styles


def draw_map(space: Vectors, keys: Sequence[str]) -> Drawn:
    """Return the map of some images."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    vectors = space.matrix[space.rows_of(keys)].astype(np.float32)
    count = len(vectors)
    distinct = len(np.unique(vectors, axis=0))
    if distinct < 3:
        return np.full((count, 2), 0.5, np.float32), np.zeros(count, np.int32)
    flat = PCA(min(COMPONENTS, *vectors.shape), random_state=0).fit_transform(vectors)
    groups = min(CLUSTERS, max(2, round((distinct / 2) ** 0.5)))
    clusters = KMeans(groups, n_init="auto", random_state=0).fit_predict(flat)
    if count >= FEWEST:
        perplexity = min(PERPLEXITY, (count - 1) / 3)
        tsne = TSNE(init="pca", random_state=0, perplexity=perplexity, max_iter=STEPS)
        flat = tsne.fit_transform(flat)
    corner = flat[:, :2].min(axis=0)
    offsets = flat[:, :2] - corner
    coordinates = offsets / np.maximum(offsets.max(axis=0), 1e-9)
    return coordinates.astype(np.float32), clusters.astype(np.int32)


def find_nearest(
    space: Vectors,
    key: str,
    count: int,
) -> list[tuple[str, float]]:
    """Return an image and its nearest neighbours with their cosines, the image itself first."""
    (row,) = space.rows_of([key])
    vector = space.matrix[row].astype(np.float32)
    parts: list[NDArray[np.float32]] = []
    for start in range(0, len(space.keys), ROWS):
        part = space.matrix[start : start + ROWS].astype(np.float32)
        parts.append(part @ vector)
    cosines = np.concatenate(parts)
    order = np.argsort(-cosines, kind="stable")
    best = [row, *order[order != row][: count - 1]]
    keys: list[bytes] = space.keys[best].tolist()
    nearest = zip(keys, cosines[best].tolist(), strict=True)
    return [(key.decode(), cosine) for key, cosine in nearest]
