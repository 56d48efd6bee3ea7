"""Rows ask a scripted server: none is lost, none comes twice, and nothing stays behind."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.serving.ask_rows import AHEAD, ask_rows
from pairwright.tasks.serving.chat import Chat
from pairwright.tasks.serving.loop import run
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import QUICK, ask_once, asked, config_of, item, items, question, texts
from tests.fixtures.chat_server import Asked, Close, Hang, Raw, Reply, Status, chat_server

ROOT = Path(__file__).parents[3]


def echo(asked: Asked) -> str:
    return f"answer {asked.text}"


def tasks_left() -> int:
    """Return how many tasks the background loop has beside this question; ended ones have some time
    to go."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    until = time.monotonic() + 2
    while (left := run(count())) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def test_rows_are_taken_when_there_is_room_for_them() -> None:
    taken = 0

    def rows() -> Iterator[ItemRow]:
        nonlocal taken
        for number in range(300):
            taken += 1
            yield item(number)

    with chat_server(echo) as server:
        for done, _ in enumerate(
            ask_rows(rows(), ask_once, config_of(server, max_concurrency=4), pace=QUICK)
        ):
            assert taken - done <= 2 * 4 + AHEAD + 1
        assert server.most <= 4


def test_a_row_may_give_several_results_or_none() -> None:
    async def work(row: ItemRow, chat: Chat) -> list[ItemRow | Dropped]:
        answers = await asyncio.gather(
            *(chat.ask(question(f"{row.name} {number}")) for number in range(3))
        )
        rows: list[ItemRow | Dropped] = [
            replace(row, name=answer.text) for answer in answers if row.name != "1"
        ]
        return rows if row.name != "2" else [*rows, Dropped(source_key=row.key, reason="odd")]

    with chat_server(echo) as server:
        results = list(ask_rows(items(3), work, config_of(server), pace=QUICK))
    by_row = [
        [each for each in results if getattr(each, "name", "answer 2").startswith(f"answer {n}")]
        for n in (0, 2)
    ]
    assert [each.name for each in by_row[0] if isinstance(each, ItemRow)] == [
        f"answer 0 {n}" for n in range(3)
    ]
    assert by_row[1][-1] == Dropped(source_key=item(2).key, reason="odd")
    assert len(results) == 3 + 0 + 4


def test_a_refused_question_drops_its_row_and_an_unanswered_one_fails_it() -> None:
    def answer(asked: Asked) -> str | Status:
        return {"1": Status(400, "too long"), "2": Status(500, "broken")}.get(asked.text, "good")

    with chat_server(answer) as server:
        results = {
            result.source_key: result
            for result in asked(items(4), config_of(server, max_attempts=3))
        }
        where = f"(3 tries, last at {server.url})"
    refused = {"reason": "the server refused the request", "detail": "too long"}
    assert results[item(1).key] == Dropped(source_key=item(1).key, **refused)
    failed = {"reason": "server error", "detail": f"HTTP 500: broken {where}"}
    assert results[item(2).key] == Failed(source_key=item(2).key, **failed)
    assert isinstance(results[item(0).key], ItemRow)
    assert isinstance(results[item(3).key], ItemRow)


