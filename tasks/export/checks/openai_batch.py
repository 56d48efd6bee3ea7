"""Read requests by the rules of the batch API: keys that differ, method, address and body, files of limited size."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.tasks.export.checks.json_lines import read_lines
from pairwright.tasks.export.sample import Sample, decoded, naming_row, need

MOST_BYTES, MOST_REQUESTS = 200_000_000, 50_000
KEYS = {"custom_id", "method", "url", "body"}


def read_samples(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the prompts of every file's requests.

    Raises:
        BrokenRowError: a request would be refused.
    """
    for path in sorted((folder / "data").glob("*.jsonl")):
        name, seen = f"data/{path.name}", set[str]()
        need(true=path.stat().st_size <= MOST_BYTES, where=name, why=f"larger than {MOST_BYTES:,} bytes")
        for where, record in read_lines(folder, name):
            need(true=set(record) == KEYS, where=where, why=f"has {', '.join(sorted(record))}")
            need(true=record["custom_id"] not in seen, where=where, why="its custom_id came before")
            seen.add(record["custom_id"])
            need(true=len(seen) <= MOST_REQUESTS, where=where, why=f"more than {MOST_REQUESTS:,} requests")
            yield _sample(where, record)


def _sample(where: str, record: Mapping[str, Any]) -> Sample:
    posted = (record["method"], record["url"])
    need(true=posted == ("POST", "/v1/chat/completions"), where=where, why=f"{posted} is no chat request")
    with naming_row(where, "no messages"):
        body = record["body"]
        need(true=bool(body["model"]), where=where, why="names no model")
        parts = [part for message in body["messages"] for part in message["content"]]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        images = [decoded(base64.b64decode(url.partition(";base64,")[2], validate=True), where) for url in urls]
        messages = [
            {"role": message["role"], "content": [_part(part) for part in message["content"]]}
            for message in body["messages"]
        ]
    need(true=messages[-1]["role"] == "user", where=where, why="the last message is no question")
    return Sample(where=where, messages=messages, images=images, answers=[])


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "image"} if part["type"] == "image_url" else part
