"""Reading tables from Python: what counts now, and nothing else."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

import pairwright as pw
from pairwright.schemas.rows import PairRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, encode_part, read_about, read_part
from tests.flows.conftest import build


def test_rows_are_those_that_count(mined: Path, tmp_path: Path) -> None:
    photographs, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(mined.parent / "in", photographs)
    shutil.copytree(mined, out)
    (photographs / "coffee-0.jpg").unlink()
    (photographs / "moon-0.jpg").rename(photographs / "renamed.jpg")
    build(out, str(photographs), until="mining", settings=["run.workers=1"])
    dataset = pw.open(out)
    counts = {count.stage: count for count in dataset.status().counts}
    images = list(dataset["images"].rows())
    assert len(images) == len({row.key for row in images}) == 103
    assert len(dataset["images"]) == counts["images"].rows == 103
    names = {row.name for row in images}
    assert "renamed.jpg" in names
    assert not names & {"coffee-0.jpg", "moon-0.jpg"}
    assert all(row.image for row in images)
    pairs = list(dataset["pairs"])
    assert len(pairs) == len({row.key for row in pairs}) == counts["pairs"].rows > 0
    assert {image for pair in pairs for image in (pair.first, pair.second)} <= {
        row.key for row in images
    }
    for one in ("images", "neighbours", "pairs"):
        with dataset.version.resolved() as (opened, _):
            live = {key for (key,) in opened.ledger.run_query(f"SELECT key FROM live_{one}")}
        assert {row.key for row in dataset[one]} == live, "as a build counts them"


def test_a_table_is_an_arrow_table_a_frame_and_a_dataset(rendered: Path) -> None:
    images = pw.open(rendered)["images"]
    arrow = images.to_arrow()
    assert arrow.column_names == images.columns
    assert len(arrow) == len(images) == 9
    assert [row.key for row in images.rows()] == arrow["key"].to_pylist()
    frame = images.to_pandas(["name", "width"])
    assert list(frame.columns) == ["name", "width"]
    assert set(frame.width) == {96}
    loaded = images.to_datasets()
    assert loaded[0]["image"].size == (96, 72)
    preferences = pw.open(rendered)["preferences"].to_datasets(["images", "chosen"])
    assert [image.size for image in preferences[0]["images"]] == [(96, 72)] * 2
    assert {row.image for row in images.rows(without=["image"])} == {b""}
    pairs = pw.open(rendered)["pairs"]
    rows = list(pairs.rows())
    assert pairs[0].row == rows[0]
    assert pairs[-1].similarity == rows[-1].similarity
    assert list(pairs[2:5]) == rows[2:5]
    near = pairs.where("similarity > 0.9")
    assert list(near) == [row for row in rows if row.similarity > 0.9] != []
    between = [row for row in rows if 0.9 < row.similarity < 0.95]
    assert list(near.where("similarity < 0.95")[:1]) == between[:1]
    assert len(pairs.where("origin = 'no such'")) == 0
    assert len(pairs.where("origin = 'no such'").to_arrow()) == 0


def test_batches_are_bounded(mined: Path) -> None:
    images = pw.open(mined)["images"]
    sizes = [len(batch) for batch in images.batches(["key"])]
    assert sum(sizes) == len(images) > 100
    assert max(sizes) <= 100


def test_what_is_asked_wrongly_is_refused(rendered: Path, mined: Path) -> None:
    with pytest.raises(pw.ConfigError, match="captions"):
        pw.open(mined)["captions"]
    pairs = pw.open(rendered)["pairs"]
    with pytest.raises(pw.ConfigError, match="colour"):
        pairs.to_arrow(["colour"])
    reading = "key IN (SELECT content FROM read_text('/etc/hostname'))"
    for condition in ("similarity >", "colour > 3", reading):
        with pytest.raises(pw.ConfigError):
            pairs.where(condition)
    with pytest.raises(IndexError):
        pairs[len(pairs)]
    with pytest.raises(AttributeError):
        _ = pairs[0].colour


def test_a_notebook_shows_small_pictures_and_escaped_texts(rendered: Path, tmp_path: Path) -> None:
    dataset = pw.open(rendered)
    shown = dataset["pairs"]._repr_html_()
    assert shown.count("<tr>") == 10
    assert shown.count('src="data:image/jpeg;base64,') == 18
    assert dataset["images"]._repr_html_().count("data:image/jpeg") == 9
    preference = dataset["preferences"][0]._repr_html_()
    assert "data:image/jpeg" in preference
    assert "Turn(" not in preference, "a prompt is shown as who said what"
    assert dataset["pairs"][0].first not in shown, "the beginning of a key will do"
    hostile = dataset["pairs"][0].row
    object.__setattr__(hostile, "instruction", "<script>alert(1)</script>")
    from pairwright.flows.versions.show_rows import show_rows

    text = show_rows(dataset.version, "pairs", [hostile], total=1)
    assert "&lt;script&gt;" in text
    assert "<script" not in text


def test_a_row_shows_its_card(rendered: Path, tmp_path: Path) -> None:
    dataset = pw.open(rendered)
    pair = dataset["pairs"][0]
    assert isinstance(pair.row, PairRow)
    card = pair.show()
    (chosen,) = dataset["preferences"].where(f"subject = '{pair.key}'")
    assert chosen.chosen.split()[-1].strip(".") in card.page
    assert 'src="images/' not in card.page, "all pictures are inside it"
    assert "<script" not in card.page
    assert card._repr_html_().startswith("<iframe srcdoc=")
    card.save(tmp_path / "card.html")
    assert (tmp_path / "card.html").read_text() == card.page
    image = dataset["images"][0]
    assert image.name in image.show().page
    assert "data:image/" in image.show().page


def test_parts_of_an_earlier_release_lack_columns(rendered: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(rendered, out)
    for path in (out / "tables/images").rglob("part-*.parquet"):
        part = Part(Folder(str(out)), str(path.relative_to(out)))
        table = read_part(part).drop_columns(["rendering", "remarks"])
        part.folder.write(part.name, encode_part(table, read_about(part)))
    images = pw.open(out)["images"]
    assert {(row.rendering, row.remarks) for row in images} == {("", ())}
    assert images.to_arrow()["remarks"].to_pylist() == [[]] * len(images)
    assert pw.open(out).status().counts


def test_a_dataset_shows_what_models_saw(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Image.new("RGBA", (40, 30), (255, 0, 0, 0)).save(tmp_path / "in/clear.png")
    build(tmp_path / "out", str(tmp_path / "in"), until="images", settings=["run.workers=1"])
    (row,) = pw.open(tmp_path / "out")["images"].to_datasets()
    assert row["image"].convert("RGB").getpixel((5, 5)) == (255, 255, 255)
