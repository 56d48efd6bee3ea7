"""Exports are read back as their consumers do; the first row that would not train is named."""

import base64
import io
import json
import re
import tarfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pairwright.flows.building.progress import say_nothing
from pairwright.schemas.errors import ValidationError
from pairwright.schemas.rows import make_key
from pairwright.tasks.export.export_rows import verify_export
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import Tally
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.exports import export_some, preference
from tests.fixtures.pictures import encode
from tests.fixtures.tars import write_tar

ROWS = [preference(number, rejected_images=2, negatives=["no"]) for number in range(3)]
pytestmark = pytest.mark.usefixtures("offline")


def export(folder, form, rows=ROWS):
    """Export rows, and return how many there are in the form."""
    tally = export_some(folder, rows, form=form)
    return sum(count for count, _ in tally.sizes.values())


def verify(folder, form, rows, processor):
    verify_export(folder, FORMATS[form], processor, Tally(sizes={"train": (rows, 0)}), say_nothing)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_is_good_and_complete(tmp_path, processor, form) -> None:
    rows = export(tmp_path, form)
    assert rows >= 3
    verify(tmp_path, form, rows, processor)
    with pytest.raises(ValidationError, match=rf"\b{rows + 1} rows .*\b{rows}\b"):
        verify(tmp_path, form, rows + 1, processor)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("hf", "train, row 1: "),
        ("trl", "train, row 1: "),
        ("llamafactory", "data/train.jsonl, line 2: "),
        ("ms-swift", "data/train-images.jsonl, line 2: "),
        ("llava", rf"data/train.json, entry 2 \({ROWS[1].key}\): "),
        ("webdataset", f"data/train-000000.tar: {ROWS[1].key}: "),
        ("openai-batch", "data/train-00000.jsonl, line 2: "),
    ],
)
def test_a_broken_image_names_its_row(tmp_path, processor, form, name) -> None:
    broken = replace(ROWS[1], images=(ROWS[1].images[0], ROWS[1].images[1][:200]))
    rows = export(tmp_path, form, [ROWS[0], broken, ROWS[2]])
    with pytest.raises(ValidationError, match=f"{name}.*image"):
        verify(tmp_path, form, rows, processor)


def turned_photo():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(Image.effect_noise((56, 42), 90).convert("RGB"), "JPEG", exif=exif)


TURNED = turned_photo()


def odd_row():
    """Return a row of a turned photograph, a scan of 16 bits, and a transparent image."""
    grey = np.linspace(0, 65535, 56 * 56).astype(np.uint16).reshape(56, 56)
    scan = encode(Image.fromarray(grey))
    clear = Image.new("RGBA", (56, 56), (250, 20, 20, 90))
    logo = encode(clear)
    images = (TURNED, scan)
    keys = tuple(make_key(image) for image in images)
    return replace(ROWS[0], images=images, image_keys=keys, rejected_images=(images[0], logo))


def shown_in(folder):
    """Return what Pillow shows of all images of an export, by the hash of the pixels."""
    shown = {}
    for cell in images_of(folder):
        with Image.open(io.BytesIO(cell)) as image:
            pixels = np.asarray(image.convert("RGB"))
        shown[make_key(pixels.tobytes())] = pixels.shape
    return shown


def images_of(folder):
    files = [path for path in folder.rglob("*") if path.suffix in (".png", ".jpg", ".webp")]
    yield from (path.read_bytes() for path in files)
    for path in folder.rglob("*.tar"):
        with tarfile.open(path) as tar:
            for member in tar:
                if not member.name.endswith(".json"):
                    yield tar.extractfile(member).read()
    for path in folder.rglob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            cells = [*row.get("images", []), *row.values()]
            yield from (
                cell["bytes"] for cell in cells if isinstance(cell, dict) and "bytes" in cell
            )
    for path in folder.rglob("train-0*.jsonl"):
        for url in re.findall(r"base64,([^\"]+)", path.read_text()):
            yield base64.b64decode(url)


@pytest.mark.parametrize("form", FORMATS)
def test_consumers_see_the_pixels_of_the_texts(tmp_path, processor, form) -> None:
    row = odd_row()
    rows = export(tmp_path, form, [row])
    verify(tmp_path, form, rows, processor)
    shown = shown_in(tmp_path)
    if form == "rlaif-v":  # one image of both
        assert list(shown.values()) == [(56, 42 + 16 + 56, 3)]
        return
    for image in row.images:
        assert make_key(decode_rgb(image).tobytes()) in shown


def test_card_says_which_images_were_written_anew(tmp_path) -> None:
    export(tmp_path, "hf", [odd_row(), ROWS[1]])
    (first, second) = pq.read_table(next(tmp_path.rglob("*.parquet"))).to_pylist()
    assert first["image_keys"] == [f"{key}-plain" for key in odd_row().image_keys]
    assert second["image_keys"] == list(ROWS[1].image_keys)
    assert "3 images were written anew" in (tmp_path / "README.md").read_text()


