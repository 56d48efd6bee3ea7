"""Rendered worlds are true: what the scene graphs say is what the pictures show."""

import io
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import combinations
from multiprocessing import get_context

import cv2
import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.claims import content_changes, is_no_change
from pairwright.schemas.config import Profile, ScenesConfig
from pairwright.schemas.rows import Dropped, ImageRow, make_key
from pairwright.schemas.scene import DISTRACTORS, PREPOSITIONS
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.scenes.render import exposure_of
from pairwright.tasks.sources import scenes
from pairwright.tasks.sources.scenes import list_items, read_items

CONFIG = ScenesConfig(
    seed=4,
    worlds=11,
    photographs=4,
    width=128,
    height=96,
    samples_per_pixel=4,
    no_change_share=0.25,
)


def source_of(config):
    return Profile(source="scenes:").source_config.model_copy(update={"scenes": config})


def listed(config, limit=None):
    return list(list_items(source_of(config), limit))


def read(item, config):
    return list(read_items([item], source_of(config)))


def pixels(row):
    return np.asarray(Image.open(io.BytesIO(row.image)).convert("RGB")).astype(int)


@pytest.fixture(scope="module")
def worlds():
    """Per world its photographs; a world lacks what could not be drawn, which is rare."""
    found = [read(item, CONFIG) for item in listed(CONFIG)]
    assert sum(isinstance(row, Dropped) for rows in found for row in rows) <= 2
    return [
        [row for row in rows if isinstance(row, ImageRow)]
        for rows in found
        if isinstance(rows[0], ImageRow)
    ]


def variations(worlds):
    return [(rows[0], row) for rows in worlds for row in rows[1:]]


def things(row):
    return {thing.id: thing for thing in row.graph.objects}


def test_importing_and_listing_load_no_renderer() -> None:
    code = (
        "import sys; from pairwright.schemas.config import Profile, ScenesConfig;"
        "from pairwright.tasks.sources.scenes import list_items;"
        "config = Profile(source='scenes:', scenes=ScenesConfig(worlds=3)).source_config;"
        "assert len(list(list_items(config, None))) == 3;"
        "assert not {'mitsuba', 'drjit', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("limit", "counts"), [(None, [3, 3, 3]), (6, [3, 3]), (7, [3, 3, 1])])
def test_limit_is_counted_in_photographs(limit, counts) -> None:
    config = ScenesConfig(worlds=3, photographs=3)
    items = listed(config, limit)
    assert [json.loads(item.locator)["photographs"] for item in items] == counts
    assert all(item.key == item.source_key == item.subject for item in items)


def test_keys_hash_all_that_decides_the_pixels(monkeypatch) -> None:
    plain = ScenesConfig(worlds=2)
    changes = {"seed": 1, "width": 128, "height": 96, "samples_per_pixel": 5}
    changes |= {"no_change_share": 0.5, "photographs": 2}
    keys = {item.key for item in listed(plain)}
    for name, value in changes.items():
        keys |= {item.key for item in listed(plain.model_copy(update={name: value}))}
    assert len(keys) == 2 * (1 + len(changes))
    more = listed(plain.model_copy(update={"worlds": 9}))
    assert {item.key for item in more[:2]} == {item.key for item in listed(plain)}
    for renderer in ("mitsuba", "pyoidn"):
        releases = {name: version(name) for name in ("mitsuba", "pyoidn")} | {renderer: "9.9"}
        monkeypatch.setattr(scenes, "version", releases.__getitem__)
        assert keys.isdisjoint(item.key for item in listed(plain))


def test_rows_say_what_they_hold(worlds) -> None:
    for rows in worlds:
        for row in rows:
            assert row.key == row.subject == make_key(row.image)
            assert (row.format, row.width, row.height) == ("png", 128, 96)
            assert Image.open(io.BytesIO(row.image)).size == (128, 96)
            assert (row.source, row.licence) == ("scenes", "CC0-1.0")
            assert row.name == f"{row.group}/photograph-{row.graph.photograph}.png"
            assert row.group == row.graph.world
    assert len({row.key for rows in worlds for row in rows}) == sum(map(len, worlds))
    assert {rows[0].graph.place for rows in worlds} == PREPOSITIONS.keys()


def _render(item_and_config):
    item, config = item_and_config
    return [(row.key, row.image, row.graph.model_dump_json()) for row in read(item, config)]


def test_other_processes_make_the_same_bytes(worlds) -> None:
    items = listed(CONFIG, 6)  # the second world is cut off after two photographs
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(_render, [(item, CONFIG) for item in reversed(items)]))
    here = {row.key: (row.image, row.graph.model_dump_json()) for rows in worlds for row in rows}
    assert all(here[key] == (image, graph) for rows in found for key, image, graph in rows)


