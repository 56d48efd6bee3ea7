"""Photographs with planted things, from a folder to a finished dataset."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

from pairwright.schemas.config import PlantedConfig, Profile, SourceConfig
from pairwright.schemas.rows import Dropped, ImageRow, ItemRow, PairRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.sources.planted import list_items, pair_up, read_items
from tests.fixtures.builds import build_here, ok_rows
from tests.tasks.planting.check_planted import find_faults, find_pair_faults, find_text_faults

QUICK = PlantedConfig(max_side=320, samples_per_pixel=2)


def source_of(folder: Path, config: PlantedConfig = QUICK) -> SourceConfig:
    source = Profile(source=f"planted:{folder}").source_config
    return source.model_copy(update={"planted": config})


def make_item(image: ImageRow) -> ItemRow:
    key = image.source_key
    return ItemRow(key=key, source_key=key, subject=key, name="coffee.png", locator="{}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder of a photograph, a picture without room and a damaged file."""
    root = tmp_path_factory.mktemp("photographs")
    Image.fromarray(skimage.data.coffee()).save(root / "coffee.png")
    Image.new("RGB", (400, 40)).save(root / "narrow.png")
    (root / "torn.png").write_bytes((root / "coffee.png").read_bytes()[:500])
    return root


@pytest.fixture(scope="module")
def rows(folder) -> Sequence[object]:
    source = source_of(folder)
    return list(read_items(list(list_items(source)), source))


def test_a_photograph_gives_two_that_are_paired(rows) -> None:
    first, second = (row for row in rows if isinstance(row, ImageRow))
    item = make_item(first)
    [pair] = pair_up(item, [replace(second, image=b""), replace(first, image=b"")])
    assert isinstance(pair, PairRow)
    assert pair.source_key == item.key
    assert (pair.first, pair.second) == (first.key, second.key)
    assert (first.width, first.height) == (320, 213)
    assert first.group == second.group != ""
    photograph = scale_down(skimage.data.coffee(), 320)
    assert find_faults(first, photograph) + find_faults(second, photograph) == []
    assert find_pair_faults(first, second, pair.change_types) == []


def test_an_item_without_photographs_has_no_pairs(rows) -> None:
    item = make_item(next(row for row in rows if isinstance(row, ImageRow)))
    [dropped] = pair_up(item, [])
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "nothing was planted"


def test_what_cannot_be_planted_says_why(rows) -> None:
    dropped = [row for row in rows if isinstance(row, Dropped)]
    reasons = {row.detail.partition(":")[0]: row.reason for row in dropped}
    assert reasons["narrow.png"] == "no room for things"
    assert reasons["torn.png"] == "truncated image"


def test_keys_follow_settings_and_files(folder) -> None:
    keys = [item.key for item in list_items(source_of(folder))]
    assert keys == [item.key for item in list_items(source_of(folder))]
    other = QUICK.model_copy(update={"seed": 1})
    assert not {*keys} & {item.key for item in list_items(source_of(folder, other))}
    assert [item.key for item in list_items(source_of(folder), 1)] == keys[:1]


def test_a_growing_album_keeps_its_planted_photographs(tmp_path) -> None:
    few = source_of(tmp_path, QUICK.model_copy(update={"count": 3}))
    for number in range(10):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    before = {item.key for item in list_items(few)}
    Image.new("RGB", (8, 8)).save(tmp_path / "new.png")
    after = {item.key for item in list_items(few)}
    assert len(before) == len(after) == 3
    assert len(before & after) >= 2
    many = source_of(tmp_path, QUICK.model_copy(update={"count": 30}))
    assert len(list(list_items(many))) == 11


def test_the_same_photograph_gives_the_same_things(folder, rows, tmp_path) -> None:
    (tmp_path / "again.png").write_bytes((folder / "coffee.png").read_bytes())
    source = source_of(tmp_path)
    again = list(read_items(list(list_items(source)), source))
    before = [row.key for row in rows if isinstance(row, ImageRow)]
    assert [row.key for row in again if isinstance(row, ImageRow)] == before


def test_planted_pairs_are_written_about_rejected_and_shown(tmp_path) -> None:
    photographs = tmp_path / "in"
    photographs.mkdir()
    for name in ("coffee", "astronaut"):
        Image.fromarray(getattr(skimage.data, name)()).save(photographs / f"{name}.png")
    settings = [
        *("planted.max_side=320", "planted.samples_per_pixel=2", "planted.photographs=3"),
        "run.workers=1",
    ]
    out = tmp_path / "out"
    report = build_here(out, f"planted:{photographs}", settings=settings)
    assert report.is_complete
    images = {row["key"]: row for row in ok_rows(out, "images")}
    preferences = ok_rows(out, "preferences")
    assert len(preferences) >= 2
    for row in preferences:
        graphs = [read_graph(images[key]["graph"]) for key in row["image_keys"]]
        assert find_text_faults(row["chosen"], *graphs) == []
    assert any(row["rejected_images"] for row in preferences)


def read_graph(graph: str | dict) -> SceneGraph:
    return SceneGraph.model_validate_json(graph if isinstance(graph, str) else json.dumps(graph))
