"""Pages about images: a grid, an image's nearest ones by hand, a map, searches that were given a
name."""

import html

import numpy as np
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

SPACES = ("p", "q <b>")
LINE_EMBEDDED = (LINE[0], ("embeddings", "images", ImageRow, EmbeddingRow, "mining"), LINE[1])


def make_embedded() -> Handmade:
    """Return twelve images on a quarter of a circle in the space p, the first and the last a right
    angle apart."""
    images = make_images(4, 3)
    rows = []
    for number, row in enumerate(images):
        angle = np.pi / 2 * number / (len(images) - 1)
        for name, vector in (
            ("p", (np.cos(angle), np.sin(angle))),
            ("q <b>", (np.sin(angle), -np.cos(angle))),
        ):
            numbers = tuple(float(np.float16(one)) for one in vector)
            rows.append(
                row_of(
                    EmbeddingRow,
                    name,
                    row.key,
                    source=row.key,
                    embedder=name,
                    vector=numbers,
                    norm=1.0,
                )
            )
    return Handmade({"images": images, "embeddings": rows, "pairs": make_pairs(images)})


def settled(render, query):
    """Return a page once what it needs is made."""
    for _ in range(3_000):
        try:
            return render(query, "token")
        except NotMadeYetError:
            np.random.default_rng().normal(
                size=100_000
            )  # leaves the processor to the thread now and then
    raise AssertionError("never made")


def keys_of(text):
    return [
        given["src"][7:39]
        for tag, given in Reader(text).tags
        if tag == "img" and "thumbs/" in given["src"]
    ]


def test_images_are_a_grid_of_pages_with_their_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(explore_pages, "ON_A_PAGE", 5)
    made = make_embedded()
    images = {row.key: row for row in made.of("images")}
    with browse(tmp_path, made, until="pairs", line=LINE_EMBEDDED) as pages:
        seen = []
        for number in (1, 2, 3):
            text, status = pages.explore.grid({"page": str(number)}, "token")
            assert status == 200
            seen += keys_of(text)
        assert sorted(seen) == sorted(images)
        assert [images[key].name for key in seen] == sorted(row.name for row in images.values())
        text, _ = pages.explore.grid({"q": '"world 2"'}, "token")
        assert [images[key].name for key in keys_of(text)] == [
            f"world 2 <b>photograph</b> {n}" for n in range(3)
        ]
        assert "<b>photograph" not in text
        own = [pair for pair in made.of("pairs") if seen[0] in (pair.first, pair.second)]
        assert f'about={seen[0]}">{len(own)} pair' in pages.explore.grid({}, "token")[0]
        text, _ = pages.page({"about": seen[0], "size": "50"}, "token")
        assert {given["data-key"] for tag, given in Reader(text).tags if "data-key" in given} == {
            one.key for one in own
        }
        path = pages.explore.thumbnail(f"{seen[0]}.jpg")
        with Image.open(path) as shown:
            assert shown.size == (160, 120)
        assert [pages.explore.thumbnail(name) for name in ("../x.jpg", "x", f"{seen[0]}.png")] == [
            None
        ] * 3
        assert not pages.explore.thumbnail(f"{'0' * 32}.jpg").exists()
        for query in ({"page": "0"}, {"like": "x"}, {"like": "0" * 32}, {"colour": "x"}):
            text, status = settled(pages.explore.grid, query)
            assert (status, "Invalid query" in text) == (400, True), query


def test_more_like_this_follows_the_stored_vectors(tmp_path):
    made = make_embedded()
    around = [row.key for row in made.of("images")]
    with browse(tmp_path, made, until="pairs", line=LINE_EMBEDDED) as pages:
        text, status = settled(pages.explore.grid, {"like": around[0]})
        assert status == 200
        assert keys_of(text) == around, "by rising angle, the image itself first"
        assert "1.000" in text
        assert (
            keys_of(settled(pages.explore.grid, {"like": around[-1], "space": "q <b>"})[0])
            == around[::-1]
        )
        assert html.escape(SPACES[1]) in text


def test_the_map_has_images_and_pairs(tmp_path):
    made = make_embedded()
    with browse(tmp_path, made, until="pairs", line=LINE_EMBEDDED) as pages:
        first = made.of("pairs")[0]
        at = "2026-11-21T11:00:00Z"
        pages.decide(
            [
                Decision.model_validate_json(
                    f'{{"key": "{first.key}", "verdict": "reject", "at": "{at}"}}'
                )
            ]
        )
        for colour, style in (
            ("cluster", "tone0"),
            ("similarity", "shade0"),
            ("decision", "is-reject"),
        ):
            text, status = settled(pages.map, {"colour": colour})
            assert status == 200
            assert text.count("<circle") == 12
            assert text.count("<line") == len(made.of("pairs"))
            assert f'class="{style}"' in text
            Reader(text)
        assert text.count('<line class="is-reject"') == 1
        assert "<b>photograph" not in text


def drawn(matrix):
    keys = [f"{n:032x}" for n in range(len(matrix))]
    space = Vectors(
        np.array([key.encode() for key in keys], "S32"), matrix, np.ones(len(matrix), np.float32)
    )
    return draw_map(space, keys)


def test_groups_of_vectors_stand_apart_on_the_map():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 16, dtype=np.float32), 20, axis=0)
    places, clusters = drawn(centres + rng.normal(0, 0.02, centres.shape).astype(np.float32))
    middles = [places[start : start + 20].mean(axis=0) for start in (0, 20, 40)]
    spread = max(
        np.linalg.norm(places[20 * n : 20 * n + 20] - middles[n], axis=1).max() for n in range(3)
    )
    apart = min(np.linalg.norm(middles[a] - middles[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert apart > 2 * spread
    assert not any(
        set(clusters[20 * a : 20 * a + 20]) & set(clusters[20 * b : 20 * b + 20])
        for a, b in ((0, 1), (1, 2))
    )
    assert (places.min(), places.max()) == (0, 1)
    for count in (0, 1, 2, 3, 9):
        assert drawn(centres[:count])[0].shape == (count, 2)


def test_nearest_counts_the_image_itself_first_also_beside_its_copy():
    matrix = np.array([[1, 0], [0, 1], [0, 1], [0.6, 0.8]], np.float16)
    keys = np.array([f"{n:032x}".encode() for n in range(4)])
    found = find_nearest(Vectors(keys, matrix, np.ones(4, np.float32)), f"{2:032x}", 3)
    assert [int(key, 16) for key, _ in found] == [2, 1, 3]
    assert [round(cosine, 2) for _, cosine in found] == [1.0, 1.0, 0.8]


def test_filters_are_kept_for_all_who_open_the_dataset(tmp_path):
    with browse(tmp_path, make_embedded(), until="pairs", line=LINE_EMBEDDED) as pages:
        folder = pages.tables.build.folder
        pages.keep_filter(KeptFilter(name=HOSTILE[:80], page="", query="q=ball&size=5"))
        pages.keep_filter(KeptFilter(name="reds", page="explore", query="q=red"))
        pages.keep_filter(KeptFilter(name="reds", page="explore", query="q=dark+red"))
        assert [(one.page, one.query) for one in read_filters(folder)] == [
            ("", "q=ball&size=5"),
            ("explore", "q=dark+red"),
        ]
        text, _ = pages.page({}, "token")
        assert "./?q=ball&amp;size=5" in text
        assert HOSTILE[:20] not in text
        assert "explore?q=dark+red" in pages.explore.grid({}, "token")[0]
        pages.keep_filter(KeptFilter(name="reds", page="explore", query=""))
        assert [one.page for one in read_filters(folder)] == [""]
