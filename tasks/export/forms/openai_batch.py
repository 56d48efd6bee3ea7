"""Write requests for OpenAI's batch API and ``vllm run-batch``: a model is asked every prompt.

JSON Lines, one request per preference: its images as data URLs, its question. The answer has the
row's key as ``custom_id``. A file has at most 50,000 requests and 200 MB, the batch API's limits.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    IMAGE_MARK,
    ExportSettings,
    Form,
    check_control,
    check_image,
    ending_of,
    mark_images,
    require,
    split_parts,
)
from pairwright.tasks.export.lines import MediaFolder, Record, Shape, open_lines, read_lines

URL = "/v1/chat/completions"
LIMITED = Shape(rows_per_file=50_000, bytes_per_file=200_000_000)


def to_records(
    row: PreferenceRow,
    media: MediaFolder,  # noqa: ARG001 - as for every form
    setting: ExportSettings,
) -> Iterator[tuple[str, Record]]:
    """Yield a row's request."""
    urls = map(_data_url, row.images)
    messages: list[Record] = []
    for turn in mark_images(row, [IMAGE_MARK]):
        content: list[Record] = []
        for part in split_parts(turn.text):
            if part["type"] == "image":
                content.append({"type": "image_url", "image_url": {"url": next(urls)}})
            else:
                content.append(part)
        messages.append({"role": turn.role, "content": content})
    body = {"model": setting.model, "messages": messages}
    yield row.split, {"custom_id": row.key, "method": "POST", "url": URL, "body": body}


def _data_url(image: bytes) -> str:
    kind = ending_of(image).replace("jpg", "jpeg")
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def _check(folder: Path, record: Record) -> None:  # noqa: ARG001 - as for every form of lines
    fields = ", ".join(sorted(record))
    require(set(record) == {"custom_id", "method", "url", "body"}, f"has {fields}")
    posted = (record["method"], record["url"])
    require(posted == ("POST", URL), f"{posted} is not a chat request")
    body = record["body"]
    require(body["model"], "names no model")
    messages = body["messages"]
    require(messages[-1]["role"] == "user", "the last message is not a question")
    for turn in messages:
        for part in turn["content"]:
            if part["type"] == "image_url":
                _decode_url(part["image_url"]["url"])
            else:
                check_control(part["text"], "prompt")


def _decode_url(url: str) -> None:
    data = url.partition(";base64,")[2]
    check_image(base64.b64decode(data, validate=True))


FORM = Form(
    name="openai-batch",
    about=(
        "requests that ask a model every prompt, for OpenAI's batch API and vllm run-batch: "
        "JSON Lines"
    ),
    cannot=(
        "It holds prompts and images, but no answers: those are requested, "
        "and come back under the rows' keys. "
        "OpenAI's own models take PNG, JPEG, WebP and GIF only."
    ),
    opens=open_lines(to_records, LIMITED),
    check=read_lines(_check),
    use=(
        "```bash\n"
        "vllm run-batch -i FOLDER/data/train-00000.jsonl -o answers.jsonl --model MODEL\n"
        "```"
    ),
    owns=frozenset({"data"}),
    needs_model=True,
)
