"""Datasets of several sources, and albums with things planted into some photographs."""

from collections import Counter
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

import pairwright as pw
from pairwright.schemas.errors import ConfigError
from tests.fixtures.builds import WIDE
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.command import run
from tests.fixtures.pictures import write_pictures
from tests.tasks.planting.check_planted import find_text_faults

QUICK = (*WIDE, "planted.max_side=320", "planted.samples_per_pixel=2")
WRITTEN = (
    "The difference between the two images is that the first image shows a cup, while the second "
    "image contains a spoon."
)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """Return a folder of three overlapping parts of one photograph."""
    folder = tmp_path_factory.mktemp("photographs")
    picture = Image.fromarray(skimage.data.coffee())
    for index in range(3):
        left = 40 * index
        picture.crop((left, 0, left + 480, 400)).save(folder / f"coffee-{index}.png")
    return folder


def test_images_of_two_folders_pair_with_each_other(tmp_path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write_pictures(first, range(2))
    write_pictures(second, range(2, 4), seed=1)
    out = str(tmp_path / "out")
    build = pw.build([first, second], out=out, settings=WIDE, until="mining")
    by_key = {row.key: row.name for row in build["images"].rows(without=("image",))}
    assert len(by_key) == 4
    pairs = {(pair.first, pair.second) for pair in build["pairs"].rows()}
    folders = {frozenset((by_key[one], by_key[other])) for one, other in pairs}
    assert len(folders) == len(pairs) > 1
    again = pw.build([first, second], out=out, settings=WIDE, until="mining")
    assert again.outcome is not None
    assert all(counts.of == counts.ok + counts.dropped for counts in again.outcome.counts)


def test_the_limit_is_of_each_source(tmp_path) -> None:
    write_pictures(tmp_path / "a", range(3))
    write_pictures(tmp_path / "b", range(3, 6), seed=1)
    sources = [tmp_path / "a", tmp_path / "b"]
    build = pw.build(sources, out=str(tmp_path / "out"), limit=2, until="sources")
    assert len(list(build["images"].rows())) == 4


def test_each_source_has_its_weight_and_its_split(tmp_path, capsys) -> None:
    """Half of the twelve images are drawn; the golden pairs are for testing."""
    write_pictures(tmp_path / "a", range(12))
    write_pictures(tmp_path / "b", range(12, 15), seed=1)
    golden = f"reading.golden={next((tmp_path / 'a').iterdir())}"
    rules = "per_source={folder: {weight: 0.5}, golden: {split: test}}"
    out = tmp_path / "out"
    build = pw.build(
        [f"folder:{tmp_path / 'a'}", f"golden:{tmp_path / 'b'}"],
        out=str(out),
        settings=[*WIDE, golden, rules, "differences.writer=given"],
    )
    images = Counter(row.source for row in build["images"].rows(without=("image",)))
    assert 2 <= images["folder"] <= 10
    assert images["golden"] == 4
    given = {row.key for row in build["pairs"].rows() if row.origin == "given"}
    splits = {row.subject: row.split for row in build["splits"].rows()}
    assert len(given) == 3
    assert {splits[key] for key in given} == {"test"}
    assert run("status", out) == 0
    assert f"images by source: folder {images['folder']}, golden 4" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"per_source\.golden: no source is of this kind"):
        pw.build(tmp_path / "a", out=str(tmp_path / "other"), settings=[rules])


def test_a_source_that_joins_later_reads_no_image_again(tmp_path) -> None:
    write_pictures(tmp_path / "a", range(3))
    write_pictures(tmp_path / "b", range(3, 5), seed=1)
    out = str(tmp_path / "out")
    alone = pw.build(tmp_path / "a", out=out, until="sources")
    rows = {row.key: row for row in alone["images"].rows()}
    parts = {path.name for path in (tmp_path / "out" / "tables" / "images").rglob("*.parquet")}
    both = pw.build([tmp_path / "a", tmp_path / "b"], out=out, until="sources")
    assert rows.items() <= {row.key: row for row in both["images"].rows()}.items()
    assert len(list(both["images"].rows())) == 5
    kept = {path.name for path in (tmp_path / "out" / "tables" / "images").rglob("*.parquet")}
    assert parts <= kept


def test_planted_photographs_join_an_album(photographs, tmp_path) -> None:
    def answer(asked: Asked) -> str:
        if len(asked.images) == 2:
            return WRITTEN
        return "A cup of coffee stands on a wooden table beside a silver spoon in warm light."

    with chat_server(answer) as server:
        served = (
            *("captions.writer=served", "differences.writer=served"),
            f"models.chat.endpoint={server.url}",
        )
        album = pw.build(
            photographs,
            out=str(tmp_path / "album"),
            settings=[*QUICK, *served],
            planted=1,
            until="captioning",
        )
    images = {row.key: row for row in album["images"].rows()}
    assert Counter(row.source for row in images.values()) == {"folder": 3, "planted": 2}
    pairs = {row.key: row for row in album["pairs"].rows()}
    for pair in pairs.values():
        sources = {images[pair.first].source, images[pair.second].source}
        assert sources == ({"planted"} if pair.origin == "given" else {"folder"})
    texts = {row.subject: row for row in album["differences"].rows()}
    for key, pair in pairs.items():
        if pair.origin == "given":
            graphs = [images[image].graph for image in (pair.first, pair.second)]
            assert texts[key].model == "scene-graph"
            assert find_text_faults(texts[key].text, *graphs) == []
        elif key in texts:
            assert texts[key].text == WRITTEN
    assert {row.model for row in texts.values()} > {"scene-graph"}


def test_things_are_planted_into_a_folder_only(tmp_path) -> None:
    with pytest.raises(ConfigError, match="planted:FOLDER"):
        pw.build("scenes:", out=str(tmp_path / "out"), planted=3)


def test_the_command_takes_several_sources(tmp_path, capsys) -> None:
    write_pictures(tmp_path / "a", range(2))
    write_pictures(tmp_path / "b", range(2, 4), seed=1)
    out = tmp_path / "out"
    assert run("build", tmp_path / "a", tmp_path / "b", "--out", out, "--until", "sources") == 0
    assert "images   4   4" in capsys.readouterr().out
