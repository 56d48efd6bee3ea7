"""The loop in the background ends with its process, and the guard ends the server that it stands
before."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

from pairwright.tasks.serving import guard
from pairwright.tasks.serving.loop import background, run
from tests.tasks.serving.test_launch import is_there


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


SHELL = ("/bin/sh", "-c")


def start(*command: str, parent: int | None = None, grace_s: float = 10) -> "subprocess.Popen[str]":
    parent = os.getpid() if parent is None else parent
    guarded = [sys.executable, "-IS", str(guard.__file__), str(parent), str(grace_s), *command]
    return subprocess.Popen(guarded, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_it_ends_as_the_command_ends_and_so_does_what_that_leaves_behind() -> None:
    with start(*SHELL, "sleep 600 & echo $!; exit 7") as running:
        left = running.stdout.readline()
        assert running.wait() == 7
        assert not is_there(int(left))


def test_the_command_has_its_time_to_end() -> None:
    with start(
        *SHELL, "trap 'sleep 0.5; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    ) as running:
        running.stdout.readline()
        running.terminate()
        assert running.wait() == 5


def test_a_command_that_will_not_end_is_killed_with_its_children() -> None:
    with start(
        *SHELL, "trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.05; done", grace_s=0.3
    ) as running:
        child = running.stdout.readline()
        running.terminate()
        assert running.wait() == 256 - signal.SIGKILL
        assert not is_there(int(child))


def test_a_parent_that_has_gone_already_ends_the_command() -> None:
    with start("/bin/sleep", "600", parent=os.getppid()) as running:
        assert running.wait() == 256 - signal.SIGTERM


def test_it_loads_nothing_of_the_project() -> None:
    code = (
        f"import runpy, sys; runpy.run_path({str(guard.__file__)!r}, run_name='guard'); "
        f"print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert not {"pairwright", "pydantic"} & set(loaded.split())
