"""Rows ask a scripted server: none is lost, none comes twice, and nothing stays behind."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.rows import Dropped, ItemRow
from pairwright.tasks.serving.ask_rows import AHEAD
from pairwright.tasks.serving.loop import run_coroutine
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import answers_of, ask_all, ask_once, config_of, item, items, question
from tests.fixtures.chat_server import Close, Hang, Raw, Reply, Status, chat_server

ROOT = Path(__file__).parents[3]


def echo(request):
    return f"answer {request.text}"


def echoes(count):
    return {str(number): f"answer {number}" for number in range(count)}


def answer_first_only(request):
    return "good" if request.text == "0" else Hang()


def tasks_left():
    """Return how many tasks the background loop has left, once ended ones had time to go."""

    async def count():
        return len(asyncio.all_tasks()) - 1

    until = time.monotonic() + 2
    while (left := run_coroutine(count())) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def test_rows_are_taken_when_there_is_room_for_them() -> None:
    taken = 0

    def rows():
        nonlocal taken
        for number in range(200):
            taken += 1
            yield item(number)

    with chat_server(echo) as server:
        config = config_of(server, max_concurrency=4)
        for done, _ in enumerate(ask_all(rows(), config)):
            assert taken - done <= 2 * 4 + AHEAD + 1
        assert server.most <= 4
    assert taken == 200


def test_a_row_may_give_several_results_or_none() -> None:
    odd = Dropped(source_key=item(2).key, reason="odd")

    async def work(row, chat):
        questions = [chat.ask(question(f"{row.name} {number}")) for number in range(3)]
        rows = [replace(row, name=answer.text) for answer in await asyncio.gather(*questions)]
        return {"0": rows, "1": [], "2": [*rows, odd]}[row.name]

    with chat_server(echo) as server:
        results = list(ask_all(items(3), config_of(server), work))
    names = [result.name for result in results if isinstance(result, ItemRow)]
    texts = [f"answer {row} {number}" for row in (0, 2) for number in range(3)]
    assert sorted(names) == texts
    assert [name for name in names if name.startswith("answer 0")] == texts[:3], "in their order"
    assert [result for result in results if isinstance(result, Dropped)] == [odd]


FAULTS = [
    Status(500),
    Status(429),
    Status(503, headers={"Retry-After": "0"}),
    Close(),
    Close(reset=True),
    Hang(),
    Raw(b"<html>no</html>"),
    Raw(b'{"choices": []}'),
    Raw(b'{"choices": [{"message": {"content": "\xff"}, "finish_reason": "stop"}]}'),
    Raw(b'{"choices": [{"message":', headers={"Content-Length": "900"}, cut=24),
]


def test_faults_of_all_kinds_lose_no_row_and_double_none() -> None:
    """Every tenth question meets a fault at first, each kind twice."""
    faults = {str(10 * number): fault for number, fault in enumerate(FAULTS * 2)}
    with chat_server(lambda request: faults.pop(request.text, None) or echo(request)) as server:
        results = ask_all(items(200), config_of(server, timeout_seconds=1.5))
        assert answers_of(results) == echoes(200)
        assert len(server.asked) == 220


def test_an_error_of_the_work_ends_the_rest() -> None:
    async def work(row, chat):
        if row.name == "3":
            raise ZeroDivisionError
        return await ask_once(row, chat)

    with chat_server(lambda _: Hang()) as server:
        with pytest.raises(ZeroDivisionError):
            list(ask_all(items(10), config_of(server), work))
        assert tasks_left() == 0


@pytest.mark.parametrize("leave", [lambda results: results.close(), id], ids=["close", "collect"])
def test_an_iterator_that_is_left_alone_cancels_what_is_under_way(leave) -> None:
    with chat_server(answer_first_only) as server:
        before = threading.active_count()
        results = ask_all(items(30), config_of(server))
        next(results)
        leave(results)
        del results
        gc.collect()
        assert tasks_left() == 0
        # the loop's own, and the server's
        assert threading.active_count() <= before + server.connections + 1


def test_several_threads_share_a_client() -> None:
    with chat_server(echo) as server:
        config = config_of(server, max_concurrency=6)
        with ThreadPoolExecutor(3) as threads:
            results = threads.map(lambda _: answers_of(ask_all(items(40), config)), range(3))
            assert list(results) == [echoes(40)] * 3
        assert server.most <= 6


def test_known_answers_are_not_asked_for_again(tmp_path) -> None:
    faults = [Status(500), Status(429), Raw(b"no")]

    def answer(request):
        if request.text == "1":
            return Status(400)
        reply = Reply(f"{request.text} of {request.number}", fingerprint="fp")
        return faults.pop() if faults else reply

    with chat_server(answer) as server:
        config = config_of(server)
        with Answers(tmp_path / "x.answers") as memory:
            first = list(ask_all(items(20), config, answers=memory))
            assert len(memory) == 19, "neither faults nor refusals are kept"
        server.asked.clear()
        with Answers(tmp_path / "x.answers") as memory:
            again = list(ask_all(items(20), config, answers=memory))
        assert [request.text for request in server.asked] == ["1"]
    assert sorted(again, key=repr) == sorted(first, key=repr)


SCRIPT = """
import sys
from pathlib import Path
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import ask_all, config_of, items

if __name__ == "__main__":
    config = config_of(sys.argv[1], max_concurrency=5)
    with Answers(Path(sys.argv[2])) as memory:
        for result in ask_all(items(120), config, answers=memory):
            print(result.name, flush=True)
"""


def test_a_killed_run_repeats_no_finished_request(tmp_path) -> None:
    path = tmp_path / "x.answers"
    with chat_server(lambda request: Reply(echo(request), after=0.01)) as server:
        command = [sys.executable, "-c", SCRIPT, server.url, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            finished = {process.stdout.readline().decode().strip() for _ in range(40)}
            process.kill()
            process.wait()
        time.sleep(0.2)
        before = len(server.asked)
        with Answers(path) as memory:
            known = len(memory)
            assert known >= 40
            assert before - known <= 5, "only what was under way is not known"
            config = config_of(server, max_concurrency=5)
            assert answers_of(ask_all(items(120), config, answers=memory)) == echoes(120)
        after = [request.text for request in server.asked[before:]]
    assert not finished & set(after)
    assert len(after) == len(set(after)) == 120 - known


def test_an_interpreter_that_ends_in_the_middle_ends_quietly(tmp_path) -> None:
    """In this mode asyncio tells of tasks left behind as errors, and warns of slow steps."""
    leave = "raise SystemExit(f'left at {result.name}')"
    script = 'import logging\nlogging.getLogger("asyncio").setLevel("ERROR")\n'
    script += SCRIPT.replace("print(result.name, flush=True)", leave)
    with chat_server(answer_first_only) as server:
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", script, server.url]
        command.append(str(tmp_path / "x.answers"))
        how = {"capture_output": True, "text": True, "timeout": 60, "check": False, "cwd": ROOT}
        process = subprocess.run(command, **how)
    assert (process.stderr, process.returncode) == ("left at 0\n", 1)
