"""Write requests for OpenAI's batch API and ``vllm run-batch``, JSON Lines: a model is asked every prompt.

One request per preference: its images as data URLs, its question. The answer has the row's key as ``custom_id``. A file
has at most 50,000 requests and 200 MB, the batch API's limits.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import Form, Setting, ending_of, place_images
from pairwright.tasks.export.lines import MediaFolder, Record, Shape, open_lines, read_lines
from pairwright.tasks.export.sample import PLACE, Sample, as_parts, decoded, naming_row, need

URL = "/v1/chat/completions"
LIMITED = Shape(rows_per_file=50_000, bytes_per_file=200_000_000)
KEYS = {"custom_id", "method", "url", "body"}


def to_records(row: PreferenceRow, media: MediaFolder, setting: Setting) -> Iterator[tuple[str, Record]]:  # noqa: ARG001
    """Yield a row's request."""
    shown = ({"type": "image_url", "image_url": {"url": _data_url(image)}} for image in row.images)
    messages = [
        {
            "role": turn.role,
            "content": [next(shown) if part["type"] == "image" else part for part in as_parts(turn.text)],
        }
        for turn in place_images(row, [PLACE])
    ]
    body = {"model": setting.model, "messages": messages}
    yield row.split, {"custom_id": row.key, "method": "POST", "url": URL, "body": body}


def _data_url(image: bytes) -> str:
    kind = ending_of(image).replace("jpg", "jpeg")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def _check(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    most_requests, most_bytes = LIMITED.rows_per_file, LIMITED.bytes_per_file
    for path in sorted((folder / "data").glob("*.jsonl")):
        name, seen = f"data/{path.name}", set[str]()
        need(true=path.stat().st_size <= most_bytes, where=name, why=f"larger than {most_bytes:,} bytes")
        for where, record in read_lines(folder, name):
            need(true=set(record) == KEYS, where=where, why=f"has {', '.join(sorted(record))}")
            need(true=record["custom_id"] not in seen, where=where, why="its custom_id is used twice")
            seen.add(record["custom_id"])
            need(true=len(seen) <= most_requests, where=where, why=f"more than {most_requests:,} requests")
            yield _sample(where, record)


def _sample(where: str, record: Record) -> Sample:
    posted = (record["method"], record["url"])
    need(true=posted == ("POST", URL), where=where, why=f"{posted} is not a chat request")
    with naming_row(where, "no messages"):
        body = record["body"]
        need(true=bool(body["model"]), where=where, why="names no model")
        parts = [part for turn in body["messages"] for part in turn["content"]]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        images = [decoded(base64.b64decode(url.partition(";base64,")[2], validate=True), where) for url in urls]
        slots = {"image_url": {"type": "image"}}
        messages = [
            {"role": turn["role"], "content": [slots.get(part["type"], part) for part in turn["content"]]}
            for turn in body["messages"]
        ]
    need(true=messages[-1]["role"] == "user", where=where, why="the last message is not a question")
    return Sample(where=where, messages=messages, images=images, answers=[])


FORM = Form(
    name="openai-batch",
    about="requests that ask a model every prompt, for OpenAI's batch API and vllm run-batch: JSON Lines",
    cannot=(
        "It holds prompts and images, but no answers: those are requested, and come back under the rows' keys. "
        "OpenAI's own models take PNG, JPEG, WebP and GIF only."
    ),
    opens=open_lines(to_records, LIMITED),
    check=_check,
    use="```bash\nvllm run-batch -i FOLDER/data/train-00000.jsonl -o answers.jsonl --model MODEL\n```",
    owns=frozenset({"data"}),
    needs_model=True,
)
