"""Several endpoints, and endpoints that fail: who is asked, who is waited for, and when that
ends."""

import asyncio
import itertools
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from pairwright.schemas.errors import ServerError
from pairwright.schemas.rows import Failed
from pairwright.tasks.serving.chat import Answer
from pairwright.tasks.serving.connection import Connection, FaultError, Reason, read_answer
from pairwright.tasks.serving.endpoints import Endpoint, Endpoints, Limiter
from pairwright.tasks.serving.loop import run
from tests.fixtures.asking import QUICK, ask_now, asked, config_of, items, texts
from tests.fixtures.chat_server import Asked, Hang, Reply, Status, chat_server


def test_each_try_waits_longer_than_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[float] = []
    monkeypatch.setattr("pairwright.tasks.serving.client.random.uniform", lambda _, most: most)

    def answer(asked: Asked) -> str | Status:
        came.append(time.monotonic())
        return Status(500) if len(came) < 5 else "good"

    with chat_server(answer) as server:
        pace = {"backoff_s": 0.1, "backoff_most_s": 0.3, "rest_s": 0.0}
        assert ask_now(config_of(server), **pace).text == "good"
    waits = [after - before for before, after in itertools.pairwise(came)]
    assert all(wait >= least for wait, least in zip(waits, (0.1, 0.2, 0.3, 0.3), strict=True))


def test_retry_after_is_capped_by_patience() -> None:
    with chat_server(lambda _: Status(429, headers={"Retry-After": "86400"})) as server:
        with pytest.raises(ServerError, match=r"0\.3 s .*HTTP 429"):
            ask_now(config_of(server, patience_seconds=0.3))
        assert len(server.asked) == 2, "once more when patience ends"


@pytest.mark.parametrize("gone", [True, False])
def test_waiting_for_a_lost_server_uses_up_no_attempts(
    gone: bool,
) -> None:
    end = time.monotonic() + 0.6
    with chat_server(lambda _: "good" if gone or time.monotonic() > end else Status(503)) as server:
        if gone:
            server.stop()
            threading.Timer(0.6, server.start).start()
        assert ask_now(config_of(server, max_attempts=1, patience_seconds=60)).text == "good"


def test_failed_shards_halve_patience_until_an_answer() -> None:
    with chat_server(lambda _: "good") as server:
        config = config_of(server, patience_seconds=0.2)
        server.stop()
        for patience in ("0.2", "0.1", "0.05"):
            with pytest.raises(ServerError, match=rf"\b{patience} s .*Connect call failed"):
                list(asked(items(10), config))
        server.start()
        assert len(texts(list(asked(items(10), config)))) == 10
        server.stop()
        with pytest.raises(ServerError, match=r"\b0\.2 s"):
            list(asked(items(10), config))


def test_one_fatal_question_does_not_condemn_the_server() -> None:
    with chat_server(lambda _: Hang()) as server:
        (result,) = asked(
            items(1), config_of(server, timeout_seconds=0.5, max_attempts=4, patience_seconds=0.05)
        )
        assert len(server.asked) == 4
    assert isinstance(result, Failed)
    assert result.reason == "no answer in time"


def test_a_dead_endpoint_costs_no_row(caplog: pytest.LogCaptureFixture) -> None:
    with (
        chat_server(lambda asked: asked.text) as dead,
        chat_server(lambda asked: asked.text) as alive,
    ):
        config = config_of(dead, alive, max_attempts=1)
        dead.stop()
        assert len(texts(list(asked(items(100), config)))) == 100
        assert [said.startswith(f"{dead.url} ") for said in caplog.messages] == [True], (
            "it is said once"
        )
        dead.start()
        assert len(texts(list(asked(items(300), config)))) == 300
        assert dead.asked, "it is tried again"


def test_all_endpoints_together_get_no_more_than_the_limit() -> None:
    under_way: set[str] = set()
    most = 0

    def answer(asked: Asked) -> str:
        nonlocal most
        under_way.add(asked.text)
        most = max(most, len(under_way))
        time.sleep(0.005)
        under_way.remove(asked.text)
        return asked.text

    with chat_server(answer) as first, chat_server(answer) as second:
        assert (
            len(texts(list(asked(items(150), config_of(first, second, max_concurrency=5))))) == 150
        )
    assert most == 5


