"""Write requests for OpenAI's batch API and ``vllm run-batch``, JSON Lines: a model is asked every prompt.

One request per preference: its images as data URLs, its question. The answer has the row's key as
``custom_id``. A file has at most 50,000 requests and 200 MB, the batch API's limits.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    PLACE,
    ExportSettings,
    Form,
    as_parts,
    ending_of,
    need,
    place_images,
)
from pairwright.tasks.export.lines import MediaFolder, Record, Shape, open_lines, read_lines
from pairwright.tasks.images.decode import decode_rgb

URL = "/v1/chat/completions"
LIMITED = Shape(rows_per_file=50_000, bytes_per_file=200_000_000)


def to_records(
    row: PreferenceRow,
    media: MediaFolder,  # noqa: ARG001 - as for every form
    setting: ExportSettings,
) -> Iterator[tuple[str, Record]]:
    """Yield a row's request."""
    shown = ({"type": "image_url", "image_url": {"url": _data_url(image)}} for image in row.images)
    messages = [
        {
            "role": turn.role,
            "content": [
                next(shown) if part["type"] == "image" else part for part in as_parts(turn.text)
            ],
        }
        for turn in place_images(row, [PLACE])
    ]
    body = {"model": setting.model, "messages": messages}
    yield row.split, {"custom_id": row.key, "method": "POST", "url": URL, "body": body}


def _data_url(image: bytes) -> str:
    kind = ending_of(image).replace("jpg", "jpeg")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def _check(folder: Path, record: Record) -> None:  # noqa: ARG001 - as for every form of lines
    need(set(record) == {"custom_id", "method", "url", "body"}, f"has {', '.join(sorted(record))}")
    posted = (record["method"], record["url"])
    need(posted == ("POST", URL), f"{posted} is not a chat request")
    body = record["body"]
    need(body["model"], "names no model")
    need(body["messages"][-1]["role"] == "user", "the last message is not a question")
    parts = [part for turn in body["messages"] for part in turn["content"]]
    for url in (part["image_url"]["url"] for part in parts if part["type"] == "image_url"):
        decode_rgb(base64.b64decode(url.partition(";base64,")[2], validate=True))


FORM = Form(
    name="openai-batch",
    about="requests that ask a model every prompt, for OpenAI's batch API and vllm run-batch: JSON Lines",
    cannot=(
        "It holds prompts and images, but no answers: those are requested, and come back under the rows' keys. "
        "OpenAI's own models take PNG, JPEG, WebP and GIF only."
    ),
    opens=open_lines(to_records, LIMITED),
    check=read_lines(_check),
    use="```bash\nvllm run-batch -i FOLDER/data/train-00000.jsonl -o answers.jsonl --model MODEL\n```",
    owns=frozenset({"data"}),
    needs_model=True,
)
