"""Requests as OpenAI's batch API and ``vllm run-batch`` take them."""

import base64
import json
from dataclasses import replace
from pathlib import Path

from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from pairwright.schemas.rows import Turn
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.forms import openai_batch
from pairwright.tasks.export.lines import Shape, open_lines
from tests.fixtures.exports import export_some, preference


def requests(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for path in sorted((folder / "data").iterdir())
        for line in path.read_text().splitlines()
    ]


def test_a_request_has_the_images_in_their_places(tmp_path: Path) -> None:
    row = replace(preference(1), prompt=(
        Turn(role="system", text="Be short."),
        Turn(role="user", text="Image 1: <image>\nImage 2: <image>\nWhat differs?"),
    ))  # fmt: skip
    export_some(tmp_path / "out", [row], form="openai-batch", model="qwen")
    (request,) = requests(tmp_path / "out")
    assert (request["custom_id"], request["method"], request["url"]) == (
        row.key,
        "POST",
        "/v1/chat/completions",
    )
    body = request["body"]
    TypeAdapter(completion_create_params.CompletionCreateParamsNonStreaming).validate_python(body)
    assert body["model"] == "qwen"
    system, asked = body["messages"]
    assert system == {"role": "system", "content": [{"type": "text", "text": "Be short."}]}
    assert [part["type"] for part in asked["content"]] == [
        "text",
        "image_url",
        "text",
        "image_url",
        "text",
    ]
    urls = [part["image_url"]["url"] for part in asked["content"] if part["type"] == "image_url"]
    assert [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls] == list(
        row.images
    )
    assert row.chosen not in json.dumps(body)


def limit(monkeypatch, shape: Shape) -> None:
    form = replace(openai_batch.FORM, opens=open_lines(openai_batch.to_records, shape))
    monkeypatch.setitem(FORMATS, "openai-batch", form)


def test_files_have_the_limits_of_the_batch_api(tmp_path: Path, monkeypatch) -> None:
    assert (openai_batch.LIMITED.rows_per_file, openai_batch.LIMITED.bytes_per_file) == (
        50_000,
        200_000_000,
    )
    limit(monkeypatch, Shape(rows_per_file=2))
    rows = [preference(number) for number in range(5)]
    tally = export_some(tmp_path / "rows", rows, form="openai-batch", model="m")
    names = sorted(path.name for path in (tmp_path / "rows/data").iterdir())
    assert names == ["train-00000.jsonl", "train-00001.jsonl", "train-00002.jsonl"]
    assert [request["custom_id"] for request in requests(tmp_path / "rows")] == [
        row.key for row in rows
    ]
    assert tally.sizes["train"] == (
        5,
        sum(path.stat().st_size for path in (tmp_path / "rows/data").iterdir()),
    )
    longest = max(
        len(json.dumps(request, ensure_ascii=False)) for request in requests(tmp_path / "rows")
    )
    limit(monkeypatch, Shape(bytes_per_file=2 * longest + 2))
    export_some(tmp_path / "bytes", rows, form="openai-batch", model="m")
    assert (
        max(path.stat().st_size for path in (tmp_path / "bytes/data").iterdir()) <= 2 * longest + 2
    )
