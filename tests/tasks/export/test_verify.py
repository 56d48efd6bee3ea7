"""Exports are read back as their consumers do, and the first row that would not train is named."""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairwright.flows.building.progress import say_nothing
from pairwright.schemas.errors import ValidationError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.export_rows import verify_export
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import Tally
from pairwright.tasks.training.load_model import load_processor
from tests.fixtures.exports import export_some, preference
from tests.fixtures.families_of_models import write_qwen2_vl

ROWS = [preference(number, rejected_images=2, negatives=["no"]) for number in range(3)]


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory):
    return load_processor(write_qwen2_vl(tmp_path_factory.mktemp("qwen")))


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def export(folder: Path, form: str, rows: list[PreferenceRow] = ROWS) -> int:
    """Export rows, and return how many there are in the form."""
    if form == "llava":
        rows = [replace(row, rejected="") for row in rows]
    setting = {"model": "m"} if FORMATS[form].needs_model else {}
    return sum(rows for rows, _ in export_some(folder, rows, form=form, **setting).sizes.values())


def verify(folder: Path, form: str, rows: int, processor) -> None:
    verify_export(folder, FORMATS[form], processor, Tally(sizes={"train": (rows, 0)}), say_nothing)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_is_good_and_complete(tmp_path: Path, processor, form: str) -> None:
    rows = export(tmp_path / "out", form)
    assert rows >= 3
    verify(tmp_path / "out", form, rows, processor)
    with pytest.raises(ValidationError, match=rf"\b{rows + 1} rows .*\b{rows}\b"):
        verify(tmp_path / "out", form, rows + 1, processor)


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "rlaif-v"])
def test_a_broken_image_names_its_row(tmp_path: Path, processor, form: str) -> None:
    broken = replace(ROWS[1], images=(ROWS[1].images[0], ROWS[1].images[1][:200]))
    rows = export(tmp_path / "out", form, [ROWS[0], broken, ROWS[2]])
    named = {
        "hf": r"train, row 1: .*image",
        "trl": r"train, row 1: .*image",
        "llamafactory": r"data/train.jsonl, line 2: .*image",
        "ms-swift": r"data/train-images.jsonl, line 2: .*image",
        "llava": rf"data/train.json, entry 2 \({broken.key}\): .*image",
        "webdataset": rf"data/train-000000.tar: {broken.key}: .*image",
        "openai-batch": r"data/train-00000.jsonl, line 2: .*image",
    }
    with pytest.raises(ValidationError, match=named[form]):
        verify(tmp_path / "out", form, rows, processor)


def change_line(path: Path, number: int, change: Callable[[dict], object]) -> None:
    lines = path.read_text().splitlines()
    record = json.loads(lines[number])
    change(record)
    lines[number] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("form", "change", "why"),
    [
        ("llamafactory", lambda r: r.pop("rejected"), "rejected"),
        ("llamafactory", lambda r: r["images"].pop(), "2 <image> for 1 images"),
        ("llamafactory", lambda r: r["images"].__setitem__(0, "../x.png"), r"\.\./x.png"),
        ("llamafactory", lambda r: r["images"].__setitem__(0, "images/x.png"), "images/x.png"),
        ("llamafactory", lambda r: r["chosen"].update({"from": "human"}), "assistant"),
        ("llamafactory", lambda r: r["rejected"].update(value=" "), "rejected"),
        (
            "llamafactory",
            lambda r: r["conversations"].append({"from": "gpt", "value": "a"}),
            "turns",
        ),
        ("llamafactory", lambda r: r.update(conversations=[]), "turns"),
        (
            "ms-swift",
            lambda r: r.update(rejected_response=r["messages"][-1]["content"]),
            "rejected .*chosen",
        ),
        ("ms-swift", lambda r: r["messages"].pop(), "answer"),
        ("ms-swift", lambda r: r.pop("rejected_response"), "rejected_images"),
        ("openai-batch", lambda r: r.update(url="/v1/completions"), "'/v1/completions'"),
        ("openai-batch", lambda r: r["body"].update(model=""), "model"),
        ("openai-batch", lambda r: r.pop("method"), "body, custom_id, url"),
    ],
)
def test_a_line_that_breaks_its_consumers_rules(
    tmp_path: Path, processor, form: str, change: Callable[[dict], object], why: str
) -> None:
    rows = export(tmp_path / "out", form)
    name = "train-00000" if form == "openai-batch" else "train"
    change_line(tmp_path / f"out/data/{name}.jsonl", 1, change)
    with pytest.raises(ValidationError, match=rf"data/{name}.jsonl, line 2: .*{why}"):
        verify(tmp_path / "out", form, rows, processor)


def change_parquet(folder: Path, change: Callable[[dict], object]) -> None:
    (path,) = (folder / "data").iterdir()
    table = pq.read_table(path)
    records = table.to_pylist()
    change(records[1])
    pq.write_table(pa.Table.from_pylist(records, schema=table.schema), path)


@pytest.mark.parametrize(
    ("form", "change", "why"),
    [
        ("trl", lambda r: r["images"].pop(), "2 slots for 1 images"),
        ("trl", lambda r: r.update(rejected=[]), "rejected"),
        ("trl", lambda r: r.update(chosen=[]), "messages"),
        ("trl", lambda r: r["prompt"][0].update(role="stranger"), "TRL's .*stranger"),
        (
            "trl",
            lambda r: r["prompt"][0]["content"].append({"type": "text", "text": "<|image_pad|>"}),
            "TRL's",
        ),
        ("rlaif-v", lambda r: r.update(chosen=""), "chosen"),
        ("rlaif-v", lambda r: r["image"].update(bytes=b"\x89PNG"), "image"),
    ],
)
def test_a_row_that_breaks_its_consumers_rules(
    tmp_path: Path, processor, form: str, change: Callable[[dict], object], why: str
) -> None:
    rows = export(tmp_path / "out", form)
    change_parquet(tmp_path / "out", change)
    with pytest.raises(ValidationError, match=rf"train, row 1.*: .*{why}"):
        verify(tmp_path / "out", form, rows, processor)


def test_a_folder_that_datasets_cannot_load(tmp_path: Path, processor) -> None:
    rows = export(tmp_path / "out", "trl")
    next((tmp_path / "out/data").iterdir()).write_bytes(b"PAR1 cut")
    with pytest.raises(ValidationError, match="datasets"):
        verify(tmp_path / "out", "trl", rows, processor)


def test_a_conversation_that_breaks_the_rules(tmp_path: Path, processor) -> None:
    rows = export(tmp_path / "out", "llava")
    path = tmp_path / "out/data/train.json"
    records = json.loads(path.read_text())
    records[2]["conversations"][0]["value"] = "<image> alone"
    path.write_text(json.dumps(records))
    with pytest.raises(ValidationError, match=rf"entry 3 \({ROWS[2].key}\): 1 .* 2 images"):
        verify(tmp_path / "out", "llava", rows, processor)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"a.image1.png": b"", "b.json": b"{}", "a.json": b"{}"}, r"\.tar: a: .*json"),
        ({"a.json": b"{"}, "a: .*JSONDecodeError"),
        ({"noending": b""}, "noending"),
    ],
)
def test_members_that_are_no_samples(
    tmp_path: Path, processor, members: dict[str, bytes], why: str
) -> None:
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data/train-000000.tar", "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(ValidationError, match=why):
        verify(tmp_path, "webdataset", 1, processor)
