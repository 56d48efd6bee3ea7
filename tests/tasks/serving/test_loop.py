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
import asyncio
from pairwright.tasks.serving.loop import background, run

async def wait():
    try:
        await asyncio.sleep(60)
    finally:
        print("cancelled", flush=True)

async def begin():
    held.append(asyncio.get_running_loop().create_task(wait()))
    await asyncio.sleep(0)

held = []
run(begin())
raise SystemExit(130)
"""


def test_a_process_ends_with_what_is_under_way_and_in_silence() -> None:
    command, root = [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT], Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
    assert (done.stdout, done.stderr, done.returncode) == ("cancelled\n", "", 130)
