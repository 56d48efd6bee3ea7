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

from pairwright.flows.progress import say_nothing
from pairwright.schemas.errors import ConfigError, ValidationError
from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.verify import Verifier, load_processor, make_ruler
from tests.fixtures.exports import export_some, preference
from tests.fixtures.families_of_models import write_qwen2_vl

ROWS = [preference(number, rejected_images=2, negatives=["no"]) for number in range(3)]
LINES = ("llamafactory", "ms-swift", "openai-batch")


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory):
    return load_processor(str(write_qwen2_vl(tmp_path_factory.mktemp("qwen"))))


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


def verify(folder: Path, form: str, rows: int, processor, max_length: int = 0) -> int:
    ruler = make_ruler(processor, max_length) if max_length else None
    return Verifier(form=FORMATS[form], processor=processor, ruler=ruler).verify(folder, rows, say_nothing)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_is_good_and_its_length_is_known(tmp_path: Path, processor, form: str) -> None:
    rows = export(tmp_path / "out", form)
    assert verify(tmp_path / "out", form, rows, processor) == rows >= 3
    assert verify(tmp_path / "out", form, rows, processor, max_length=300) == rows
    with pytest.raises(ValidationError, match=r"tokens, .*\b20\b"):
        verify(tmp_path / "out", form, rows, processor, max_length=20)
    with pytest.raises(ValidationError, match=rf"\b{rows + 1} rows .*\b{rows}\b"):
        verify(tmp_path / "out", form, rows + 1, processor)


def test_the_length_is_that_of_the_whole_row_with_its_images(tmp_path: Path, processor) -> None:
    row = replace(preference(1), chosen="yes", rejected="Rather not, as far as can be seen.")
    export(tmp_path / "out", "trl", [row])
    # What the model would be given, counted by hand: text by the tokenizer, and 4 tokens for each image of 56 x 56.
    text = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "<|vision_start|><|vision_end|><|vision_start|><|vision_end|>What differs?<|im_end|>\n"
        f"<|im_start|>assistant\n{row.rejected}<|im_end|>\n"
    )
    length = len(processor.tokenizer(text)["input_ids"]) + 2 * 4
    assert verify(tmp_path / "out", "trl", 1, processor, max_length=length) == 1
    with pytest.raises(ValidationError, match=rf"train, row 0: {length} tokens, .*\b{length - 1}\b"):
        verify(tmp_path / "out", "trl", 1, processor, max_length=length - 1)


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
        "webdataset": rf"data/train-000000.tar, {broken.key}: .*image",
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
        ("llamafactory", lambda r: r["conversations"].append({"from": "gpt", "value": "a"}), "turns"),
        ("llamafactory", lambda r: r["chosen"].update(value="a <video>"), "media"),
        ("llamafactory", lambda r: r.update(conversations=[]), "messages"),
        ("ms-swift", lambda r: r.update(rejected_response=r["messages"][-1]["content"]), "rejected .*chosen"),
        ("ms-swift", lambda r: r["messages"].pop(), "answer"),
        ("ms-swift", lambda r: r.pop("rejected_response"), "first line"),
        ("openai-batch", lambda r: r.update(custom_id=ROWS[0].key), "custom_id"),
        ("openai-batch", lambda r: r.update(url="/v1/completions"), "'/v1/completions'"),
        ("openai-batch", lambda r: r["body"].update(model=""), "model"),
        ("openai-batch", lambda r: r.pop("method"), "body, custom_id, url"),
    ],
)  # fmt: skip
def test_a_line_that_breaks_its_consumers_rules(
    tmp_path: Path, processor, form: str, change: Callable[[dict], object], why: str
) -> None:
    rows = export(tmp_path / "out", form)
    name = "train-00000" if form == "openai-batch" else "train"
    change_line(tmp_path / f"out/data/{name}.jsonl", 1, change)
    with pytest.raises(ValidationError, match=rf"data/{name}.jsonl, line 2: .*{why}"):
        verify(tmp_path / "out", form, rows, processor)


def test_all_lines_of_a_file_must_reject_the_same_kind_of_thing(tmp_path: Path, processor) -> None:
    rows = export(tmp_path / "out", "ms-swift")
    data = tmp_path / "out/data"
    texts, images = data / "train.jsonl", data / "train-images.jsonl"
    texts.write_text(texts.read_text() + images.read_text())
    with pytest.raises(ValidationError, match=r"train\.jsonl, line 4"):
        verify(tmp_path / "out", "ms-swift", rows, processor)


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
        ("trl", lambda r: r["prompt"][0]["content"].append({"type": "text", "text": "<|image_pad|>"}), "TRL's"),
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
        ({"a.image1.png": b"", "b.json": b"{}", "a.json": b"{}"}, r"\.tar, a: .*json"),
        ({"a.json": b"{"}, "a: .*JSONDecodeError"),
        ({"a.json": b"{}", "a.image1.exe": b""}, "a: image1.exe"),
        ({"noending": b""}, "noending"),
    ],
)
def test_members_that_break_the_naming_rules(tmp_path: Path, processor, members: dict[str, bytes], why: str) -> None:
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data/train-000000.tar", "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(ValidationError, match=why):
        verify(tmp_path, "webdataset", 1, processor)


def test_a_control_token_in_a_text_is_found_by_the_processor(tmp_path: Path, processor) -> None:
    row = replace(preference(1), prompt=(Turn(role="user", text="What differs? <|image_pad|>"),))
    rows = export(tmp_path / "out", "llamafactory", [row])
    assert verify(tmp_path / "out", "llamafactory", rows, None) == 1
    with pytest.raises(ValidationError, match=r"line 1: .*processor"):
        verify(tmp_path / "out", "llamafactory", rows, processor, max_length=500)


def test_a_limit_must_be_known(processor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_ruler(processor, 7).max_length == 7
    monkeypatch.setattr(processor.tokenizer, "model_max_length", 2048)
    assert make_ruler(processor, 0).max_length == 2048
    monkeypatch.setattr(processor.tokenizer, "model_max_length", int(1e30))  # what those without a limit have
    with pytest.raises(ConfigError, match="--max-length"):
        make_ruler(processor, 0)


def test_a_processor_that_is_not_there(tmp_path: Path) -> None:
    from pairwright.schemas.errors import ModelError

    with pytest.raises(ModelError, match="--processor"):
        load_processor(str(tmp_path / "nowhere"))
