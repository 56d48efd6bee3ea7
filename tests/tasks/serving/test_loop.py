"""The background loop serves ordinary functions, and ends with its process."""

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from pathlib import Path

from pairwright.tasks.serving.loop import background, run


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def where() -> str:
    return threading.current_thread().name


def test_there_is_one_loop_in_a_thread_of_its_own() -> None:
    assert [run(double(number)) for number in range(3)] == [0, 2, 4]
    assert background() is background()
    assert run(where()) == "served models"


def work() -> None:
    assert run(double(2)) == 4


def test_a_worker_process_ends_by_itself() -> None:
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


SCRIPT = """
from pairwright.tasks.serving.ask_rows import ask_rows
from tests.fixtures.asking import QUICK, ask_once, config_of, items
from tests.fixtures.chat_server import Hang, chat_server

with chat_server(lambda asked: "good" if asked.text == "0" else Hang()) as server:
    results = ask_rows(items(30), ask_once, config_of(server), pace=QUICK)
    print(next(results).locator, flush=True)
    raise SystemExit(130)
"""


def test_a_process_that_stops_while_questions_are_under_way_ends_in_silence() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[3]
    )
    assert (done.stdout, done.stderr, done.returncode) == ("good\n", "", 130)
