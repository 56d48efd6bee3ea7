"""Several endpoints, and endpoints that fail: who is asked, who is waited for, and how long."""

import asyncio
import itertools
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pairwright.schemas.errors import ServerError
from pairwright.schemas.rows import Failed
from pairwright.tasks.serving.connection import Connection
from pairwright.tasks.serving.endpoints import Endpoint, Endpoints, Limiter
from pairwright.tasks.serving.faults import FaultError
from pairwright.tasks.serving.loop import run_coroutine
from pairwright.tasks.serving.read_response import read_response
from tests.fixtures.asking import QUICK, answers_of, ask_all, ask_now, config_of, items
from tests.fixtures.chat_server import Hang, Reply, Status, chat_server


def echo(request):
    return request.text


def test_each_try_waits_longer_than_the_one_before(monkeypatch) -> None:
    times = []
    monkeypatch.setattr("pairwright.tasks.serving.client.random.uniform", lambda _, most: most)

    def answer(request):
        times.append(time.monotonic())
        return Status(500) if len(times) < 5 else "good"

    with chat_server(answer) as server:
        pace = {"backoff_s": 0.05, "backoff_most_s": 0.15, "rest_s": 0.0}
        assert ask_now(config_of(server), **pace).text == "good"
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.05, 0.1, 0.15, 0.15), strict=True))


def test_retry_after_is_capped_by_patience() -> None:
    with chat_server(lambda _: Status(429, headers={"Retry-After": "86400"})) as server:
        with pytest.raises(ServerError, match=r"0\.3 s .*HTTP 429"):
            ask_now(config_of(server, patience_seconds=0.3))
        assert len(server.asked) == 2, "once more when patience ends"


def test_waiting_for_a_gone_or_busy_server_uses_up_no_attempts() -> None:
    faults = [Status(503)] * 9
    with chat_server(lambda _: faults.pop() if faults else "good") as server:
        config = config_of(server, max_attempts=1, patience_seconds=60)
        server.stop()
        threading.Timer(0.4, server.start).start()
        assert ask_now(config).text == "good"
        assert len(server.asked) == 10


def test_failed_shards_halve_patience_until_an_answer() -> None:
    with chat_server(lambda _: "good") as server:
        config = config_of(server, patience_seconds=0.2)
        server.stop()
        for patience in ("0.2", "0.1", "0.05"):
            with pytest.raises(ServerError, match=rf"\b{patience} s .*Connect call failed"):
                list(ask_all(items(10), config))
        server.start()
        assert len(answers_of(ask_all(items(10), config))) == 10
        server.stop()
        with pytest.raises(ServerError, match=r"\b0\.2 s"):
            list(ask_all(items(10), config))


def test_one_fatal_question_does_not_condemn_the_server() -> None:
    with chat_server(lambda _: Hang()) as server:
        how = {"timeout_seconds": 0.3, "max_attempts": 4, "patience_seconds": 0.05}
        (result,) = ask_all(items(1), config_of(server, **how))
        assert len(server.asked) == 4
    assert isinstance(result, Failed)
    assert result.reason == "no answer in time"


def test_a_dead_endpoint_costs_no_row_is_logged_once_and_tried_again(caplog) -> None:
    with chat_server(echo) as dead, chat_server(echo) as alive:
        config = config_of(dead, alive, max_attempts=1)
        dead.stop()
        assert len(answers_of(ask_all(items(40), config))) == 40
        assert [message.startswith(f"{dead.url} ") for message in caplog.messages] == [True]
        dead.start()
        assert len(answers_of(ask_all(items(150), config))) == 150
        assert dead.asked


def test_all_endpoints_together_get_no_more_than_the_limit() -> None:
    under_way = set()
    most = 0

    def answer(request):
        nonlocal most
        under_way.add(request.text)
        most = max(most, len(under_way))
        time.sleep(0.03)
        under_way.remove(request.text)
        return request.text

    with chat_server(answer) as first, chat_server(answer) as second:
        config = config_of(first, second, max_concurrency=5)
        assert len(answers_of(ask_all(items(60), config))) == 60
    assert most == 5


