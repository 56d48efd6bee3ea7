"""Pages about images: a grid, an image's nearest ones by hand, a map, searches that were given a
name."""

import html
from datetime import UTC, datetime

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.decisions import Decision
from pairwright.schemas.rows import EmbeddingRow, ImageRow
from pairwright.tasks.report import explore_pages
from pairwright.tasks.report.explore_pages import NotMadeYetError, draw_map, find_nearest
from pairwright.tasks.store.decision_table import KeptFilter, read_filters
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade import HOSTILE, LINE, Handmade, make_images, make_pairs
from tests.tasks.report.pages import Reader, browse

LINE_EMBEDDED = (LINE[0], ("embeddings", "images", ImageRow, EmbeddingRow, "mining"), LINE[1])


@pytest.fixture(scope="module")
def embedded():
    """Return twelve images on a quarter of a circle in each of two spaces, the first and the last a
    right angle apart."""
    images = make_images(4, 3)
    made = Handmade({"images": images, "pairs": make_pairs(images)})
    for number, row in enumerate(images):
        angle = np.pi / 2 * number / (len(images) - 1)
        vectors = {
            "p": (np.cos(angle), np.sin(angle)),
            "q <b>": (np.sin(angle), -np.cos(angle)),
        }
        for name, vector in vectors.items():
            numbers = tuple(float(np.float16(number)) for number in vector)
            about = {"embedder": name, "vector": numbers, "norm": 1.0}
            made.add(embeddings=row_of(EmbeddingRow, name, row.key, source=row.key, **about))
    return made


@pytest.fixture(scope="module")
def pages(tmp_path_factory, embedded):
    """Give pages of five images each; one test keeps filters, one decides about a pair."""
    root = tmp_path_factory.mktemp("explore")
    with (
        pytest.MonkeyPatch.context() as patch,
        browse(root, embedded, until="pairs", line=LINE_EMBEDDED) as pages,
    ):
        patch.setattr(explore_pages, "ON_A_PAGE", 5)
        yield pages


@pytest.fixture
def images(embedded):
    return {row.key: row for row in embedded.of("images")}


def resolved(render, **query):
    """Return a page once what it needs is made."""
    for _ in range(3_000):
        try:
            return render(query, "token")
        except NotMadeYetError:
            # leaves the processor to the thread now and then
            np.random.default_rng().normal(size=100_000)
    raise AssertionError("never made")


def keys_of(text):
    """Return the images of a grid."""
    sources = [attributes["src"] for attributes in Reader(text).attributes("img")]
    return [source[7:39] for source in sources if "thumbs/" in source]


def test_images_are_a_grid_of_pages(pages, images):
    answers = [pages.explore.grid({"page": str(number)}, "token") for number in (1, 2, 3)]
    assert [status for _, status in answers] == [200] * 3
    keys = [key for text, _ in answers for key in keys_of(text)]
    assert sorted(keys) == sorted(images)
    assert [images[key].name for key in keys] == sorted(row.name for row in images.values())


def test_images_are_found_by_words(pages, images):
    text, _ = pages.explore.grid({"q": '"world 2"'}, "token")
    names = [f"world 2 <b>photograph</b> {n}" for n in range(3)]
    assert [images[key].name for key in keys_of(text)] == names
    assert "<b>photograph" not in text


def test_an_image_leads_to_its_pairs(pages, embedded):
    text, _ = pages.explore.grid({}, "token")
    first = keys_of(text)[0]
    pairs = [pair for pair in embedded.of("pairs") if first in (pair.first, pair.second)]
    assert f'about={first}">{len(pairs)} pair' in text
    text, _ = pages.page({"about": first, "size": "50"}, "token")
    assert set(Reader(text).all_of("data-key")) == {pair.key for pair in pairs}


def test_thumbnails_are_of_images_of_the_dataset_only(pages, images):
    key = next(iter(images))
    with Image.open(pages.explore.thumbnail(f"{key}.jpg")) as thumbnail:
        assert thumbnail.size == (160, 120)
    for name in ("../x.jpg", "x", f"{key}.png"):
        assert pages.explore.thumbnail(name) is None
    assert not pages.explore.thumbnail(f"{'0' * 32}.jpg").exists()


