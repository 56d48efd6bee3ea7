"""The background loop ends with its process, and the guard ends its server."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

from pairwright.tasks.serving import guard
from pairwright.tasks.serving.loop import background, run_coroutine
from tests.tasks.serving.test_launch import is_there


async def double(value):
    await asyncio.sleep(0)
    return 2 * value


async def name_thread():
    return threading.current_thread().name


def test_there_is_one_loop_in_a_thread_of_its_own() -> None:
    assert [run_coroutine(double(number)) for number in range(3)] == [0, 2, 4]
    assert background() is background()
    assert run_coroutine(name_thread()) == "served models"


def work():
    assert run_coroutine(double(2)) == 4


def test_a_worker_process_ends_by_itself() -> None:
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def start(*command, parent=None, grace_s=10.0):
    """Start the guard before a command."""
    parent = os.getpid() if parent is None else parent
    guarded = [sys.executable, "-IS", str(guard.__file__), str(parent), str(grace_s), *command]
    return subprocess.Popen(guarded, stdout=subprocess.PIPE, text=True, start_new_session=True)


def start_shell(script, **how):
    return start("/bin/sh", "-c", script, **how)


LOOP = "while :; do sleep 0.05; done"


def test_it_ends_as_the_command_ends_with_all_that_this_leaves_behind() -> None:
    with start_shell("sleep 600 & echo $!; exit 7") as running:
        left = running.stdout.readline()
        assert running.wait() == 7
        assert not is_there(int(left))


def test_the_command_has_its_time_to_end() -> None:
    with start_shell(f"trap 'sleep 0.3; exit 5' TERM; echo ready; {LOOP}") as running:
        running.stdout.readline()
        running.terminate()
        assert running.wait() == 5


def test_a_command_that_will_not_end_is_killed_with_its_children() -> None:
    with start_shell(f"trap '' TERM; sleep 600 & echo $!; {LOOP}", grace_s=0.3) as running:
        child = running.stdout.readline()
        running.terminate()
        assert running.wait() == 128 + signal.SIGKILL
        assert not is_there(int(child))


def test_a_parent_that_has_gone_already_ends_the_command() -> None:
    with start("/bin/sleep", "600", parent=os.getppid()) as running:
        assert running.wait() == 128 + signal.SIGTERM


def test_it_loads_nothing_of_the_project() -> None:
    run_guard = f"import runpy, sys; runpy.run_path({str(guard.__file__)!r}, run_name='guard'); "
    command = [sys.executable, "-IS", "-c", run_guard + "print(*sys.modules)"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"pairwright", "pydantic"} & set(process.stdout.split())