def test_the_number_of_requests_falls_when_the_server_is_full() -> None:
    under_way, refused, lock, was_full = 0, 0, threading.Lock(), threading.Event()

    def answer(request):
        nonlocal under_way, refused
        with lock:
            under_way += 1
            full = under_way > 10
            refused += full
        if full:
            was_full.set()
        elif was_full.wait(0.5):  # or the first ones could be gone before the eleventh comes
            time.sleep(0.01)
        with lock:
            under_way -= 1
        return Status(429) if full else Reply(request.text)

    with chat_server(answer) as server:
        assert len(answers_of(ask_all(items(400), config_of(server, max_attempts=20)))) == 400
    assert 0 < refused < 100


@pytest.mark.parametrize("form", ["a number", "a date"])
def test_a_server_that_turns_each_request_away_once_answers_all(form) -> None:
    """Those that waited go first: otherwise each round asks new ones, and none is answered."""
    seen = set()

    def answer(request):
        if request.text in seen:
            return request.text
        seen.add(request.text)
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
        return Status(429, headers={"Retry-After": "1" if form == "a number" else date})

    with chat_server(answer) as server:
        config = config_of(server, patience_seconds=2.5)
        results = list(ask_all(items(12), config))
        assert len(server.asked) == 24
    assert len(answers_of(results)) == 12


class Scripted(Connection):
    """A connection that answers, or fails as it is told, without a server."""

    fault: Exception | None = None

    async def post(self, body):
        await asyncio.sleep(0)
        if self.fault:
            raise self.fault
        return read_response(
            b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}'
        )


def open_endpoints(*, patience_s=60.0):
    """Return endpoints with a single one, which takes one request at a time."""
    connection = Scripted("http://127.0.0.1:1/v1", "PAIRWRIGHT_TEST_KEY", timeout_s=1, pace=QUICK)
    endpoint = Endpoint(connection, Limiter(1, 1))
    pace = replace(QUICK, rest_s=1.0, rest_most_s=1.0)
    return Endpoints([endpoint], most=1, patience_s=patience_s, pace=pace), connection


def test_a_turn_that_nobody_waits_for_any_more_is_given_back() -> None:
    async def act():
        endpoints, _ = open_endpoints()
        endpoint = await endpoints.acquire()
        waiting = [asyncio.create_task(endpoints.acquire()) for _ in range(2)]
        await asyncio.sleep(0)
        await endpoints.post(endpoint, {}, 1)  # the first waiting one has it now
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert await asyncio.wait_for(waiting[1], 5) is not None

    run_coroutine(act())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(FaultError("no connection", "test"), r"127\.0\.0\.1:1/v1", id="gone"),
        pytest.param(ServerError("no key"), "no key", id="refused"),
    ],
)
def test_all_who_wait_are_told_that_there_is_nothing_to_wait_for(fault, message) -> None:
    async def act():
        endpoints, connection = open_endpoints(patience_s=0.0)
        endpoint = await endpoints.acquire()
        waiting = [asyncio.create_task(endpoints.acquire()) for _ in range(5)]
        await asyncio.sleep(0.01)
        connection.fault = fault
        with pytest.raises(ServerError, match=message):
            await endpoints.post(endpoint, {}, 1)
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert [type(result) for result in results] == [ServerError] * 5

    run_coroutine(act())


def answer_many(limiter, count):
    """Answer requests of a queue that never ends; return the limit that comes about."""
    for _ in range(count):
        limiter.under_way = max(limiter.under_way, limiter.limit)
        limiter.answered()
        limiter.under_way -= 1
    return limiter.limit


def overload(limiter, *, together, times=1):
    """Refuse some of the requests that are under way together; return the limit."""
    limiter.under_way = together
    wave = limiter.wave
    for _ in range(times):
        limiter.overloaded(wave)
        limiter.under_way -= 1
    return limiter.limit


def test_the_limit_doubles_with_each_round_up_to_the_most() -> None:
    limiter = Limiter(most=30, start=4)
    assert [answer_many(limiter, count) for count in (4, 8, 1000)] == [8, 16, 30]
    assert Limiter(most=2, start=4).limit == 2


def test_an_overload_halves_the_limit_once_and_answers_raise_it_by_one() -> None:
    limiter = Limiter(most=64, start=16)
    assert overload(limiter, together=16, times=5) == 8
    assert [answer_many(limiter, count) for count in (7, 1, 8, 1)] == [8, 9, 9, 10]
    assert overload(limiter, together=8) == 4