def test_an_image_that_pillow_shows_otherwise_is_found(tmp_path, processor) -> None:
    rows = export(tmp_path, "llamafactory")
    image = next((tmp_path / "images").rglob("*.png"))
    image.write_bytes(TURNED)
    with pytest.raises(ValidationError, match="other pixels"):
        verify(tmp_path, "llamafactory", rows, processor)


def change_line(path, change):
    lines = path.read_text().splitlines()
    record = json.loads(lines[1])
    change(record)
    lines[1] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


LLAMAFACTORY = [
    (lambda r: r.pop("rejected"), "rejected"),
    (lambda r: r["images"].pop(), "2 <image> for 1 images"),
    (lambda r: r["images"].__setitem__(0, "../x.png"), r"\.\./x.png"),
    (lambda r: r["images"].__setitem__(0, "images/x.png"), "images/x.png"),
    (lambda r: r["chosen"].update({"from": "human"}), "assistant"),
    (lambda r: r["rejected"].update(value=" "), "rejected"),
    (lambda r: r["conversations"].append({"from": "gpt", "value": "a"}), "turns"),
    (lambda r: r.update(conversations=[]), "turns"),
]
MS_SWIFT = [
    (lambda r: r.update(rejected_response=r["messages"][-1]["content"]), "rejected .*chosen"),
    (lambda r: r["messages"].pop(), "answer"),
    (lambda r: r.pop("rejected_response"), "rejected_images"),
]
OPENAI = [
    (lambda r: r.update(url="/v1/completions"), "'/v1/completions'"),
    (lambda r: r["body"].update(model=""), "model"),
    (lambda r: r.pop("method"), "body, custom_id, url"),
]


@pytest.mark.parametrize(
    ("form", "name", "change", "why"),
    [
        *(("llamafactory", "train", *case) for case in LLAMAFACTORY),
        *(("ms-swift", "train", *case) for case in MS_SWIFT),
        *(("openai-batch", "train-00000", *case) for case in OPENAI),
    ],
)
def test_a_line_that_breaks_the_rules(tmp_path, processor, form, name, change, why) -> None:
    rows = export(tmp_path, form)
    change_line(tmp_path / f"data/{name}.jsonl", change)
    with pytest.raises(ValidationError, match=rf"data/{name}.jsonl, line 2: .*{why}"):
        verify(tmp_path, form, rows, processor)


def change_parquet(folder, change):
    (path,) = (folder / "data").iterdir()
    table = pq.read_table(path)
    records = table.to_pylist()
    change(records[1])
    pq.write_table(pa.Table.from_pylist(records, schema=table.schema), path)


PAD = {"type": "text", "text": "<|image_pad|>"}


@pytest.mark.parametrize(
    ("form", "change", "why"),
    [
        ("trl", lambda r: r["images"].pop(), "2 slots for 1 images"),
        ("trl", lambda r: r.update(rejected=[]), "rejected"),
        ("trl", lambda r: r.update(chosen=[]), "messages"),
        ("trl", lambda r: r["prompt"][0].update(role="stranger"), "TRL's .*stranger"),
        ("trl", lambda r: r["prompt"][0]["content"].append(PAD), "control tokens"),
        ("rlaif-v", lambda r: r.update(chosen=""), "chosen"),
        ("rlaif-v", lambda r: r["image"].update(bytes=b"\x89PNG"), "image"),
    ],
)
def test_a_row_that_breaks_its_consumers_rules(tmp_path, processor, form, change, why) -> None:
    rows = export(tmp_path, form)
    change_parquet(tmp_path, change)
    with pytest.raises(ValidationError, match=rf"train, row 1.*: .*{why}"):
        verify(tmp_path, form, rows, processor)


def test_files_that_break_the_rules(tmp_path, processor) -> None:
    rows = export(tmp_path / "trl", "trl")
    next((tmp_path / "trl/data").iterdir()).write_bytes(b"PAR1 cut")
    with pytest.raises(ValidationError, match="datasets"):
        verify(tmp_path / "trl", "trl", rows, processor)
    rows = export(tmp_path / "llava", "llava")
    path = tmp_path / "llava/data/train.json"
    records = json.loads(path.read_text())
    records[2]["conversations"][0]["value"] = "<image> alone"
    path.write_text(json.dumps(records))
    with pytest.raises(ValidationError, match=rf"entry 3 \({ROWS[2].key}\): 1 .* 2 images"):
        verify(tmp_path / "llava", "llava", rows, processor)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"a.image1.png": b"", "b.json": b"{}", "a.json": b"{}"}, r"\.tar: a: .*json"),
        ({"a.json": b"{"}, "a: .*JSONDecodeError"),
        ({"noending": b""}, "noending"),
    ],
)
def test_members_that_are_no_samples(tmp_path, processor, members, why) -> None:
    write_tar(tmp_path / "data/train-000000.tar", *members.items())
    with pytest.raises(ValidationError, match=why):
        verify(tmp_path, "webdataset", 1, processor)
