"""Share a client's requests among its endpoints: the least loaded is next, failing ones rest.

An endpoint that is unreachable or fails repeatedly rests, and is then tried with one request. When
none has answered for the profile's patience, the shard fails; single requests have their own number
of tries. Everything happens on one event loop.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pairwright.schemas.errors import ServerError
from pairwright.tasks.serving.chat import Answer, RefusedQuestionError
from pairwright.tasks.serving.connection import Connection, Pace
from pairwright.tasks.serving.faults import FaultError, StatusError

log = logging.getLogger(__name__)
DOUBTFUL = 3  # consecutive faults after which a reachable endpoint also rests


class Limiter:
    """Adaptive limit of concurrent requests at one endpoint, like TCP's congestion window.

    It starts with exponential growth (one more request per answer) and turns linear (one more per
    round of answers) after the server was overloaded, which halves the limit. Answers below the
    limit do not count.
    """

    def __init__(self, most: int, start: int) -> None:
        self.limit = min(start, most)
        self.under_way = 0  # counted by the caller
        self.wave = 0  # number of halvings, noted by new requests
        self._most = most
        self._count = 0  # answers since the limit changed

    def answered(self) -> None:
        """Count an answer, whose request is still in ``under_way``."""
        if self.under_way < self.limit:
            return
        self._count += 1
        needed = self.limit if self.wave else 1
        if self._count >= needed:
            self.limit = min(self.limit + 1, self._most)
            self._count = 0

    def overloaded(self, wave: int) -> None:
        """Halve the limit, once for all requests of one wave."""
        together = min(self.limit, self.under_way)
        if wave == self.wave and together > 1:  # a single request cannot be reduced
            self.wave += 1
            self.limit = together // 2
            self._count = 0


@dataclass(slots=True, eq=False)
class Endpoint:
    """One server and its state."""

    connection: Connection
    limiter: Limiter
    streak: int = 0  # faults since its last answer; concurrent ones count once
    failed_at: float = 0.0
    rests_until: float = 0.0


class Endpoints:
    """Endpoints of one client."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        most: int,
        patience_s: float,
        pace: Pace,
    ) -> None:
        """Keep the endpoints; ``most``: maximum concurrent requests in all."""
        self.all = tuple(endpoints)
        self._most = most
        self._patience_s = patience_s
        self._pace = pace
        self._waiting: deque[asyncio.Future[Endpoint]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._failing = set[int]()  # requests failed since the last answer
        self._given_up = 0
        self.answered_at = -1.0

    @property
    def room(self) -> int:
        """Return the current limit of concurrent requests."""
        return min(self._most, sum(endpoint.limiter.limit for endpoint in self.all))

    async def acquire(self, *, goes_first: bool = False) -> Endpoint:
        """Wait for an endpoint for one request; ``ServerError`` where waiting is useless.

        ``goes_first``: before those that wait already.
        """
        waiter: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
        if goes_first:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        self._assign()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                waiter.result().limiter.under_way -= 1
                self._assign()
            raise

    async def post(
        self,
        endpoint: Endpoint,
        body: dict[str, object],
        request: int,
    ) -> Answer:
        """Send a request to a taken endpoint and update its state; ``request``: its number.

        Raises as ``Connection.post``, and ``ServerError`` also where no endpoint has answered for
        too long.
        """
        limiter = endpoint.limiter
        wave = limiter.wave
        since = time.monotonic()
        try:
            answer = await endpoint.connection.post(body)
        except (RefusedQuestionError, StatusError):
            self._note_answer(endpoint)
            raise
        except FaultError as fault:
            if fault.reason in ("server busy", "no answer in time"):
                limiter.overloaded(wave)
            patience = self._check_patience(fault, request)
            self._rest(endpoint, fault, since, patience)
            raise
        except ServerError as error:  # spare the waiting requests
            self._fail_waiting(error)
            raise
        else:
            self._note_answer(endpoint)
            return answer
        finally:
            limiter.under_way -= 1
            self._assign()

    def _note_answer(self, endpoint: Endpoint) -> None:
        """Count an answer or a refusal: the endpoint and the client are in order."""
        endpoint.limiter.answered()
        endpoint.streak = 0
        endpoint.rests_until = 0.0
        self._given_up = 0
        self.answered_at = time.monotonic()
        self._failing.clear()

    def _check_patience(self, fault: FaultError, request: int) -> float:
        """Return the remaining patience; ``ServerError`` when it is over."""
        now = time.monotonic()
        if not self._failing:
            self._silent_since = now
        self._failing.add(request)
        patience = self._patience_s / 2**self._given_up
        remaining = self._silent_since + patience - now
        is_servers = fault.reason in ("server busy", "no connection")  # not the request's fault
        if remaining > 0 or not (is_servers or len(self._failing) > 1):
            return max(0.0, remaining)
        self._given_up += 1  # the next shard waits half as long
        self._failing.clear()
        urls = ", ".join(endpoint.connection.url for endpoint in self.all)
        silent = "no server answered"
        if fault.reason not in ("no connection", "no answer in time"):
            silent = "each request failed"
        error = ServerError(
            f"{urls}: {silent} for {patience:.3g} s (models.*.patience_seconds); "
            f"last error: {fault}: {fault.advice}. Then repeat the command"
        )
        raise self._fail_waiting(error)

    def _rest(
        self,
        endpoint: Endpoint,
        fault: FaultError,
        since: float,
        most: float,
    ) -> None:
        """Let an endpoint rest, but try it once more before patience ends."""
        now = time.monotonic()
        before = endpoint.streak
        if since >= endpoint.failed_at:
            endpoint.streak += 1
            endpoint.failed_at = now
        if fault.reason == "no connection":
            endpoint.streak = max(DOUBTFUL, endpoint.streak)
        if before < DOUBTFUL <= endpoint.streak:
            log.warning(
                "%s rests after failures, with occasional tries: %s", endpoint.connection.url, fault
            )
        rest_s = 0.0
        if endpoint.streak >= DOUBTFUL:  # random, so that clients do not return together
            doublings = min(endpoint.streak - DOUBTFUL, 30)
            rest_s = min(self._pace.rest_most_s, self._pace.rest_s * 2**doublings)
            rest_s *= random.uniform(0.5, 1)
        if fault.retry_after is not None:
            rest_s = fault.retry_after
        endpoint.rests_until = max(endpoint.rests_until, now + min(rest_s, most))

    def _fail_waiting(self, error: ServerError) -> ServerError:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ServerError(str(error)))
        return error

    def _assign(self) -> None:
        """Assign endpoints to waiting requests, in order; repeat when the next rest ends."""
        now = time.monotonic()
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()  # cancelled
                continue
            endpoint = self._least_loaded(now)
            if endpoint is None:
                break
            endpoint.limiter.under_way += 1
            self._waiting.popleft().set_result(endpoint)
        if self._timer:
            self._timer.cancel()
        rests = [endpoint.rests_until - now for endpoint in self.all if endpoint.rests_until > now]
        if self._waiting and rests:
            delay = min(rests) + 0.001
            self._timer = asyncio.get_running_loop().call_later(delay, self._assign)

    def _least_loaded(self, now: float) -> Endpoint | None:
        """Return an endpoint at which one more request may begin.

        A doubtful one gets a single request.
        """
        if sum(endpoint.limiter.under_way for endpoint in self.all) >= self._most:
            return None
        free: list[Endpoint] = []
        for endpoint in self.all:
            if endpoint.rests_until > now:
                continue
            limit = 1 if endpoint.streak >= DOUBTFUL else endpoint.limiter.limit
            if endpoint.limiter.under_way < limit:
                free.append(endpoint)
        random.shuffle(free)  # clients should not all start with the first endpoint
        return min(
            free,
            key=lambda endpoint: endpoint.limiter.under_way / endpoint.limiter.limit,
            default=None,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._timer:
            self._timer.cancel()
        for endpoint in self.all:
            await endpoint.connection.http.aclose()
