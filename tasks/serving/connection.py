"""HTTP connection to one OpenAI-compatible server; errors by who is at fault. Needs ``httpx2``.

The row: 400, 413, 422 (``RefusedQuestionError``). The server: temporary statuses, broken answers
and lost connections (``FaultError``), worth another try. The configuration: any other status
(``ServerError``). Answers are untrusted. The key goes only to the profile's address: redirects are
not followed. Servers on this machine bypass proxies.
"""

import asyncio
import json
import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import Served
from pairwright.tasks.serving.chat import REFUSED, Answer, RefusedQuestionError

LONGEST = 300  # characters kept of a server's message
MAX_POSITIONS = 64  # tokens of an answer that are searched for one with a letter
Reason = Literal[
    "server busy", "no answer in time", "broken answer", "server error", "no connection"
]
ADVICE: dict[Reason, str] = {
    "no connection": "check that the server is running, and its address (models.*.endpoint)",
    "no answer in time": "it may still be loading, or be too slow for models.*.timeout_seconds",
    "server busy": "lower models.*.max_concurrency, or use a larger server",
    "server error": "see the server's log",
    "broken answer": (
        "check that models.*.endpoint is an OpenAI-compatible server (often ending in /v1)"
    ),
}
HERE = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|::1")  # hosts that are this machine
_REASONS: dict[int, Reason] = {408: "no answer in time", 429: "server busy", 503: "server busy"}


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Pace:
    """Waits and limits that suit every server, so that they are no settings; tests shorten them."""

    backoff_s: float = 0.5
    """Maximum wait before the second try, doubled before each later one; waits are random."""
    backoff_most_s: float = 30.0
    rest_s: float = 0.5  # rest of an unreachable endpoint, doubled each time it fails again
    rest_most_s: float = 15.0
    connect_s: float = 10.0  # connection timeout
    idle_s: float = 4.0
    """Keep-alive of a connection; servers like vLLM's close theirs after five seconds."""
    start: int = 8  # initial limit of concurrent requests per endpoint
    refusals: int = 5
    """Refused questions before the first answer that indicate a wrong setup of the server."""


PACE = Pace()


class FaultError(Exception):
    """Temporary failure of a request, worth another try."""

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail
        self.advice = ADVICE[reason]  # for when retries fail
        self.retry_after = retry_after  # seconds


