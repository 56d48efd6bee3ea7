"""Measure asking a served model: throughput beside ``vllm bench serve`` and a pool of threads.

Run with ``make bench BENCH=serve``, or ``python -m tests.bench.bench_serve``; takes about five
minutes and 6 GB. Needs ``.venv-vllm``. One real vLLM serves a tiny random Qwen2-VL, on the same
cores as the clients; it never ends an answer, so that all have the same number of tokens. The sides
take turns, after one that does not count, and the best turn of each is told. After the first turn
all pictures are in the server's caches, for all sides: it has the least to do then, which is
hardest on its clients. Prompts, images (two per prompt) and sampling are the same: ``ask_rows``;
``vllm bench serve`` with as many requests at once, its own time of the run alone; 16 threads over
the ``openai`` client.
"""

import base64
import io
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pairwright.prompts.difference_prompts import draw_verbs, instruct
from pairwright.schemas.rows import PairRow, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Question, seed_of
from pairwright.tasks.serving.client import client_of
from pairwright.tasks.serving.write_request import UNTOUCHED, image_url
from tests.fixtures.rows import row_of
from tests.fixtures.vllm_server import ENVIRONMENT, VLLM, RunningVllm, running_vllm

ROWS, TOKENS, AT_ONCE, THREADS, TURNS = 256, 128, 64, 16, 4
SIZE = (224, 168)
FLAGS = ("--limit-mm-per-prompt", '{"image": 2}')


@dataclass(frozen=True)
class Asked:
    """What is asked of one pair."""

    row: PairRow
    text: str
    images: tuple[bytes, bytes]

    @property
    def question(self) -> Question:
        return Question(
            prompt="difference_from_captions",
            text=self.text,
            images=self.images,
            max_tokens=TOKENS,
            seed=seed_of(self.row.key, "difference_from_captions", seed=0),
        )


def make_asked(count: int) -> list[Asked]:
    """Return pairs of small pictures, each another one, with captions of a few words."""
    rng = np.random.default_rng(0)
    return [_asked(number, (_picture(rng), _picture(rng))) for number in range(count)]


def _asked(number: int, images: tuple[bytes, bytes]) -> Asked:
    captions = (
        f"a table with {number} cups and a red bowl on it",
        f"a table with {number + 1} cups and a blue bowl",
    )
    text = instruct(draw_verbs(random.Random(number)), captions=captions).text
    return Asked(_row(number), text, images)


def _row(number: int) -> PairRow:
    key = make_key("bench", number)
    return row_of(PairRow, "bench", number, source=key, first=key, second=key)


def _picture(rng: np.random.Generator) -> bytes:
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    sink = io.BytesIO()
    coarse.resize(SIZE, Image.Resampling.BICUBIC).save(sink, "JPEG", quality=90)
    return sink.getvalue()