@pytest.mark.parametrize(
    "query", [{"page": "0"}, {"like": "x"}, {"like": "0" * 32}, {"colour": "x"}], ids=str
)
def test_an_invalid_query_is_refused(pages, query):
    text, status = resolved(pages.explore.grid, **query)
    assert status == 400
    assert "Invalid query" in text


def test_more_like_this_follows_the_stored_vectors(pages, embedded, monkeypatch):
    monkeypatch.setattr(explore_pages, "ON_A_PAGE", 100)
    around = [row.key for row in embedded.of("images")]
    text, status = resolved(pages.explore.grid, like=around[0])
    assert status == 200
    assert keys_of(text) == around, "by rising angle, the image itself first"
    assert "1.000" in text
    assert html.escape("q <b>") in text
    text, _ = resolved(pages.explore.grid, like=around[-1], space="q <b>")
    assert keys_of(text) == around[::-1]


def test_the_map_has_images_and_pairs(pages, embedded):
    first = embedded.of("pairs")[0].key
    at = datetime(2026, 11, 21, tzinfo=UTC)
    pages.decide([Decision(key=first, verdict="reject", at=at)])
    styles = {"cluster": "tone0", "similarity": "shade0", "decision": "is-reject"}
    for colour, style in styles.items():
        text, status = resolved(pages.map, colour=colour)
        assert status == 200
        assert text.count("<circle") == 12
        assert text.count("<line") == len(embedded.of("pairs"))
        assert f'class="{style}"' in text
        Reader(text)
    assert text.count('<line class="is-reject"') == 1
    assert "<b>photograph" not in text


def draw(matrix):
    """Return the places and clusters of vectors on the map."""
    keys = [f"{n:032x}" for n in range(len(matrix))]
    names = np.array([key.encode() for key in keys], "S32")
    return draw_map(Vectors(names, matrix, np.ones(len(matrix), np.float32)), keys)


def test_groups_of_vectors_stand_apart_on_the_map():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 16, dtype=np.float32), 20, axis=0)
    places, clusters = draw(centres + rng.normal(0, 0.02, centres.shape).astype(np.float32))
    groups = places.reshape(3, 20, 2)
    middles = groups.mean(axis=1)
    spread = np.linalg.norm(groups - middles[:, None], axis=2).max()
    apart = [np.linalg.norm(middles[a] - middles[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert min(apart) > 2 * spread
    first, second, third = (set(clusters[start : start + 20]) for start in (0, 20, 40))
    assert not first & second
    assert not second & third
    assert (places.min(), places.max()) == (0, 1)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_a_map_of_few_images(count):
    assert draw(np.repeat(np.eye(3, 16, dtype=np.float32), 20, axis=0)[:count])[0].shape == (
        count,
        2,
    )


def test_nearest_counts_the_image_itself_first_also_beside_its_copy():
    matrix = np.array([[1, 0], [0, 1], [0, 1], [0.6, 0.8]], np.float16)
    keys = np.array([f"{n:032x}".encode() for n in range(4)])
    nearest = find_nearest(Vectors(keys, matrix, np.ones(4, np.float32)), f"{2:032x}", 3)
    assert [int(key, 16) for key, _ in nearest] == [2, 1, 3]
    assert [round(cosine, 2) for _, cosine in nearest] == [1.0, 1.0, 0.8]


def test_filters_are_kept_for_all_who_open_the_dataset(pages):
    folder = pages.tables.build.folder
    pages.keep_filter(KeptFilter(name=HOSTILE[:80], page="", query="q=ball&size=5"))
    pages.keep_filter(KeptFilter(name="reds", page="explore", query="q=red"))
    pages.keep_filter(KeptFilter(name="reds", page="explore", query="q=dark+red"))
    kept = [(row.page, row.query) for row in read_filters(folder)]
    assert kept == [("", "q=ball&size=5"), ("explore", "q=dark+red")]
    text, _ = pages.page({}, "token")
    assert "./?q=ball&amp;size=5" in text
    assert HOSTILE[:20] not in text
    assert "explore?q=dark+red" in pages.explore.grid({}, "token")[0]
    pages.keep_filter(KeptFilter(name="reds", page="explore", query=""))
    assert [row.page for row in read_filters(folder)] == [""]
