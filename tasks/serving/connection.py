"""HTTP connection to one OpenAI-compatible server; errors by who is at fault. Needs ``httpx2``.

The row: 400, 413, 422 and moderation (``RefusedQuestionError``); 403, 404, 409, 424
(``StatusError``). The server: temporary statuses, broken answers and lost connections
(``FaultError``), worth another try. The configuration: any other status (``ServerError``). Answers
are untrusted. The key goes only to the profile's address: redirects are not followed. Servers on
this machine bypass proxies.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.serving.chat import REFUSED, Answer, ModeratedError, RefusedQuestionError
from pairwright.tasks.serving.faults import (
    FaultError,
    MisfitError,
    Reason,
    StatusError,
    message_of,
    printable,
)
from pairwright.tasks.serving.read_response import read_response

HERE = re.compile(r"localhost|.*\.localhost|127(\.\d+){3}|::1")  # hosts that are this machine
_REASONS: dict[int, Reason] = {
    408: "no answer in time",
    425: "server busy",
    429: "server busy",
    503: "server busy",
    529: "server busy",
}
REFUSING = frozenset((400, 413, 414, 415, 422, 451))
"""Statuses by which a server rejects one request for good."""
DECLINING = {402: False, 403: False, 404: True, 409: True, 423: True, 424: True}
"""Statuses by which it declines one request now, and whether another try at once may help."""
MODERATED = re.compile(
    r"moderat|flagged|content[ _]?(?:policy|filter|management)|safety (?:system|filter|policy)"
    r"|responsible ai|prohibited[ _]content|inappropriate content|usage polic",
    re.IGNORECASE,
)
"""Words of a server that judges what is shown or said."""
KEY_WORDS = re.compile(
    r"\bkey\b|auth|permission|credential|token|forbidden|access|^\W*$", re.IGNORECASE
)
BAD_KEY = re.compile(
    r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|missing)"
    r"|(?:invalid|incorrect) api[ _-]?key",
    re.IGNORECASE,
)
"""Words of a server that rejects a key under another status than 401."""
NO_CREDIT = re.compile(r"insufficient_quota|insufficient (?:credit|balance)", re.IGNORECASE)
"""Words of a server that waiting does not help, under the status of one that is busy."""
TOO_LONG = re.compile(
    r"context (?:length|size|window)|maximum context|prompt is too long|too many (?:input )?tokens",
    re.IGNORECASE,
)
"""Words of a server that rejects a long request under a status of its own failures."""
SIZE_ADVICE = "raise the limit of the server or its proxy, or lower models.*.max_pixels"
REFUSED_TYPES = ("invalid_request", "invalid_argument", "bad_request", "context_length")
"""Beginnings of the kinds of errors by which a body of status 200 rejects a request."""
DELAY = re.compile(
    rb'"retryDelay":\s*"(\d{1,6}(?:\.\d+)?)s"|try again in (\d{1,6}(?:\.\d+)?) ?(ms|s)\b'
)
"""Delay in the body of a busy server: Gemini, OpenAI."""
NUMBER = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*", re.ASCII)
NUMBER_WITH_UNIT = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|)\s*", re.ASCII)


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

        Raises ``FaultError``, ``StatusError``, ``RefusedQuestionError`` or ``ServerError``.
        """
        content = await self._send("POST", "chat/completions", body)
        try:
            return read_response(content)
        except FaultError:
            code = error_code(content)
            if code:  # a gateway reports its provider's error
                raise self._explain(code, content, {}) from None
            raise

    async def post_form(self, path: str, form: dict[str, Any]) -> bytes:
        """Return the server's answer to a form with files; raises as ``post``."""
        return await self._send("POST", path, form=form)

    async def models(self) -> tuple[str, ...]:
        """Return the names of the server's models; raises as ``post``."""
        content = await self._send("GET", "models")
        try:
            listed = json.loads(content)
            models = listed["data"] if "data" in listed else listed["models"]
            names = [model["id"] if "id" in model else model["name"] for model in models]
            return tuple(map(printable, names))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise FaultError("broken answer", "no list of models") from None

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        form: dict[str, Any] | None = None,
    ) -> bytes:
        import httpx2

        unreachable = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self.http.request(method, path, json=body, **(form or {}))
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
            raise self._explain(response.status_code, content, response.headers)
        return content

    def _explain(
        self,
        status: int,
        content: bytes,
        headers: Mapping[str, str],
    ) -> Exception:
        """Return the error of a status other than 200."""
        message = message_of(content)
        detail = f"HTTP {status}"
        if message:
            detail = f"{detail}: {message}"
        given = status
        status = _true_status(status, message, content)
        if status == 413 and not TOO_LONG.search(message):
            message = f"{detail} ({SIZE_ADVICE})"
        if status in REFUSING or (MODERATED.search(message) and 400 <= status < 500):
            kind = ModeratedError if MODERATED.search(message) else RefusedQuestionError
            return kind(REFUSED, message)
        if status in _REASONS or status >= 500:
            reason = _REASONS.get(status, "server error")
            return FaultError(reason, detail, retry_after=read_retry_after(headers, content))
        if status in DECLINING:
            advice = self._advise(status, message)
            return StatusError(given, detail, advice=advice, is_retried=DECLINING[status])
        return MisfitError(status, f"{self.url}: {detail}: {self._advise(status, message)}")

    def _advise(self, status: int, message: str) -> str:
        """Return what to do about a status, where its words fit; empty: only the server knows."""
        if status == 401 or (status == 403 and KEY_WORDS.search(message)):
            wants = "rejects the key" if self._key else "requires a key"
            return f"the server {wants}; set the environment variable {self._key_name}"
        if status in (402, 403, 409, 423, 424):
            return ""
        return (
            "check that it serves models.*.model, and that models.*.endpoint is an "
            "OpenAI-compatible server (often ending in /v1)"
        )


