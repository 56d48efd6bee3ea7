"""One range of values for all images of more than 8 bits of a source, kept by later builds."""

import numpy as np
import pytest
from PIL import Image

import pairwright
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.builds import build_here

BUILD = {"until": "images", "settings": ["run.workers=1"]}


def write_scan(folder, name, low, high):
    folder.mkdir(exist_ok=True)
    values = np.linspace(low, high, 48 * 64).reshape(48, 64).astype(np.uint16)
    values[-1] = high  # enough pixels for a percentile
    Image.fromarray(values).save(folder / name)


def images(out):
    return {row.name: row for row in pairwright.open(str(out))["images"]}


def test_images_of_a_source_share_a_range_and_keep_it(tmp_path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "d"
    write_scan(photos, "a.png", 0, 1000)
    write_scan(photos, "b.tif", 0, 4000)
    build_here(out, photos, **BUILD)
    first = images(out)
    assert decode_rgb(first["a.png"].image).max() == pytest.approx(255 / 4, abs=1)
    assert decode_rgb(first["b.tif"].image).max() == 255
    assert {row.format for row in first.values()} == {"png"}
    assert {row.rendering for row in first.values()} == {"uint16 0 to 4000, of the source"}
    write_scan(photos, "c.png", 0, 16000)
    build_here(out, photos, **BUILD)
    later = images(out)
    assert {name: later[name].key for name in first} == {
        name: row.key for name, row in first.items()
    }
    assert later["c.png"].rendering == "uint16 0 to 4000, of the source"
    settings = [*BUILD["settings"], "images.range=[0,16000]"]
    build_here(out, photos, until="images", settings=settings)
    assert {row.rendering for row in images(out).values()} == {"uint16 0 to 16000, by images.range"}


def test_status_counts_pictures_that_show_nothing(tmp_path) -> None:
    write_scan(tmp_path / "photos", "dark.png", 0, 40)
    write_scan(tmp_path / "photos", "good.png", 0, 4000)
    build_here(tmp_path / "d", tmp_path / "photos", **BUILD)
    status = pairwright.open(str(tmp_path / "d")).status()
    (count,) = [count for count in status.counts if count.stage == "images"]
    assert count.reasons == {"comes out nearly black": 1}


def test_usual_images_leave_the_settings_as_they_are(tmp_path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (32, 32), (1, 2, 3)).save(tmp_path / "photos/a.png")
    build_here(tmp_path / "d", tmp_path / "photos", **BUILD)
    version = pairwright.open(str(tmp_path / "d"))
    assert "measured" not in str(version.profile.model_dump())
    assert images(tmp_path / "d")["a.png"].rendering == ""
