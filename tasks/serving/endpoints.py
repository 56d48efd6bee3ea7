"""Be the servers that share a client's load: which of them is asked next, and which one is left alone for a while."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schemas.errors import ServerError
from tasks.serving.chat import RefusedQuestionError
from tasks.serving.faults import FaultError, fault_of_status, message_of
from tasks.serving.limiter import Limiter
from tasks.serving.pace import Pace

if TYPE_CHECKING:
    import httpx2
    import openai

_HEADERS = frozenset({"host", "accept", "connection", "content-type", "content-length", "user-agent"})


class Endpoint:
    """Be one server, and what is known of it."""

    def __init__(self, url: str, key: str, limiter: Limiter, *, timeout_s: float, pace: Pace) -> None:
        """Connect to nothing yet."""
        self.url = url
        self.limiter = limiter
        self.rests_until = 0.0
        self.streak = 0
        """Faults since its last answer."""
        self._timeout_s = timeout_s
        self._pace = pace
        self._client = _connect(url, key, pace)

    async def post(self, body: dict[str, Any]) -> bytes:
        """Return the body of the answer.

        Raises:
            FaultError: it failed, and may go well another time.
            RefusedQuestionError: the server says that the request is wrong.
            ServerError: the server takes no request of this client.
        """
        import httpx2
        import openai

        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
            return response.content
        except (TimeoutError, openai.APITimeoutError):
            raise FaultError("no answer in time", f"{self._timeout_s:g} s") from None
        except openai.APIStatusError as error:
            raise self._status(error.response) from None
        except openai.APIConnectionError as error:
            reason = "no connection" if isinstance(error.__cause__, httpx2.ConnectError) else "broken answer"
            raise FaultError(reason, str(error.__cause__)) from None

    def _status(self, response: "httpx2.Response") -> Exception:
        status, message = response.status_code, message_of(response.content)
        if status in (400, 413, 422):
            return RefusedQuestionError("the server refused the request", message)
        fault = fault_of_status(status, message, response.headers.get("retry-after", ""))
        return fault or ServerError(f"{self.url}: HTTP {status}: {message}")

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()


class Endpoints:
    """Hand out the least loaded endpoint, as soon as one is free."""

    def __init__(self, endpoints: Sequence[Endpoint], *, patience_s: float, pace: Pace) -> None:
        """Take the endpoints as they are."""
        self._endpoints = tuple(endpoints)
        self._patience_s = patience_s
        self._pace = pace
        self._waiting: deque[asyncio.Future[Endpoint]] = deque()
        self.trouble_since: float | None = None
        self.answered_at = 0.0

    @property
    def room(self) -> int:
        """Return how many requests there may be at once."""
        return sum(endpoint.limiter.limit for endpoint in self._endpoints)

    async def take(self) -> Endpoint:
        """Return an endpoint that may be asked, once there is one; it is given back by ``give``."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._serve()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().limiter.end(answered=False, overloaded=False)
                self._serve()
            raise

    def answered(self, endpoint: Endpoint) -> None:
        """Give an endpoint back that answered."""
        endpoint.limiter.end(answered=True, overloaded=False)
        endpoint.streak, endpoint.rests_until = 0, 0.0
        self.trouble_since, self.answered_at = None, time.monotonic()
        self._serve()

    def left(self, endpoint: Endpoint) -> None:
        """Give an endpoint back of which nothing was learnt."""
        endpoint.limiter.end(answered=False, overloaded=False)
        self._serve()

    def failed(self, endpoint: Endpoint, fault: FaultError) -> None:
        """Give an endpoint back that failed.

        Raises:
            ServerError: no endpoint has answered for too long.
        """
        now = time.monotonic()
        endpoint.limiter.end(answered=False, overloaded=fault.is_overload)
        endpoint.streak += 1
        if self.trouble_since is None:
            self.trouble_since = now
        left = self.trouble_since + self._patience_s - now
        if left <= 0:
            self._serve()
            raise ServerError(f"{endpoint.url}: no answer for {self._patience_s:g} s ({fault}): is the server running?")
        rest = random.uniform(0, min(self._pace.rest_most_s, self._pace.rest_s * 2 ** min(endpoint.streak, 16)))
        endpoint.rests_until = now + min(left, rest if fault.retry_after is None else fault.retry_after)
        self._serve()

    def _serve(self) -> None:
        """Hand out what is free, in the order in which it was asked for; look again when the next rest ends."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif endpoint := self._free():
                endpoint.limiter.begin()
                self._waiting.popleft().set_result(endpoint)
            else:
                break
        resting = [endpoint.rests_until for endpoint in self._endpoints if endpoint.rests_until > time.monotonic()]
        if self._waiting and resting:
            asyncio.get_running_loop().call_later(min(resting) - time.monotonic() + 0.001, self._serve)

    def _free(self) -> Endpoint | None:
        now = time.monotonic()
        free = [one for one in self._endpoints if one.limiter.is_free and one.rests_until <= now]
        return min(free, key=lambda one: one.limiter.under_way / one.limiter.limit, default=None)

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            await endpoint.close()


def _connect(url: str, key: str, pace: Pace) -> "openai.AsyncOpenAI":
    import httpx2
    import openai

    async def trim(request: httpx2.Request) -> None:
        """Send what is needed and nothing that the environment would add."""
        for name in {name.lower() for name in request.headers} - _HEADERS - ({"authorization"} if key else set()):
            del request.headers[name]

    http = httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=pace.connect_s),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=4.0),
        trust_env=False,
        event_hooks={"request": [trim]},
    )
    return openai.AsyncOpenAI(api_key=key or "none", base_url=url, max_retries=0, http_client=http)
