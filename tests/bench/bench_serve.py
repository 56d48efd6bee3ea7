"""Measure asking a served model: throughput, what a grammar costs, and the client's memory.

Run with ``make bench BENCH=serve``, or ``python -m tests.bench.bench_serve``; takes about ten minutes and 6 GB. Needs
``.venv-vllm``. One real vLLM serves a tiny random Qwen2-VL, on the same cores as the clients; it never ends an answer,
so that all have the same number of tokens. The sides take turns, after one that does not count, and the best turn of
each is told. After the first turn all pictures are in the server's caches, for all sides: it has the least to do then,
which is hardest on its clients.

1. Requests per second for the same prompts and images (two per prompt), with the same sampling: ``ask_rows``; ``vllm
   bench serve`` with as many requests at once, its own time of the run alone; a plain loop of 16 threads over the
   ``openai`` client.
2. Tokens per second of ``ask_rows`` with NAMC's template as a grammar and without.
3. Resident memory of the client after 1,000, 10,000 and 100,000 rows, against a server that says the same each time.
"""

import asyncio
import base64
import gc
import io
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pairwright.prompts.differences import difference_regex, draw_verbs, instruct
from pairwright.schemas.rows import PairRow, make_key
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.client import client_of, close_clients
from pairwright.tasks.serving.write_request import UNTOUCHED, image_url
from tests.fixtures.vllm_server import ENVIRONMENT, VLLM, RunningVllm, running_vllm

ROWS, TOKENS, AT_ONCE, THREADS, TURNS = 256, 128, 64, 16, 4
SIZE = (224, 168)
MARKS = (1_000, 10_000, 100_000)
FLAGS = ("--limit-mm-per-prompt", '{"image": 2}')


@dataclass(frozen=True)
class Asked:
    """Be what is asked of one pair."""

    row: PairRow
    text: str
    images: tuple[bytes, bytes]

    @property
    def question(self) -> Question:
        return Question(
            prompt="difference_from_captions", text=self.text, images=self.images, max_tokens=TOKENS,
            seed=seed_of(self.row.key, "difference_from_captions", seed=0),
        )  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """Be what one turn of one side gave."""

    requests: int
    tokens: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def make_asked(count: int) -> list[Asked]:
    """Return pairs of small pictures, each another one, with captions of a few words."""
    rng = np.random.default_rng(0)
    return [_asked(number, (_picture(rng), _picture(rng))) for number in range(count)]


def _asked(number: int, images: tuple[bytes, bytes]) -> Asked:
    captions = (f"a table with {number} cups and a red bowl on it", f"a table with {number + 1} cups and a blue bowl")
    text = instruct(draw_verbs(random.Random(number)), captions=captions).text
    return Asked(_row(number), text, images)


def _row(number: int) -> PairRow:
    key = make_key("bench", number)
    return PairRow(
        key=key, source_key=key, subject=key, first=key, second=key, origin="given", anchor="", cluster=-1
    )  # fmt: skip


def _picture(rng: np.random.Generator) -> bytes:
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    sink = io.BytesIO()
    coarse.resize(SIZE, Image.Resampling.BICUBIC).save(sink, "JPEG", quality=90)
    return sink.getvalue()


def write_endless_model(folder: Path) -> Path:
    """Write a tiny Qwen2-VL that never ends an answer: the first feature, which all tokens have, speaks against it."""
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


def config_of(server: RunningVllm) -> ChatConfig:
    """Return our side's configuration."""
    return ChatConfig(
        endpoint=(server.endpoint,), model=server.model, structured_output="vllm", max_concurrency=AT_ONCE
    )


def ask_ours(asked: Sequence[Asked], config: ChatConfig, *, grammar: Grammar | None = None) -> Rate:
    """Ask as a stage does."""
    by_key = {one.row.key: one.question for one in asked}
    tokens: list[int] = []

    async def work(row: PairRow, chat: Chat) -> PairRow:
        question = by_key[row.key]
        answer = await chat.ask(replace(question, grammar=grammar))
        tokens.append(answer.served.completion_tokens)
        return row

    start = time.perf_counter()
    rows = list(ask_rows((one.row for one in asked), work, config))
    return _rate([row for row in rows if isinstance(row, PairRow)], tokens, time.perf_counter() - start, len(asked))