class Connection:
    """Connection to one server."""

    def __init__(
        self,
        url: str,
        key_name: str,
        *,
        timeout_s: float,
        pace: Pace = PACE,
    ) -> None:
        """Create the client without connecting; ``ConfigError`` for an invalid address or key."""
        import httpx2

        check_address(url)
        for name in ("httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)  # they log headers of each request
        self.url = url
        self._key_name = key_name
        self._key = os.environ.get(key_name, "").strip()
        if any(not "!" <= character <= "~" for character in self._key):
            raise ConfigError(
                f"models.*.key: the environment variable {key_name} has spaces or non-ASCII "
                "characters"
            )
        self._timeout_s = timeout_s
        host = urlsplit(url).hostname or ""
        self.http = httpx2.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(None, connect=pace.connect_s),
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=None,
                keepalive_expiry=pace.idle_s,
            ),
            verify=httpx2.create_ssl_context(),
            trust_env=not HERE.fullmatch(host),
        )

    async def post(self, body: dict[str, Any]) -> Answer:
        """Return the server's answer.

        Raises ``FaultError``, ``RefusedQuestionError`` or ``ServerError``.
        """
        return read_answer(await self._send("POST", "chat/completions", body))

    async def models(self) -> tuple[str, ...]:
        """Return the names of the server's models; raises as ``post``."""
        content = await self._send("GET", "models")
        try:
            return tuple(printable(model["id"]) for model in json.loads(content)["data"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise FaultError("broken answer", "no list of models") from None

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
    ) -> bytes:
        import httpx2

        unreachable = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self.http.request(method, path, json=body)
        except TimeoutError:
            limit = f"{self._timeout_s:g} s of models.*.timeout_seconds"
            raise FaultError("no answer in time", limit) from None
        except unreachable as error:
            raise FaultError("no connection", printable(root_of(error))) from None
        except httpx2.HTTPError as error:
            raise FaultError("broken answer", printable(root_of(error))) from None
        content = response.content
        if self._key:
            content = content.replace(self._key.encode(), b"***")
        if response.status_code != 200:
            retry_after = response.headers.get("retry-after", "")
            raise self._explain(response.status_code, content, retry_after)
        return content

    def _explain(
        self,
        status: int,
        content: bytes,
        retry_after: str,
    ) -> Exception:
        """Return the error of a status other than 200."""
        message = message_of(content)
        if status in (400, 413, 422):
            return RefusedQuestionError(REFUSED, message)
        if status in _REASONS or status >= 500:
            seconds = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*", retry_after, re.ASCII)
            wait = float(seconds[1]) if seconds else None
            detail = f"HTTP {status}"
            if message:
                detail = f"{detail}: {message}"
            return FaultError(_REASONS.get(status, "server error"), detail, retry_after=wait)
        problem = f"{self.url}: HTTP {status}: {message}"
        if status in (401, 403):
            wants = "rejects the key" if self._key else "requires a key"
            return ServerError(
                f"{problem}: the server {wants}; set the environment variable {self._key_name}"
            )
        return ServerError(
            f"{problem}: check that it serves models.*.model, and that models.*.endpoint is an "
            "OpenAI-compatible server (often ending in /v1)"
        )


def check_address(url: str) -> None:
    """Raise ``ConfigError`` for an invalid server address; the message repeats no password."""
    if not url.isascii() or not url.isprintable() or " " in url or not _is_server(url):
        raise ConfigError(
            "models.*.endpoint: invalid address; use one like http://127.0.0.1:8000/v1, without "
            "password, query and fragment (keys are read from the environment variable named by "
            "models.*.key)"
        )


def _is_server(url: str) -> bool:
    """Return whether an address names a scheme and a host, and no password, query or fragment."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not has_host:
        return False
    return "@" not in parts.netloc and not parts.query and not parts.fragment


def read_answer(body: bytes) -> Answer:
    """Return the answer in a response body, without its question's name and seed.

    Raises as ``post``.
    """
    try:
        response: Any = json.loads(body)
        choice = response["choices"][0]
        message = choice["message"]
        reason = choice["finish_reason"]
        content = message["content"]
        refusal = message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise FaultError("broken answer", f"no answer in it: {message_of(body)}") from None
    if refusal and isinstance(refusal, str):
        raise RefusedQuestionError("the model refused", printable(refusal))
    if reason in ("abort", "error"):  # vLLM, when it stops early
        raise FaultError("server error", f"finish reason {reason}")
    if reason not in ("stop", "length") and isinstance(reason, str):
        detail = f"finish reason {printable(reason)}"
        raise RefusedQuestionError("the server ended the answer", detail)
    if content is None and reason == "length":
        content = ""  # all tokens were reasoning
    if not isinstance(reason, str) or not isinstance(content, str):
        raise FaultError("broken answer", f"no text in it: {message_of(body)}")
    return Answer(
        text=whole(content),
        served=_read_served(response, reason),
        first_token=_read_first_token(choice.get("logprobs")),
    )


def _read_first_token(logprobs: Any) -> tuple[tuple[str, float], ...]:
    """Return the alternatives of the first token with a letter, and their probabilities.

    What cannot be read gives none, since the answer is still valid.
    """
    try:
        for position in logprobs["content"][:MAX_POSITIONS]:
            if any(character.isalpha() for character in position["token"]):
                alternatives = position["top_logprobs"] or [position]
                return tuple(_read_probability(token) for token in alternatives)
    except (LookupError, TypeError, ValueError, AttributeError):
        return ()
    return ()


def _read_probability(token: Mapping[str, Any]) -> tuple[str, float]:
    return whole(str(token["token"])), math.exp(min(0.0, float(token["logprob"])))


def _read_served(response: Mapping[str, Any], reason: str) -> Served:
    """Return the server's data about its answer."""
    usage = response.get("usage")
    counts: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    return Served(
        prompt="",
        model=printable(str(response.get("model") or "")),
        revision=printable(str(response.get("system_fingerprint") or "")),
        seed=0,
        prompt_tokens=_read_count(counts.get("prompt_tokens")),
        completion_tokens=_read_count(counts.get("completion_tokens")),
        latency=0.0,
        finish_reason=reason,
    )


def _read_count(count: object) -> int:
    """Return a number of tokens; an implausible one is 0, since the answer is still valid."""
    if type(count) is int and 0 <= count < 2**31:
        return count
    return 0


def whole(text: str) -> str:
    """Return the text with lone surrogates replaced, which no file accepts."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def message_of(body: bytes) -> str:
    """Return an error body's message, in one printable line."""
    text = body.decode("utf-8", "replace")
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return printable(re.sub(r"<[^<>]{0,300}>", " ", text[: 64 * LONGEST]))
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and content.get(name):
            content = content[name]
    return printable(content if isinstance(content, str) else json.dumps(content))


def printable(text: str) -> str:
    """Return a server's text in one printable line of bounded length."""
    characters = [c if c.isprintable() else " " for c in text[: 8 * LONGEST]]
    line = " ".join("".join(characters).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def root_of(error: BaseException) -> str:
    """Return the root cause of a network error, in words: "[Errno 111] Connect call failed"."""
    cause = error.__cause__ or error.__context__
    while cause and str(cause):
        error = cause
        cause = error.__cause__ or error.__context__
    return str(error) or type(error).__name__
