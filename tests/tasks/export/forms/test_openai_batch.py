"""Requests as OpenAI's batch API and ``vllm run-batch`` take them."""

import base64
import json
from dataclasses import replace

from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from pairwright.schemas.rows import Turn
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.forms import openai_batch
from pairwright.tasks.export.lines import Shape, open_lines
from tests.fixtures.exports import export_some, files_of, lines_of, preference

REQUEST = TypeAdapter(completion_create_params.CompletionCreateParamsNonStreaming)


def test_a_request_has_the_images_in_their_places(tmp_path) -> None:
    prompt = (
        Turn(role="system", text="Be short."),
        Turn(role="user", text="Image 1: <image>\nImage 2: <image>\nWhat differs?"),
    )
    row = replace(preference(1), prompt=prompt)
    export_some(tmp_path, [row], form="openai-batch", model="qwen")
    (request,) = lines_of(tmp_path)
    assert request["custom_id"] == row.key
    assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
    body = request["body"]
    REQUEST.validate_python(body)
    assert body["model"] == "qwen"
    system, user = body["messages"]
    assert system == {"role": "system", "content": [{"type": "text", "text": "Be short."}]}
    kinds = [part["type"] for part in user["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    urls = [part["image_url"]["url"] for part in user["content"][1::2]]
    encoded = [url.removeprefix("data:image/png;base64,") for url in urls]
    assert tuple(map(base64.b64decode, encoded)) == row.images
    assert row.chosen not in json.dumps(body)


def limit(monkeypatch, shape):
    form = replace(openai_batch.FORM, opens=open_lines(openai_batch.to_records, shape))
    monkeypatch.setitem(FORMATS, "openai-batch", form)


def test_files_are_cut_by_rows_and_by_bytes(tmp_path, monkeypatch) -> None:
    limits = openai_batch.LIMITED
    assert (limits.rows_per_file, limits.bytes_per_file) == (50_000, 200_000_000)
    rows = [preference(number) for number in range(5)]
    limit(monkeypatch, Shape(rows_per_file=2))
    tally = export_some(tmp_path / "rows", rows, form="openai-batch")
    sizes = {name: len(data) for name, data in files_of(tmp_path / "rows/data").items()}
    assert sorted(sizes) == [f"train-{number:05d}.jsonl" for number in range(3)]
    lines = lines_of(tmp_path / "rows")
    assert [request["custom_id"] for request in lines] == [row.key for row in rows]
    assert tally.sizes["train"] == (5, sum(sizes.values()))
    longest = max(len(json.dumps(line, ensure_ascii=False)) for line in lines)
    limit(monkeypatch, Shape(bytes_per_file=2 * longest + 2))
    export_some(tmp_path / "bytes", rows, form="openai-batch")
    sizes = [len(data) for data in files_of(tmp_path / "bytes/data").values()]
    assert len(sizes) == 3
    assert max(sizes) <= 2 * longest + 2
