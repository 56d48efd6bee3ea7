"""Evaluations that are killed at any moment go on with what is unfinished, and end as one that was
not."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures.benchmarks import counts_of, scores_of, write_folder
from tests.fixtures.chat_server import Asked, Reply, chat_server

QUESTIONS, KILLS = 120, 6
AT_ONCE = 8  # requests that a client may have under way
EVALUATE = """
import sys
from contextlib import nullcontext
from pathlib import Path
from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model
from pairwright.schemas.writing import ChatConfig
url, data, to, at_once = sys.argv[1:]
sampling = {"temperature": 0.0, "top_p": 1.0}
server = ChatConfig(endpoint=(url,), model="tiny", max_concurrency=int(at_once), **sampling)
folders = {"data": Path(data), "to": Path(to)}
config = EvaluationConfig(model="tiny", benchmark="nlvr2", server=server, **folders)
evaluate_model(config, watch=lambda _: nullcontext(lambda done, of: None))
"""


@pytest.mark.slow
def test_killed_evaluations_go_on(tmp_path: Path) -> None:
    lines = [
        {
            "image": ["a.png", "b.png"],
            "text": f'Is the statement "{n} dogs" True or False?',
            "answer": "True",
            "question_id": n,
        }
        for n in range(QUESTIONS)
    ]
    folder = write_folder(
        tmp_path / "data", images=["a.png", "b.png"], files={}, lines={"NLVR2.jsonl": lines}
    )
    rng = random.Random(0)

    def answer(asked: Asked) -> Reply:
        return Reply("False" if '"7 dogs"' in asked.text else "True", after=rng.uniform(0.02, 0.1))

    to = tmp_path / "scores.json"
    with chat_server(answer) as server:
        command = [sys.executable, "-c", EVALUATE, server.url, str(folder), str(to), str(AT_ONCE)]
        for kill in range(1, KILLS + 1):
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                until = time.monotonic() + 60
                while (
                    len(statements(server.asked)) < kill * QUESTIONS // (KILLS + 2)
                    and time.monotonic() < until
                ):
                    time.sleep(rng.uniform(0.001, 0.02))
                process.send_signal(signal.SIGKILL)
            assert not to.exists()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        asked = statements(server.asked)
    assert len(set(asked)) == QUESTIONS
    assert len(asked) <= QUESTIONS + KILLS * AT_ONCE
    assert counts_of(to)["answered"] == QUESTIONS
    assert scores_of(to)["", "accuracy"] == pytest.approx(1 - 1 / QUESTIONS, abs=1e-4)
    names = ("accuracy", "consistency", "accuracy (exact)", "consistency (exact)")
    assert [score["name"] for score in json.loads(to.read_text())["scores"]] == list(names)


def statements(asked: list[Asked]) -> list[str]:
    return [one.text for one in asked if "statement" in one.text]
