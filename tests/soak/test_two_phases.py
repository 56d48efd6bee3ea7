"""Run paper 003's two phases as ``docs/guides/conversations.md`` has them, on a tiny model.

Run with ``make soak``; five minutes. A script is the language model of phase 1; the model that is
trained on what it wrote answers in phase 2, behind a server, and is trained again on both phases
and on LLaVA's conversations.
"""

import json
import re
import threading
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import pairwright as pw
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_questions import LocalModel, answer_questions
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.runs import Run
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.command import run, words_of

COLOURS = ("red", "blue", "green", "white", "black", "yellow")
PAIRS = len(COLOURS) * (len(COLOURS) - 1)
TINY = {"optimiser.num_train_epochs": 20, "output.logging_steps": 20, "data.eval_split": ""}


def summary(first: str, second: str) -> str:
    return (
        "Commonalities: Both images show a plain wall.\n\n"
        f"Differences:\n1. Object attributes: The wall in Image 1 is {first}, while the wall in "
        f"Image 2 is {second}.\n"
        "2. Counting the objects: Each image shows one wall."
    )


def write_pairs(folder: Path, *, human: bool) -> Path:
    """Write walls of every two colours, with people's captions, or with what they wrote about the
    difference."""
    folder.mkdir()
    lines: list[str] = []
    for colour in COLOURS:
        Image.new("RGB", (64, 48), colour).save(folder / f"{colour}.png")
    for first, second in permutations(COLOURS, 2):
        said = {"caption1": f"A plain {first} wall.", "caption2": f"A plain {second} wall."}
        about = {"differences": [f"The wall is {second} now."], **said} if human else said
        lines.append(json.dumps({"image1": f"{first}.png", "image2": f"{second}.png", **about}))
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return folder / "pairs.jsonl"


def write_llava(folder: Path) -> Path:
    said = [
        {"from": "human", "value": "<image>\nWhich colour is it?"},
        {"from": "gpt", "value": "It is red."},
    ]
    text = [
        {"from": "human", "value": "Hello."},
        {"from": "gpt", "value": "Hello, what is it about?"},
    ]
    broken = {"image": "one/red.png", "conversations": "none"}
    records: list[Any] = [
        {"image": "one/red.png", "conversations": said},
        {"conversations": text},
        broken,
    ]
    (folder / "llava.json").write_text(json.dumps(records))
    return folder / "llava.json"


def build(
    out: Path, source: Path, answer: Callable[[Asked], str], model: str, **settings: str
) -> list[Asked]:
    """Build comparisons that a served model writes; return what it was asked."""
    with chat_server(answer) as server:
        served = {"endpoint": server.url, "model": "tiny", "structured_output": "'none'"}
        named = {f"models.{model}.{name}": value for name, value in served.items()}
        own = {
            f"comparisons.{name}": value for name, value in {"writer": "served", **settings}.items()
        }
        words = words_of({**named, **own, "run.workers": 1})
        assert (
            run("build", f"jsonl-pairs:{source}", "--out", out, "--until", "comparisons", *words)
            == 0
        )
    return [
        asked for asked in server.asked if "Summarize" in asked.text or "summarize" in asked.text
    ]


def read_captions(asked: Asked) -> str:
    return summary(*re.findall(r"plain (\w+) wall", asked.text)[:2])


def let_answer(checkpoint: Path, kept: Answers) -> Callable[[Asked], str]:
    """Return what answers a server's requests with a trained model."""
    local, alone = LocalModel(find_model(str(checkpoint)), 448 * 448), threading.Lock()

    def answer(asked: Asked) -> str:
        with alone:
            question = Question(
                prompt="asked", text=asked.text, images=asked.images, max_tokens=300
            )
            (reply,) = answer_questions([("asked", question)], kept, local=local, batch=1)
        return reply.text

    return answer


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_model_is_trained_on_what_the_one_before_it_wrote(tmp_path: Path) -> None:
    phase1, phase2 = tmp_path / "phase1", tmp_path / "phase2"
    asked = build(phase1, write_pairs(tmp_path / "one", human=False), read_captions, "language")
    assert len(asked) == PAIRS
    assert not any(one.images for one in asked), "it reads"
    train = ["--objective", "sft", "--table", "comparisons", "--model", "tiny", *words_of(TINY)]
    assert run("train", phase1, *train, "--name", "v1") == 0

    with Answers(tmp_path / "kept.answers") as kept:
        model = let_answer(phase1 / "runs/v1/checkpoint", kept)
        how = {"input": "images and differences"}
        asked = build(phase2, write_pairs(tmp_path / "two", human=True), model, "chat", **how)
    assert len(asked) == PAIRS
    assert all(len(one.images) == 2 and "The wall is" in one.text for one in asked), (
        "it sees, and is told"
    )
    written = list(pw.open(phase2)["comparisons"])
    assert len(written) == PAIRS
    form = re.escape(summary("COLOUR", "COLOUR")).replace("COLOUR", r"\w+")
    assert sum(bool(re.fullmatch(form, row.text)) for row in written) > PAIRS // 2, (
        "as it has learnt"
    )
    assert all(len(row.conversation) == 4 for row in written)

    llava = write_llava(tmp_path)
    mixed = [
        "--mix",
        f"{phase1}:0.4",
        "--mix",
        f"{llava}:0.2",
        *words_of({"optimiser.max_steps": 20}),
    ]
    assert run("train", phase2, *train, "--name", "v2", *mixed) == 0
    finished = Run(phase2 / "runs/v2")
    data = finished.data()
    assert data["rows"]["train"] == round(PAIRS / 0.4)
    taken = [(Path(one["source"]).name, one["rows"], one["different"]) for one in data["mix"]]
    assert taken == [("phase1", PAIRS, PAIRS), ("llava.json", PAIRS // 2, 2)]
    assert data["refused"] == {"damaged conversation": 1}
    assert (finished.model / "config.json").exists()
