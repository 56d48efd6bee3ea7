"""Share a client's requests among its endpoints: the least loaded is asked next, and what fails rests.

An endpoint that cannot be reached, or fails again and again, rests for a while and is then tried with one request. When
none has answered for as long as the profile's patience goes, the shard fails; a single request has its own number of
tries. Everything happens on one event loop.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.schemas.errors import ServerError
from pairwright.tasks.serving.chat import RefusedQuestionError
from pairwright.tasks.serving.connection import Completion, Connection, FaultError, Pace

log = logging.getLogger(__name__)
DOUBTFUL = 3
"""Faults in turn after which an endpoint rests also where it can be reached."""


class Limiter:
    """Limit of the requests under way at one endpoint, as TCP limits packets: up while answers come, halved otherwise.

    At first each answer lets one more request begin, so that the limit doubles with each round; once a server was full
    or late, a whole round of answers does. Answers while too little was asked say nothing and do not count.
    """

    def __init__(self, most: int, start: int) -> None:
        self.limit = min(start, most)
        self.under_way = 0
        """Counted by who asks."""
        self.wave = 0
        """Of requests that begin now; how often the limit was halved."""
        self._most = most
        self._count = 0
        """Answers since the limit changed."""

    def answered(self) -> None:
        """Learn from a request that was answered and is still counted in ``under_way``."""
        if self.under_way < self.limit:
            return
        self._count += 1
        if self._count >= (self.limit if self.wave else 1):
            self.limit, self._count = min(self.limit + 1, self._most), 0

    def overloaded(self, wave: int) -> None:
        """Learn from a request that was too much for the server; those of one wave count once."""
        together = min(self.limit, self.under_way)
        if wave == self.wave and together > 1:  # one that was alone could not have had less company
            self.wave += 1
            self.limit, self._count = together // 2, 0


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server, and what is known of it."""

    connection: Connection
    limiter: Limiter
    streak: int = 0
    """Faults since its last answer; those of requests that were under way together count once."""
    failed_at: float = 0.0
    rests_until: float = 0.0

    def is_free(self, now: float) -> bool:
        """Say whether one more request may begin; one that failed often gets a single one."""
        most = 1 if self.streak >= DOUBTFUL else self.limiter.limit
        return self.rests_until <= now and self.limiter.under_way < most


class Endpoints:
    """Endpoints of one client."""

    def __init__(self, endpoints: Sequence[Endpoint], *, most: int, patience_s: float, pace: Pace) -> None:
        """Take the endpoints, and how many requests there may be at once in all."""
        self.all = tuple(endpoints)
        self._most = most
        self._patience_s = patience_s
        self._pace = pace
        self._waiting: deque[asyncio.Future[Endpoint]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._failing = set[int]()
        """Requests that failed since an endpoint answered last."""
        self._given_up = 0
        self.answered_at = -1.0

    @property
    def room(self) -> int:
        """Return how many requests there may be at once, as far as is known."""
        return min(self._most, sum(endpoint.limiter.limit for endpoint in self.all))

    async def take(self) -> Endpoint:
        """Wait for an endpoint that may be asked once; raise ``ServerError`` where there is nothing to wait for."""
        waiter: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                waiter.result().limiter.under_way -= 1
                self._hand_out()
            raise

    async def post(self, endpoint: Endpoint, body: dict[str, object], request: int) -> Completion:
        """Ask an endpoint that was taken once, and learn from what becomes of it; ``request``: the request's number.

        Raises as ``Connection.post``, and ``ServerError`` also where no endpoint has answered for too long.
        """
        limiter, wave, since = endpoint.limiter, endpoint.limiter.wave, time.monotonic()
        was_answered = False
        try:
            said = await endpoint.connection.post(body)
            was_answered = True
            return said
        except RefusedQuestionError:
            was_answered = True
            raise
        except FaultError as fault:
            if fault.reason in ("server busy", "no answer in time"):
                limiter.overloaded(wave)
            self._rest(endpoint, fault, since, self._check_patience(fault, request))
            raise
        except ServerError as error:  # nobody who waits need try that, too
            self._give_up(error)
            raise
        finally:
            if was_answered:
                limiter.answered()
                endpoint.streak, endpoint.rests_until = 0, 0.0
                self._given_up, self.answered_at = 0, time.monotonic()
                self._failing.clear()
            limiter.under_way -= 1
            self._hand_out()

    def _check_patience(self, fault: FaultError, request: int) -> float:
        """Return how much longer an answer of any endpoint is waited for; raise ``ServerError`` when that is over."""
        now = time.monotonic()
        if not self._failing:
            self._silent_since = now
        self._failing.add(request)
        patience = self._patience_s / 2**self._given_up
        left = self._silent_since + patience - now
        is_servers = fault.reason in ("server busy", "no connection")  # the request cannot be at fault
        if left > 0 or not (is_servers or len(self._failing) > 1):
            return max(0.0, left)
        self._given_up += 1  # the next shard waits half as long: a server that is gone must not cost each as much
        self._failing.clear()
        urls = ", ".join(endpoint.connection.url for endpoint in self.all)
        raise self._give_up(
            ServerError(
                f"{urls}: no server answers for {patience:.3g} s (models.*.patience_seconds); at last: {fault}: "
                f"{fault.advice}. Then go on with the same command"
            )
        )

    def _rest(self, endpoint: Endpoint, fault: FaultError, since: float, most: float) -> None:
        """Leave an endpoint alone for a while, but try it once more before patience ends."""
        now, before = time.monotonic(), endpoint.streak
        if since >= endpoint.failed_at:
            endpoint.streak, endpoint.failed_at = endpoint.streak + 1, now
        if fault.reason == "no connection":
            endpoint.streak = max(DOUBTFUL, endpoint.streak)
        if before < DOUBTFUL <= endpoint.streak:
            log.warning("%s rests and is tried now and then: %s", endpoint.connection.url, fault)
        rest = 0.0
        if endpoint.streak >= DOUBTFUL:  # clients that failed together do not come back together
            rest = min(self._pace.rest_most_s, self._pace.rest_s * 2 ** min(endpoint.streak - DOUBTFUL, 30))
            rest *= random.uniform(0.5, 1)
        rest = rest if fault.retry_after is None else fault.retry_after
        endpoint.rests_until = max(endpoint.rests_until, now + min(rest, most))

    def _give_up(self, error: ServerError) -> ServerError:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ServerError(str(error)))
        return error

    def _hand_out(self) -> None:
        """Give endpoints to those who wait, in their order; look again when the next rest ends."""
        now = time.monotonic()
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()  # cancelled
            elif endpoint := self._free(now):
                endpoint.limiter.under_way += 1
                self._waiting.popleft().set_result(endpoint)
            else:
                break
        if self._timer:
            self._timer.cancel()
        resting = [endpoint.rests_until - now for endpoint in self.all if endpoint.rests_until > now]
        if self._waiting and resting:
            self._timer = asyncio.get_running_loop().call_later(min(resting) + 0.001, self._hand_out)

    def _free(self, now: float) -> Endpoint | None:
        if sum(endpoint.limiter.under_way for endpoint in self.all) >= self._most:
            return None
        free = [endpoint for endpoint in self.all if endpoint.is_free(now)]
        random.shuffle(free)  # clients that begin together do not all begin with the first endpoint
        return min(free, key=lambda endpoint: endpoint.limiter.under_way / endpoint.limiter.limit, default=None)

    async def close(self) -> None:
        """Close all connections."""
        if self._timer:
            self._timer.cancel()
        for endpoint in self.all:
            await endpoint.connection.close()