def test_fifty_faults_of_all_kinds_lose_no_row_and_double_none() -> None:
    kinds = [
        Status(500),
        Status(429),
        Status(503, headers={"Retry-After": "0"}),
        Close(),
        Close(reset=True),
        Hang(),
    ]
    kinds += [Raw(b"<html>no</html>"), Raw(b'{"choices": []}')]
    kinds += [Raw(b'{"choices": [{"message": {"content": "\xff"}, "finish_reason": "stop"}]}')]
    kinds += [Raw(b'{"choices": [{"message":', headers={"Content-Length": "900"}, cut=24)]
    fresh = set(range(0, 500, 10))

    def answer(asked: Asked) -> str | Status | Close | Raw | Hang:
        number = int(asked.text)
        if number in fresh:
            fresh.remove(number)
            return kinds[number // 10 % len(kinds)]
        return f"answer {number}"

    with chat_server(answer) as server:
        results = texts(list(asked(items(500), config_of(server, timeout_seconds=1.5))))
        assert results == {str(number): f"answer {number}" for number in range(500)}
        assert len(server.asked) == 550


def test_what_the_work_raises_ends_the_rest() -> None:
    async def work(row: ItemRow, chat: Chat) -> ItemRow:
        if row.name == "3":
            raise ZeroDivisionError
        return await ask_once(row, chat)

    with chat_server(lambda _: Hang()) as server:
        with pytest.raises(ZeroDivisionError):
            list(ask_rows(items(10), work, config_of(server), pace=QUICK))
        assert tasks_left() == 0


@pytest.mark.parametrize("way", ["closed", "collected"])
def test_an_iterator_that_is_left_alone_cancels_what_is_under_way(way: str) -> None:
    def answer(asked: Asked) -> str | Hang:
        return "good" if asked.text == "0" else Hang()

    with chat_server(answer) as server:
        before = threading.active_count()
        results = asked(items(30), config_of(server))
        next(results)
        if way == "closed":
            results.close()  # pyright: ignore[reportAttributeAccessIssue]  (it is a generator)
        del results
        gc.collect()
        assert tasks_left() == 0
        assert (
            threading.active_count() <= before + server.connections + 1
        )  # the loop's own, and the server's


def test_several_threads_share_a_client() -> None:
    with chat_server(echo) as server:
        config = config_of(server, max_concurrency=6)
        with ThreadPoolExecutor(3) as threads:
            results = list(threads.map(lambda _: texts(list(asked(items(60), config))), range(3)))
        assert results == [{str(number): f"answer {number}" for number in range(60)}] * 3
        assert server.most <= 6


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    faults = iter([Status(500), Status(429), Raw(b"no")])

    def answer(asked: Asked) -> str | Status | Raw | Reply:
        if asked.text == "1":
            return Status(400)
        return next(faults, Reply(f"{asked.text} of {asked.number}", fingerprint="fp"))

    with chat_server(answer) as server:
        with Answers(tmp_path / "x.answers") as memory:
            first = list(asked(items(20), config_of(server), answers=memory))
            assert len(memory) == 19, "neither faults nor refusals are kept"
        count = len(server.asked)
        with Answers(tmp_path / "x.answers") as memory:
            again = list(asked(items(20), config_of(server), answers=memory))
        assert [request.text for request in server.asked[count:]] == ["1"]
    assert sorted(again, key=repr) == sorted(first, key=repr)


SCRIPT = """
import sys
from pathlib import Path
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import asked, config_of, items

if __name__ == "__main__":
    with Answers(Path(sys.argv[2])) as memory:
        for result in asked(items(120), config_of(sys.argv[1], max_concurrency=5), answers=memory):
            print(result.name, flush=True)
"""


def test_a_killed_run_repeats_no_finished_request(tmp_path: Path) -> None:
    path = tmp_path / "x.answers"
    with chat_server(lambda asked: Reply(f"answer {asked.text}", after=0.01)) as server:
        command = [sys.executable, "-c", SCRIPT, server.url, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            finished = [process.stdout.readline().decode().strip() for _ in range(40)]
            process.kill()
            process.wait()
        time.sleep(0.2)
        before = [request.text for request in server.asked]
        with Answers(path) as memory:
            known = len(memory)
            assert known >= 40
            assert len(before) - known <= 5, "only what was under way is not known"
            results = texts(
                list(asked(items(120), config_of(server, max_concurrency=5), answers=memory))
            )
        after = [request.text for request in server.asked[len(before) :]]
    assert results == {str(number): f"answer {number}" for number in range(120)}
    assert not set(after) & set(finished)
    assert len(after) == len(set(after)) == 120 - known


def test_an_interpreter_that_ends_in_the_middle_ends_quietly(tmp_path: Path) -> None:
    script = SCRIPT.replace(
        "print(result.name, flush=True)", "raise SystemExit(f'left at {result.name}')"
    )
    # That a step takes long is no fault: asyncio warns of it in this mode, and tells of tasks left
    # behind as errors.
    script = script.replace(
        "import sys\n", 'import sys, logging\nlogging.getLogger("asyncio").setLevel("ERROR")\n'
    )
    with chat_server(lambda asked: "good" if asked.text == "0" else Hang()) as server:
        command = [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            script,
            server.url,
            str(tmp_path / "x.answers"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
        )
    assert (done.stderr, done.returncode) == ("left at 0\n", 1)