def _true_status(status: int, message: str, content: bytes) -> int:
    """Return the status that fits a server's words, where it gives another one."""
    if BAD_KEY.search(message):
        return 401
    if status == 429 and NO_CREDIT.search(content.decode("utf-8", "replace")):
        return 402
    if status >= 500 and TOO_LONG.search(message):
        return 400
    return status


def read_retry_after(headers: Mapping[str, str], content: bytes = b"") -> float | None:
    """Return the seconds that a server asks to wait, given in milliseconds, seconds or as a date.

    Without such a header, its words count. ``None``: it says nothing that can be read.
    """
    milliseconds = NUMBER.fullmatch(headers.get("retry-after-ms", ""))
    if milliseconds:
        return float(milliseconds[1]) / 1000
    value = headers.get("retry-after", "")
    unit = NUMBER_WITH_UNIT.fullmatch(value)
    if unit:
        return float(unit[1]) / (1000 if unit[2] == "ms" else 1)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return _read_delay(content)
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _read_delay(content: bytes) -> float | None:
    """Return the seconds of a delay in a body's words; ``None``: it has none."""
    delay = DELAY.search(content)
    if not delay:
        return None
    return float(delay[1] or delay[2]) / (1000 if delay[3] == b"ms" else 1)


def error_code(content: bytes) -> int:
    """Return the status of the error in a body that came with status 200; 0: it has none.

    An error without a status is the server's (500), unless its kind says that it is the request's.
    """
    try:
        response = json.loads(content)
        error = response["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0
    if not error or response.get("choices"):
        return 0
    if not isinstance(error, dict):
        return 500
    kinds = [str(error.get(name)).lower() for name in ("code", "type", "status")]
    for kind in kinds:
        if kind.isdecimal() and len(kind) == 3 and 400 <= int(kind) < 600:
            return int(kind)
    return 400 if any(kind.startswith(REFUSED_TYPES) for kind in kinds) else 500


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


def root_of(error: BaseException) -> str:
    """Return the root cause of a network error, in words: "[Errno 111] Connect call failed"."""
    cause = error.__cause__ or error.__context__
    while cause and str(cause):
        error = cause
        cause = error.__cause__ or error.__context__
    return str(error) or type(error).__name__
