"""Share a client's requests among its endpoints: who is asked next, who is left alone, and when to give up.

An endpoint that cannot be reached, or fails again and again, rests for a while and is then tried with one request. When
no endpoint has answered for as long as the profile's patience goes, the shard fails; as long as one may still be there,
nothing is lost by waiting. A single request that fails and fails is no proof of that: it has its own number of tries.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pairwright.schemas.errors import ServerError
from pairwright.tasks.serving.connection import Connection
from pairwright.tasks.serving.faults import FaultError
from pairwright.tasks.serving.limiter import Limiter
from pairwright.tasks.serving.pace import Pace

log = logging.getLogger(__name__)
DOUBTFUL = 3
"""Faults in turn after which an endpoint rests also where it can be reached."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """Be one server, and what is known of it."""

    connection: Connection
    limiter: Limiter
    streak: int = 0
    """Faults since its last answer; those of requests that were under way together count once."""
    failed_at: float = 0.0
    rests_until: float = 0.0
    asked: int = 0
    """Requests so far."""

    def is_free(self, now: float) -> bool:
        """Say whether one more request may begin."""
        if self.rests_until > now:
            return False
        return self.limiter.is_free and not (self.streak >= DOUBTFUL and self.limiter.under_way)

    @property
    def load(self) -> tuple[float, int]:
        """Return how busy it is; of two that are equally busy, the one that was asked less comes first."""
        return self.limiter.under_way / self.limiter.limit, self.asked


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Be leave to ask an endpoint once."""

    endpoint: Endpoint
    wave: int
    since: float


@dataclass(slots=True)
class Trouble:
    """Be a time in which no endpoint answers."""

    since: float
    requests: set[int] = field(default_factory=set)
    """Who failed in it."""


class Endpoints:
    """Hand out turns, to the least loaded endpoint first; everything happens on one event loop."""

    def __init__(self, endpoints: Sequence[Endpoint], *, most: int, patience_s: float, pace: Pace) -> None:
        """Take the endpoints, and how many requests there may be at once in all."""
        self._endpoints = tuple(endpoints)
        self._most = most
        self._patience_s = patience_s
        self._pace = pace
        self._waiting: deque[asyncio.Future[Turn]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._trouble: Trouble | None = None
        self._given_up = 0
        self.answered_at = -1.0
        """When an endpoint answered last."""

    @property
    def room(self) -> int:
        """Return how many requests there may be at once, as far as is known."""
        return min(self._most, sum(endpoint.limiter.limit for endpoint in self._endpoints))

    @property
    def first(self) -> Connection:
        """Return the first endpoint's connection."""
        return self._endpoints[0].connection

    async def take(self) -> Turn:
        """Wait for a turn, which ends with ``answered``, ``failed`` or ``left``."""
        waiter: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                self.left(waiter.result())
            raise

    def answered(self, turn: Turn) -> None:
        """End a turn with an answer."""
        turn.endpoint.limiter.answered()
        turn.endpoint.streak, turn.endpoint.rests_until = 0, 0.0
        self._trouble, self._given_up = None, 0
        self.answered_at = time.monotonic()
        self._hand_out()

    def left(self, turn: Turn) -> None:
        """End a turn of which nothing was learnt."""
        turn.endpoint.limiter.left()
        self._hand_out()

    def refused(self, turn: Turn, error: ServerError) -> None:
        """End a turn at an endpoint that takes no request of this client; nobody who waits need try that, too."""
        turn.endpoint.limiter.left()
        self._give_up(error)

    def failed(self, turn: Turn, fault: FaultError, request: int) -> None:
        """End a turn with a fault.

        Raises:
            ServerError: no endpoint has answered for too long.
        """
        now = time.monotonic()
        if fault.is_overload:
            turn.endpoint.limiter.overloaded(turn.wave)
        else:
            turn.endpoint.limiter.left()
        self._trouble = self._trouble or Trouble(now)
        self._trouble.requests.add(request)
        patience = self._patience_s / 2**self._given_up
        left = self._trouble.since + patience - now
        if left <= 0 and (fault.is_servers or len(self._trouble.requests) > 1):
            # The next shard waits half as long: a server that is gone for good must not cost each of them as much.
            self._given_up, self._trouble = self._given_up + 1, None
            error = ServerError(self._farewell(patience, fault))
            self._give_up(error)
            raise error
        self._rest(turn, fault, max(0.0, left))
        self._hand_out()

    def _rest(self, turn: Turn, fault: FaultError, most: float) -> None:
        """Leave an endpoint alone for a while, but try it once more before patience ends."""
        endpoint, now = turn.endpoint, time.monotonic()
        before = endpoint.streak
        if turn.since >= endpoint.failed_at:
            endpoint.streak, endpoint.failed_at = endpoint.streak + 1, now
        if fault.reason == "no connection":
            endpoint.streak = max(DOUBTFUL, endpoint.streak)
        if before < DOUBTFUL <= endpoint.streak:
            log.warning("%s rests and is tried now and then: %s", endpoint.connection.url, fault)
        if fault.retry_after is not None:
            rest = fault.retry_after
        elif endpoint.streak < DOUBTFUL:
            return
        else:
            rest = min(self._pace.rest_most_s, self._pace.rest_s * 2 ** min(endpoint.streak - DOUBTFUL, 30))
            rest *= random.uniform(0.5, 1)  # clients that failed together do not come back together
        endpoint.rests_until = max(endpoint.rests_until, now + min(rest, most))

    def _farewell(self, patience: float, fault: FaultError) -> str:
        urls = ", ".join(endpoint.connection.url for endpoint in self._endpoints)
        several = "no server answers" if len(self._endpoints) > 1 else "the server does not answer"
        return (
            f"{urls}: {several} for {patience:.3g} s (at last: {fault}); start it, or correct its address, and go on "
            "with the same command"
        )

    def _give_up(self, error: ServerError) -> None:
        """Tell all who wait that there is nothing to wait for."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ServerError(str(error)))

    def _hand_out(self) -> None:
        """Give turns to those who wait, in their order; look again when the next rest ends."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()  # cancelled
            elif endpoint := self._free():
                endpoint.asked += 1
                self._waiting.popleft().set_result(Turn(endpoint, endpoint.limiter.begin(), time.monotonic()))
            else:
                break
        if self._timer:
            self._timer.cancel()
            self._timer = None
        now = time.monotonic()
        resting = [endpoint.rests_until for endpoint in self._endpoints if endpoint.rests_until > now]
        if self._waiting and resting:
            self._timer = asyncio.get_running_loop().call_later(min(resting) - now + 0.001, self._hand_out)

    def _free(self) -> Endpoint | None:
        if sum(endpoint.limiter.under_way for endpoint in self._endpoints) >= self._most:
            return None
        now = time.monotonic()
        free = [endpoint for endpoint in self._endpoints if endpoint.is_free(now)]
        # The clients of many workers begin together: not all of them with the first endpoint.
        return min(free, key=lambda endpoint: (*endpoint.load, random.random()), default=None)

    async def close(self) -> None:
        """Close all connections."""
        if self._timer:
            self._timer.cancel()
        for endpoint in self._endpoints:
            await endpoint.connection.close()