def test_masks_boxes_and_shares_agree(worlds) -> None:
    for row in (row for rows in worlds for row in rows):
        taken = np.zeros((96, 128), int)
        for thing in row.graph.objects:
            mask = decode_mask(thing.mask)
            taken += mask
            ys, xs = np.nonzero(mask)
            assert thing.box == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            assert 0.5 <= thing.visible <= 1
            centre = (thing.box[0] + thing.box[2]) / 2 / 128
            assert thing.column == (
                "left" if centre < 1 / 3 else "right" if centre > 2 / 3 else "centre"
            )
        assert taken.max() == 1
        assert len(things(row)) == len(row.graph.objects) >= 3


ATTRIBUTES = {name: name for name in ("size", "colour", "pose", "text", "material")}
ATTRIBUTES["orientation"] = "facing"
WHOLE_SCENE = {"viewpoint": "viewpoint", "illumination": "light"}


def test_every_type_of_change_occurs_and_is_true(worlds) -> None:
    """What a change does to a scene is tested with ``scenes``; here, that the graphs say it."""
    seen = set()
    for base, row in variations(worlds):
        old, new, concerned = things(base), things(row), set()
        for change in row.graph.changes:
            seen.add(change.type)
            name = change.object_id
            concerned |= {name, *change.object_ids}
            expected = [change.before, change.after]
            if change.type in ATTRIBUTES:
                field = ATTRIBUTES[change.type]
                assert [getattr(scene[name], field) for scene in (old, new)] == expected
            elif change.type in WHOLE_SCENE:
                field = WHOLE_SCENE[change.type]
                assert [getattr(scene.graph, field) for scene in (base, row)] == expected
            elif change.type == "move":
                places = [f"{scene[name].column} {scene[name].depth}" for scene in (old, new)]
                assert places[0] == change.before != places[1]
            elif change.type == "substitution":
                assert old[name].shape != new[name].shape
            else:  # things come or go
                assert {name, *change.object_ids} - {"", None} <= old.keys() ^ new.keys()
        same = {"shape", "colour", "material", "size", "facing", "pose", "text"}
        for name in (old.keys() | new.keys()) - concerned:
            assert old[name].model_dump(include=same) == new[name].model_dump(include=same)
    assert len(seen) == 14, seen


def test_every_change_of_content_shows_in_the_pixels(worlds) -> None:
    for base, row in variations(worlds):
        if any(change.type in DISTRACTORS for change in row.graph.changes):
            continue
        changed = np.abs(pixels(base) - pixels(row)).max(axis=2) > 25
        for change in row.graph.changes:
            region = np.zeros((96, 128), bool)
            for scene in (things(base), things(row)):
                for name in {change.object_id, *change.object_ids} & scene.keys():
                    region |= decode_mask(scene[name].mask)
            assert (changed & region).sum() >= 20, (row.name, change)


def test_distractors_show_too(worlds) -> None:
    count = 0
    for base, row in variations(worlds):
        if row.graph.changes and all(change.type in DISTRACTORS for change in row.graph.changes):
            count += 1
            assert np.abs(pixels(base) - pixels(row)).mean() > 4, row.name
            assert is_no_change((base.graph, row.graph))
            assert things(base).keys() == things(row).keys()
    assert count >= 6


def test_photographs_have_equal_content_only_if_their_changes_are_equal(worlds) -> None:
    for rows in worlds:
        assert rows[0].graph.changes == ()
        for a, b in combinations(rows, 2):
            content = [exposure_of(row.graph).scene.things for row in (a, b)]
            assert (content[0] == content[1]) == (
                content_changes(a.graph) == content_changes(b.graph)
            )
        changes = [change for row in rows for change in content_changes(row.graph)]
        kinds = Counter(
            (change.type, change.type != "counting" and change.object_id) for change in changes
        )
        assert not changes or max(kinds.values()) == 1


@pytest.mark.parametrize("material", ["rubber", "metal", "wooden", "ceramic"])
def test_colours_look_like_their_names(material) -> None:
    from pairwright.tasks.scenes.render import build_scene, develop, expose, survey
    from pairwright.tasks.scenes.state import Camera, Scene, Thing
    from pairwright.tasks.scenes.vocabulary import COLOURS, Light, View, colours_of

    names = colours_of("ball", material)
    spots = [(x, y) for y in (-1, 0.2, 1.4) for x in (-1.5, -0.5, 0.5, 1.5)]
    balls = [
        Thing(c, "ball", c, material, "medium", x=x, y=y)
        for c, (x, y) in zip(names, spots, strict=False)
    ]
    view = View(0, 41, "")
    camera = Camera(view, 128, 96)
    scene = Scene("a photo studio", 0, view, Light("left", "white"), tuple(balls))
    seen = survey(scene, camera)
    picture = develop(expose(build_scene(scene), camera, samples=4, seed=0), seen.albedo)
    lab = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2Lab) * (0.5, 1, 1)
    named = np.array([[COLOURS[c] for c in COLOURS]], np.float32) / 255
    palette = cv2.cvtColor(named, cv2.COLOR_RGB2Lab)[0] * (0.5, 1, 1)
    for name in names:
        mean = np.median(lab[seen.mask(name)], axis=0)
        assert list(COLOURS)[int(np.linalg.norm(palette - mean, axis=1).argmin())] == name