def _rate(answered: Sequence[object], tokens: Sequence[int], seconds: float, count: int) -> Rate:
    if len(answered) != count or len(tokens) != count:
        raise SystemExit(f"only {len(answered)} of {count} requests were answered")
    return Rate(count, sum(tokens), seconds)


def ask_in_threads(asked: Sequence[Asked], config: ChatConfig) -> Rate:
    """Ask as a plain script does."""
    from openai import OpenAI

    with OpenAI(base_url=config.endpoint[0], api_key="none") as client, ThreadPoolExecutor(THREADS) as pool:
        start = time.perf_counter()
        tokens = list(pool.map(partial(_ask_plainly, client, config), asked))
        return _rate(tokens, tokens, time.perf_counter() - start, len(asked))


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
    return [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": text}]


def ask_by_vllm(asked: Sequence[Asked], config: ChatConfig, *, server: RunningVllm, folder: Path) -> Rate:
    """Run ``vllm bench serve`` on the same requests; its clock counts, from the first request on."""
    lines = [
        {"content": _content([image_url(image, config.pixels) for image in one.images], one.text)} for one in asked
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sampling = {"temperature": config.temperature, "top_p": config.top_p, "seed": 1, **UNTOUCHED}
    command = [
        *(str(VLLM), "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", server.address, "--model", config.model, "--tokenizer", str(folder / config.model)),
        *("--dataset-name", "custom_image", "--dataset-path", str(folder / "asked.jsonl"), "--disable-shuffle"),
        *("--num-prompts", str(len(asked)), "--custom-output-len", str(TOKENS), "--ignore-eos"),
        *("--max-concurrency", str(config.concurrency), "--extra-body", json.dumps(sampling), "--disable-tqdm"),
        *("--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", "result.json"),
    ]
    for _ in range(3):  # it sends no request twice, and a busy machine may close a connection that it has just taken
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENVIRONMENT, check=False)
        if done.returncode:
            raise SystemExit(f"vllm bench serve ended with {done.returncode}:\n{done.stderr[-3000:]}")
        result = json.loads((folder / "result.json").read_text())
        if result["completed"] == len(asked):
            return Rate(len(asked), result["total_output_tokens"], result["duration"])
    error = next(filter(None, result["errors"]), "")
    raise SystemExit(f"vllm bench serve: {result['completed']} of {len(asked)} requests were answered:\n{error}")


def take_turns(sides: dict[str, Callable[[], Rate]], turns: int) -> dict[str, Rate]:
    """Return the best turn of each side; one turn each warms up."""
    rates: dict[str, list[Rate]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, ask in sides.items():
            rate = ask()
            if turn:
                rates[name].append(rate)
    return {name: max(given, key=lambda rate: rate.per_second) for name, given in rates.items()}


def say(what: str, *, ours: float, other: float, target: str) -> None:
    """Print one ratio with its sides."""
    print(f"{what:<64} {ours:9.1f} {other:9.1f} {ours / other:7.3f}  {target}", flush=True)


def bench_throughput(server: RunningVllm, asked: Sequence[Asked], folder: Path) -> None:
    """Compare the three clients."""
    config = config_of(server)
    sides = {
        "ours": partial(ask_ours, asked, config),
        "vllm": partial(ask_by_vllm, asked, config, server=server, folder=folder),
        "threads": partial(ask_in_threads, asked, config),
    }
    best = take_turns(sides, TURNS)
    if len({rate.tokens for rate in best.values()}) > 1:
        raise SystemExit(f"the sides had different numbers of tokens: {best}")
    found = client_of(config).room
    print(f"requests per second: {len(asked)}, of two images and {TOKENS} tokens; ask_rows has {found} at once")
    for name, what, target in (
        ("vllm", f"vllm bench serve, {AT_ONCE} at once", "at least 0.95"),
        ("threads", f"openai, {THREADS} threads", "at least 1.5"),
    ):
        say(f"  ask_rows | {what}", ours=best["ours"].per_second, other=best[name].per_second, target=target)


def bench_grammar(server: RunningVllm, asked: Sequence[Asked]) -> None:
    """Compare answers that are held to a form with such as are not."""
    config = config_of(server)
    held = Grammar(regex=difference_regex())
    sides = {"held": partial(ask_ours, asked, config, grammar=held), "free": partial(ask_ours, asked, config)}
    best = take_turns(sides, 2 * TURNS)  # the difference is small
    rates = {name: rate.tokens / rate.seconds for name, rate in best.items()}
    say("tokens per second: held to a template | free", ours=rates["held"], other=rates["free"], target="at least 0.95")


class Trivial(asyncio.Protocol):
    """Be a server that gives the same answer to whatever it is asked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.got = bytearray()

    def data_received(self, data: bytes) -> None:
        self.got += data
        while (end := self.got.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.got[:end]).lower()
            size = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self.got) < size:
                return
            del self.got[:size]
            self.transport.write(TRIVIAL_ANSWER)


def _trivial_answer() -> bytes:
    said = {
        "model": "trivial",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    body = json.dumps(said).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


TRIVIAL_ANSWER = _trivial_answer()


def serve_trivially(told: Connection) -> None:
    """Serve on a port that is told, until this process is ended."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Trivial, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def measure_memory(port: int, pictures: Sequence[bytes], marks: Sequence[int]) -> list[float]:
    """Return the resident MB after each mark's rows; in a process of its own."""
    config = ChatConfig(
        endpoint=(f"http://127.0.0.1:{port}/v1",), model="trivial", structured_output="none", max_concurrency=64
    )

    async def work(row: PairRow, chat: Chat) -> PairRow:
        shown = (pictures[int(row.key[:8], 16) % len(pictures)], pictures[int(row.key[8:16], 16) % len(pictures)])
        await chat.ask(Question(prompt="bench", text="What differs?", images=shown, seed=1, max_tokens=8))
        return row

    resident: list[float] = []
    for number, row in enumerate(ask_rows(map(_row, range(marks[-1])), work, config), 1):
        if not isinstance(row, PairRow):
            raise SystemExit(f"a row was not answered: {row}")
        if number in marks:
            gc.collect()
            resident.append(_resident_mb())
    close_clients()
    return resident


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def trivial_server() -> Iterator[int]:
    """Run the server that always says the same; give its port."""
    context = get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve_trivially, args=(there,), daemon=True)
    server.start()
    try:
        yield here.recv()
    finally:
        server.terminate()
        server.join()


def bench_memory() -> None:
    """Print what the client holds as the rows go by."""
    rng = np.random.default_rng(1)
    pictures = [_picture(rng) for _ in range(64)]
    with trivial_server() as port, ProcessPoolExecutor(1, get_context("spawn")) as alone:
        start = time.perf_counter()
        resident = alone.submit(measure_memory, port, pictures, MARKS).result()
        seconds = time.perf_counter() - start
    marks = ", ".join(f"{mb:.0f} MB after {mark:,}" for mark, mb in zip(MARKS, resident, strict=True))
    print(f"memory of the client: {marks} rows ({MARKS[-1] / seconds:,.0f} rows per second); to be flat", flush=True)


def main() -> None:
    """Print one line per measurement: ours, the other side, and their ratio."""
    print(f"{'':<64} {'ours':>9} {'other':>9} {'ratio':>7}  target")
    with tempfile.TemporaryDirectory(prefix="pairwright-bench-") as path:
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:  # PyTorch stays out of the clients' process
            folder = alone.submit(write_endless_model, Path(path) / "qwen2-vl").result()
        asked = make_asked(ROWS)
        with running_vllm(folder, *FLAGS) as server:
            bench_throughput(server, asked, folder.parent)
            bench_grammar(server, asked)
    bench_memory()


if __name__ == "__main__":
    main()
