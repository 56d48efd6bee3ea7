"""Write requests, JSON Lines as OpenAI's batch API and ``vllm run-batch`` take them: a model is asked every prompt.

One request per preference: its images as data URLs, its question. The answer comes back under the row's key, which is
the request's ``custom_id``. A file has at most 50,000 requests and 200 MB, the batch API's limits.
"""

import base64
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.export.checks.openai_batch import read_samples
from pairwright.tasks.export.form import Form, Setting, Sizes
from pairwright.tasks.export.hf_schema import ending_of
from pairwright.tasks.export.place_images import PLACE, place_images
from pairwright.tasks.export.write_lines import LineWriters, Shape

URL = "/v1/chat/completions"
LIMITED = Shape(rows_per_file=50_000, bytes_per_file=200_000_000)


@dataclass(frozen=True)
class BatchWriter:
    """Write the prompts of preferences as requests."""

    lines: LineWriters
    model: str

    def add(self, row: PreferenceRow) -> None:
        """Write a row's request.

        Raises:
            UnheldError: words of its prompt stand for images.
        """
        urls = iter([_data_url(image) for image in row.images])
        messages = [{"role": turn.role, "content": list(_content(turn, urls))} for turn in place_images(row, [PLACE])]
        body = {"model": self.model, "messages": messages}
        self.lines.add(row.split, {"custom_id": row.key, "method": "POST", "url": URL, "body": body})

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.lines.sizes()


def _content(turn: Turn, urls: Generator[str] | Any) -> Generator[dict[str, Any]]:
    for number, text in enumerate(turn.text.split(PLACE)):
        if number:
            yield {"type": "image_url", "image_url": {"url": next(urls)}}
        if text:
            yield {"type": "text", "text": text}


def _data_url(image: bytes) -> str:
    ending = ending_of(image)
    kind = {"jpg": "jpeg"}.get(ending, ending)
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[BatchWriter]:
    """Give what writes into a folder."""
    with LineWriters(folder / "data", LIMITED) as lines:
        yield BatchWriter(lines, setting.model)


FORM = Form(
    name="openai-batch",
    about="requests that ask a model every prompt, for OpenAI's batch API and vllm run-batch: JSON Lines",
    cannot=(
        "It holds prompts and images, no answers: those are what is asked for, and come back under the rows' keys. "
        "OpenAI's own models take PNG, JPEG, WebP and GIF only."
    ),
    opens=opened,
    check=read_samples,
    use="```bash\nvllm run-batch -i FOLDER/data/train-00000.jsonl -o answers.jsonl --model MODEL\n```",
    owns=frozenset({"data"}),
    needs_model=True,
)