def write_endless_model(folder: Path) -> Path:
    """Write a tiny Qwen2-VL that never ends an answer: the first feature, which all tokens have,
    speaks against it."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from tests.fixtures.served_models import write_qwen2_vl

    disable_progress_bar()
    write_qwen2_vl(folder)
    vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
    weights = load_file(folder / "model.safetensors")
    for token in ("<|im_end|>", "<|endoftext|>"):
        weights["lm_head.weight"][vocabulary[token]] = 0
        weights["lm_head.weight"][vocabulary[token], 0] = -100
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def ask_ours(asked: Sequence[Asked], config: ChatConfig) -> float:
    """Ask as a stage does; return the seconds."""
    by_key = {one.row.key: one.question for one in asked}
    tokens: list[int] = []

    async def work(row: PairRow, chat: Chat) -> PairRow:
        answer = await chat.ask(by_key[row.key])
        tokens.append(answer.served.completion_tokens)
        return row

    start = time.perf_counter()
    rows = list(ask_rows((one.row for one in asked), work, config))
    _check(tokens, sum(isinstance(row, PairRow) for row in rows))
    return time.perf_counter() - start


def _check(tokens: Sequence[int], count: int) -> None:
    if list(tokens) != [TOKENS] * count or count != ROWS:
        raise SystemExit(
            f"{len(tokens)} of {ROWS} requests were answered, with {sum(tokens)} tokens"
        )


def ask_in_threads(asked: Sequence[Asked], config: ChatConfig) -> float:
    """Ask as a plain script does; return the seconds."""
    from openai import OpenAI

    with (
        OpenAI(base_url=config.endpoint[0], api_key="none") as client,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        start = time.perf_counter()
        _check(list(pool.map(partial(_ask_plainly, client, config), asked)), len(asked))
        return time.perf_counter() - start


def _ask_plainly(client: Any, config: ChatConfig, asked: Asked) -> int:
    urls = [f"data:image/jpeg;base64,{base64.b64encode(image).decode()}" for image in asked.images]
    answer = client.chat.completions.create(
        model=config.model,
        messages=[{"role": "user", "content": _content(urls, asked.text)}],
        max_tokens=TOKENS,
        temperature=config.temperature,
        top_p=config.top_p,
        seed=asked.question.seed,
        extra_body=UNTOUCHED,
    )
    return answer.usage.completion_tokens


def _content(urls: Sequence[str], text: str) -> list[dict[str, Any]]:
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
        {"type": "text", "text": text},
    ]


def ask_by_vllm(
    asked: Sequence[Asked], config: ChatConfig, *, server: RunningVllm, folder: Path
) -> float:
    """Run ``vllm bench serve`` on the same requests; its clock counts, from the first request
    on."""
    lines = [
        {
            "content": _content(
                [image_url(image, config.max_pixels) for image in one.images], one.text
            )
        }
        for one in asked
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sampling = {"temperature": config.temperature, "top_p": config.top_p, "seed": 1, **UNTOUCHED}
    command = [
        *(
            str(VLLM),
            "bench",
            "serve",
            "--backend",
            "openai-chat",
            "--endpoint",
            "/v1/chat/completions",
        ),
        *(
            "--base-url",
            server.address,
            "--model",
            config.model,
            "--tokenizer",
            str(folder / config.model),
        ),
        *(
            "--dataset-name",
            "custom_image",
            "--dataset-path",
            str(folder / "asked.jsonl"),
            "--disable-shuffle",
        ),
        *("--num-prompts", str(len(asked)), "--custom-output-len", str(TOKENS), "--ignore-eos"),
        *(
            "--max-concurrency",
            str(config.max_concurrency),
            "--extra-body",
            json.dumps(sampling),
            "--disable-tqdm",
        ),
        *(
            "--save-result",
            "--save-detailed",
            "--result-dir",
            str(folder),
            "--result-filename",
            "result.json",
        ),
    ]
    # it sends no request twice, and a busy machine may close a connection that it has just taken
    for _ in range(3):
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, check=False
        )
        if done.returncode:
            raise SystemExit(
                f"vllm bench serve ended with {done.returncode}:\n{done.stderr[-3000:]}"
            )
        result = json.loads((folder / "result.json").read_text())
        if result["completed"] == len(asked):
            if result["total_output_tokens"] != len(asked) * TOKENS:
                raise SystemExit(f"vllm bench serve: {result['total_output_tokens']} tokens")
            return result["duration"]
    error = next(filter(None, result["errors"]), "")
    raise SystemExit(
        f"vllm bench serve: {result['completed']} of {len(asked)} requests were answered:\n{error}"
    )


def bench_throughput(server: RunningVllm, asked: Sequence[Asked], folder: Path) -> None:
    """Print requests per second of each side, the best of its turns, and how many times as many
    ours are."""
    config = ChatConfig(
        endpoint=(server.endpoint,),
        model=server.model,
        structured_output="vllm",
        max_concurrency=AT_ONCE,
    )
    sides = {
        "ask_rows": partial(ask_ours, asked, config),
        f"vllm bench serve, {AT_ONCE} at once (target: at least 0.9)": partial(
            ask_by_vllm, asked, config, server=server, folder=folder
        ),
        f"openai, {THREADS} threads (target: at least 2)": partial(ask_in_threads, asked, config),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(TURNS + 1):
        for name, ask in sides.items():
            took = ask()
            seconds[name] += [took] if turn else []  # the first warms up
    found = client_of(config).endpoints.room
    print(
        f"requests per second: {len(asked)}, of two images and {TOKENS} tokens; ask_rows has "
        f"{found} at once"
    )
    for name, own in seconds.items():
        print(
            f"  {name:<64} {len(asked) / min(own):9.1f} {min(own) / min(seconds['ask_rows']):7.3f}",
            flush=True,
        )


def main() -> None:
    """Serve the model, and measure."""
    with tempfile.TemporaryDirectory(prefix="pairwright-bench-") as path:
        with ProcessPoolExecutor(
            1, get_context("spawn")
        ) as alone:  # PyTorch stays out of the clients' process
            folder = alone.submit(write_endless_model, Path(path) / "qwen2-vl").result()
        asked = make_asked(ROWS)
        with running_vllm(folder, *FLAGS) as server:
            bench_throughput(server, asked, folder.parent)


if __name__ == "__main__":
    main()
