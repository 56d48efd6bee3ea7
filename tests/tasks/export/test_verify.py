"""Exports are read back as their consumers do; the first row that would not train is named."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairwright.flows.building.progress import say_nothing
from pairwright.schemas.errors import ValidationError
from pairwright.tasks.export.export_rows import verify_export
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import Tally
from tests.fixtures.exports import export_some, preference
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
