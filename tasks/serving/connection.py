"""Talk to one OpenAI-compatible server, whatever it says. Needs the network, and ``openai``.

Only what a request needs is sent: no cookies, none of the headers that the library adds of itself or from the
environment, and the key only to the address that the profile names, since no redirect is followed. Servers on this
machine are asked directly, whatever proxy the environment names.
"""

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.tasks.serving.chat import REFUSED, RefusedQuestionError
from pairwright.tasks.serving.faults import (
    REFUSALS,
    FaultError,
    Said,
    fault_of_status,
    message_of,
    read_answer,
    root_of,
    shown,
)
from pairwright.tasks.serving.keys import Key
from pairwright.tasks.serving.pace import Pace

if TYPE_CHECKING:
    import httpx2
    import openai

_SENT = frozenset({"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"})


class Connection:
    """Be the way to one server."""

    def __init__(self, url: str, key: Key, *, timeout_s: float, pace: Pace) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigError: this is no address of a server.
        """
        check_address(url)
        self.url = url
        self._key = key
        self._timeout_s = timeout_s
        self._client = _client(url, key, pace)

    async def post(self, body: dict[str, Any]) -> Said:
        """Return what the server answers.

        Raises:
            FaultError: it failed, and may go well another time.
            RefusedQuestionError: the server will not answer this.
            ServerError: the server takes no request of this client.
        """
        import httpx2

        response = await self._send(self._client.post("/chat/completions", cast_to=httpx2.Response, body=body))
        if response.status_code != 200:
            raise await self._explain(response, str(body["model"]))
        return read_answer(response.content, self._key.hide)

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the server has.

        Raises:
            FaultError: it does not say.
            ServerError: the server takes no request of this client.
        """
        import httpx2

        response = await self._send(self._client.get("/models", cast_to=httpx2.Response))
        if response.status_code in (401, 403):
            raise await self._explain(response, "")
        try:
            return tuple(shown(self._key.hide(model["id"])) for model in response.json()["data"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise FaultError("broken answer", f"no list of models (HTTP {response.status_code})") from None

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _send(self, request: Any) -> "httpx2.Response":
        """Return the response to a request, whatever its status is."""
        import httpx2
        import openai

        try:
            async with asyncio.timeout(self._timeout_s):
                return await request
        except openai.APIStatusError as error:
            return error.response
        except TimeoutError:
            raise FaultError("no answer in time", f"{self._timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            lost = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)
            reason = "no connection" if lost else "broken answer"
            raise FaultError(reason, root_of(cause, self._key.hide)) from None

    async def _explain(self, response: "httpx2.Response", model: str) -> Exception:
        """Return the error that a response without an answer stands for."""
        status, message = response.status_code, message_of(response.content, self._key.hide)
        if status in REFUSALS:
            return RefusedQuestionError(REFUSED, message)
        if fault := fault_of_status(status, message, response.headers.get("retry-after", "")):
            return fault
        if status in (401, 403):
            return ServerError(f"{self.url}: HTTP {status}: {message}: {self._what_of_the_key()}")
        if status == 404 and (served := await self._others(model)):
            return ServerError(f"{self.url}: no model {model!r} there, but {', '.join(served)}: set models.*.model")
        if 300 <= status < 400:
            place = shown(self._key.hide(response.headers.get("location", "")))
            return ServerError(f"{self.url}: HTTP {status}: it leads to {place}: put that into models.*.endpoint")
        return ServerError(
            f"{self.url}: HTTP {status}: {message}: is this the address of an OpenAI-compatible server? "
            "They often end in /v1; correct models.*.endpoint"
        )

    async def _others(self, model: str) -> tuple[str, ...]:
        """Return the models of a server that has not this one; none where that is not what is wrong."""
        try:
            served = await self.models()
        except (FaultError, ServerError):
            return ()
        return () if model in served else served

    def _what_of_the_key(self) -> str:
        said = f"it does not take the key in {self._key.place}" if self._key else "it wants a key"
        return f"{said}; put the right one into {self._key.place}"


def check_address(url: str) -> None:
    """Refuse what is no address of a server; no message repeats a password.

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError("models.*.endpoint: this is no address; one looks like http://127.0.0.1:8000/v1") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            "models.*.endpoint: an address holds no passwords, queries or fragments; a key is read from the "
            "environment variable that models.*.key names"
        )
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"models.*.endpoint: {shown(url)} is no address; one looks like http://127.0.0.1:8000/v1")


def is_here(host: str) -> bool:
    """Say whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _client(url: str, key: Key, pace: Pace) -> "openai.AsyncOpenAI":
    import httpx2
    import openai

    for name in ("httpx2", "httpcore2", "openai"):
        logging.getLogger(name).setLevel(logging.WARNING)  # one line, or several, for each request

    async def trim(request: httpx2.Request) -> None:
        for name in {name.lower() for name in request.headers} - _SENT:
            del request.headers[name]
        if key:
            request.headers["authorization"] = f"Bearer {key}"

    class Bounded(httpx2.AsyncByteStream):
        """Be a response's bytes; too many of them are a fault."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._stream:
                size += len(piece)
                if size > pace.max_bytes:
                    raise FaultError("broken answer", f"longer than {pace.max_bytes} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise FaultError("broken answer", "compressed, though nobody asked for that")
        response.stream = Bounded(response.stream)

    http = httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=httpx2.Timeout(None, connect=pace.connect_s),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=pace.idle_s),
        verify=httpx2.create_ssl_context(),
        trust_env=not is_here(urlsplit(url).hostname or ""),
        event_hooks={"request": [trim], "response": [bound]},
    )
    return openai.AsyncOpenAI(
        api_key=str(key) or "none", base_url=url, max_retries=0, timeout=http.timeout, http_client=http
    )