def test_the_number_of_requests_falls_when_the_server_is_full() -> None:
    under_way, refused, changing, was_full = 0, 0, threading.Lock(), threading.Event()

    def answer(asked: Asked) -> Reply | Status:
        nonlocal under_way, refused
        with changing:
            under_way += 1
            full = under_way > 10
            refused += full
        if full:
            was_full.set()
        elif was_full.wait(
            0.5
        ):  # on a busy machine the first ones would be gone before the eleventh comes
            time.sleep(0.01)
        with changing:
            under_way -= 1
        return Status(429) if full else Reply(asked.text)

    with chat_server(answer) as server:
        assert len(texts(list(asked(items(600), config_of(server, max_attempts=20))))) == 600
    assert 0 < refused < 100


class Scripted(Connection):
    """Connection whose next answer is said beforehand."""

    fault: Exception | None = None

    async def post(self, body: dict[str, object]) -> Answer:
        await asyncio.sleep(0)
        if self.fault:
            raise self.fault
        return read_answer(b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}')


def open_endpoints(*, limit: int = 8, patience_s: float = 60.0) -> tuple[Endpoints, Scripted]:
    """Return an endpoint that is taken and answers without a server."""
    connection = Scripted("http://127.0.0.1:1/v1", "PAIRWRIGHT_TEST_KEY", timeout_s=1, pace=QUICK)
    made = [Endpoint(connection, Limiter(limit, limit))]
    pace = replace(QUICK, rest_s=1.0, rest_most_s=1.0)
    return Endpoints(made, most=limit, patience_s=patience_s, pace=pace), connection


async def end(
    endpoints: Endpoints, endpoint: Endpoint, reason: Reason | None = None, *, request: int = 1
) -> None:
    """Let a taken endpoint answer, or fail."""
    assert isinstance(endpoint.connection, Scripted)
    endpoint.connection.fault = FaultError(reason, "test") if reason else None
    with suppress(FaultError):
        await endpoints.post(endpoint, {}, request)


def test_a_turn_that_nobody_waits_for_any_more_is_given_back() -> None:
    async def act() -> None:
        endpoints, _ = open_endpoints(limit=1)
        endpoint = await endpoints.take()
        waiting = [asyncio.create_task(endpoints.take()) for _ in range(2)]
        await asyncio.sleep(0)
        await end(endpoints, endpoint)  # the first of them has it now, and does not know yet
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert await asyncio.wait_for(waiting[1], 5) is not None

    run(act())


@pytest.mark.parametrize("why", ["gone", "refused"])
def test_all_who_wait_are_told_that_there_is_nothing_to_wait_for(why: str) -> None:
    async def act() -> None:
        endpoints, connection = open_endpoints(limit=1, patience_s=0.0)
        endpoint = await endpoints.take()
        waiting = [asyncio.create_task(endpoints.take()) for _ in range(5)]
        await asyncio.sleep(0.01)
        connection.fault = (
            ServerError("no key") if why == "refused" else FaultError("no connection", "test")
        )
        with pytest.raises(
            ServerError, match="no key" if why == "refused" else r"127\.0\.0\.1:1/v1"
        ):
            await endpoints.post(endpoint, {}, 1)
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert [type(result) for result in results] == [ServerError] * len(waiting)

    run(act())


# ---- the limit's way, every number derived by hand


def feed(limiter: Limiter, count: int) -> int:
    """Answer so many requests of a queue that never ends; return the limit that comes about."""
    for _ in range(count):
        limiter.under_way = max(limiter.under_way, limiter.limit)
        limiter.answered()
        limiter.under_way -= 1
    return limiter.limit


def overload(limiter: Limiter, *, together: int, times: int = 1) -> int:
    """Let so many of the requests that are under way together be too much; return the limit that
    comes about."""
    limiter.under_way = together
    wave = limiter.wave
    for _ in range(times):
        limiter.overloaded(wave)
        limiter.under_way -= 1
    return limiter.limit


def test_the_limit_doubles_with_each_round_up_to_the_most() -> None:
    limiter = Limiter(most=30, start=4)
    assert feed(limiter, 4) == 8
    assert feed(limiter, 8) == 16
    assert feed(limiter, 1000) == 30
    assert Limiter(most=2, start=4).limit == 2


def test_concurrency_limit_halves_once_and_grows_by_one() -> None:
    limiter = Limiter(most=64, start=16)
    assert overload(limiter, together=16, times=5) == 8
    assert [feed(limiter, 7), feed(limiter, 1)] == [8, 9]
    assert [feed(limiter, 8), feed(limiter, 1)] == [9, 10]
    assert overload(limiter, together=8) == 4
