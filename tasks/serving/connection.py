"""Talk to one OpenAI-compatible server, and say whose fault an error is. Needs the network, and ``httpx2``.

The row's: 400, 413, 422 (``RefusedQuestionError``). The server's: statuses that may pass, broken answers and lost
connections (``FaultError``), worth another try. The configuration's: any other status (``ServerError``). A server may
say anything in any form. The key goes only to the address that the profile names: no redirect is followed. Servers on
this machine are asked directly, whatever proxy the environment names.
"""

import asyncio
import ipaddress
import json
import logging
import re
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.tasks.serving.chat import REFUSED, RefusedQuestionError
from pairwright.tasks.serving.keys import Key

LONGEST = 300
"""Characters that are kept of what a server says."""
Reason = Literal["server busy", "no answer in time", "broken answer", "server error", "no connection"]
ADVICE: dict[Reason, str] = {
    "no connection": "is the server running, and is this its address (models.*.endpoint)?",
    "no answer in time": "it may be loading its model still, or too slow for models.*.timeout_seconds",
    "server busy": "others use it, or it is too small for models.*.max_concurrency",
    "server error": "the server's own log says why",
    "broken answer": "is this the address of an OpenAI-compatible server (models.*.endpoint)? They often end in /v1",
}
_REASONS: dict[int, Reason] = {408: "no answer in time", 429: "server busy", 503: "server busy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Waits and bounds of a client that suit every server, so that no profile names them; tests are quicker."""

    backoff_s: float = 0.5
    """Longest wait before the second try; twice as long before each later one. What is waited is any share of it."""
    backoff_most_s: float = 30.0
    rest_s: float = 0.5
    """How long an endpoint that cannot be reached is left alone; twice as long each time that it fails again."""
    rest_most_s: float = 15.0
    connect_s: float = 10.0
    """Longest wait for a connection."""
    idle_s: float = 4.0
    """How long a connection is kept for the next request; servers of vLLM's kind close theirs after five seconds."""
    start: int = 8
    """Requests that are under way at an endpoint before anything is known of it."""
    max_bytes: int = 4_194_304
    """Longer answers are broken: one of 32,000 tokens has some 200,000 bytes."""
    refusals: int = 5
    """So many refused questions, before any was answered, mean that the server is set up wrong; the rows are not."""


PACE = Pace()


class FaultError(Exception):
    """Say that a request failed in a way that may pass: it is worth another try."""

    def __init__(self, reason: Reason, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds that the server asks to wait."""

    @property
    def advice(self) -> str:
        """Return what to look at where no other try helped."""
        return ADVICE[self.reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Answer of a server, and what it says of itself."""

    text: str
    finish_reason: str
    model: str
    fingerprint: str
    prompt_tokens: int
    completion_tokens: int


class Connection:
    """Connection to one server."""

    def __init__(self, url: str, key: Key, *, timeout_s: float, pace: Pace = PACE) -> None:
        """Connect to nothing yet; raise ``ConfigError`` where this is no address of a server."""
        import httpx2

        check_address(url)
        for name in ("httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)  # several lines for each request, with their headers
        self.url = url
        self._key = key
        self._timeout_s = timeout_s
        self._max_bytes = pace.max_bytes
        self.http = httpx2.AsyncClient(
            base_url=url,
            headers={"accept-encoding": "identity"} | ({"authorization": f"Bearer {key.value}"} if key.value else {}),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            timeout=httpx2.Timeout(None, connect=pace.connect_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=pace.idle_s),
            verify=httpx2.create_ssl_context(),
            trust_env=not is_here(urlsplit(url).hostname or ""),
        )

    async def post(self, body: dict[str, Any]) -> Completion:
        """Return what the server answers; raise ``FaultError``, ``RefusedQuestionError`` or ``ServerError``."""
        return read_answer(await self._send("POST", "chat/completions", body))

    async def models(self) -> tuple[str, ...]:
        """Return the names of the models that the server has; raises as ``post``."""
        content = await self._send("GET", "models")
        try:
            return tuple(shown(model["id"]) for model in json.loads(content)["data"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise FaultError("broken answer", "no list of models") from None

    async def close(self) -> None:
        """Close its connections."""
        await self.http.aclose()

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        import httpx2

        content = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s), self.http.stream(method, path, json=body) as response:
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    raise FaultError("broken answer", "compressed, though nobody asked for that")
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > self._max_bytes:
                        raise FaultError("broken answer", f"longer than {self._max_bytes} bytes")
        except TimeoutError:
            raise FaultError("no answer in time", f"{self._timeout_s:g} s of models.*.timeout_seconds") from None
        except httpx2.HTTPError as error:
            lost = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)
            raise FaultError(
                "no connection" if lost else "broken answer", shown(self._key.hide(root_of(error)))
            ) from None
        said = self._key.hide_in_body(bytes(content))
        if response.status_code != 200:
            raise self._explain(response.status_code, said, response.headers.get("retry-after", ""))
        return said

    def _explain(self, status: int, content: bytes, retry_after: str) -> Exception:
        """Return the error that a status stands for; ``retry_after``: the header."""
        message = message_of(content)
        if status in (400, 413, 422):
            return RefusedQuestionError(REFUSED, message)
        if status in _REASONS or status >= 500:
            seconds = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*", retry_after, re.ASCII)
            wait = float(seconds[1]) if seconds else None
            detail = f"HTTP {status}" + (f": {message}" if message else "")
            return FaultError(_REASONS.get(status, "server error"), detail, retry_after=wait)
        said = f"{self.url}: HTTP {status}: {message}"
        if status in (401, 403):
            wants = f"it does not take the key in {self._key.place}" if self._key.value else "it wants a key"
            return ServerError(f"{said}: {wants}; put the right one into {self._key.place}")
        return ServerError(
            f"{said}: has it the model (models.*.model), and is this the address of an OpenAI-compatible server "
            "(models.*.endpoint)? They often end in /v1"
        )


def check_address(url: str) -> None:
    """Raise ``ConfigError`` for what is no address of a server; the message repeats no password."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        fits = fits and "@" not in parts.netloc and not parts.query and not parts.fragment
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(
            "models.*.endpoint: this is no address; one looks like http://127.0.0.1:8000/v1, without password, query "
            "and fragment (a key is read from the environment variable that models.*.key names)"
        )


def is_here(host: str) -> bool:
    """Say whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def read_answer(body: bytes) -> Completion:
    """Return what the body of an answer says; raises as ``post``."""
    try:
        said: Any = json.loads(body.decode())
    except UnicodeDecodeError:
        raise FaultError("broken answer", "not UTF-8") from None
    except (ValueError, RecursionError):
        raise FaultError("broken answer", f"not JSON ({len(body)} bytes)") from None
    try:
        choice: Any = said["choices"][0]
        message, reason = choice["message"], choice["finish_reason"]
        content, refusal = message["content"], message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        raise FaultError("broken answer", f"no answer in it: {message_of(body)}") from None
    if refusal and isinstance(refusal, str):
        raise RefusedQuestionError("the model refused", shown(refusal))
    if not isinstance(reason, str):
        raise FaultError("broken answer", "no finish reason")
    if reason in ("abort", "error"):  # vLLM says so when it ends before the answer does
        raise FaultError("server error", f"finish reason {reason}")
    if reason not in ("stop", "length"):
        raise RefusedQuestionError("the server ended the answer", f"finish reason {shown(reason)}")
    if content is None and reason == "length":
        content = ""  # all tokens went into thoughts
    if not isinstance(content, str):
        raise FaultError("broken answer", f"the content is {type(content).__name__}, not text")
    usage = said["usage"] if isinstance(said.get("usage"), dict) else {}
    model, fingerprint = (said.get(name) for name in ("model", "system_fingerprint"))
    prompt, completion = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return Completion(
        text=whole(content),
        finish_reason=reason,
        model=shown(model) if isinstance(model, str) else "",
        fingerprint=shown(fingerprint) if isinstance(fingerprint, str) else "",
        # A number that cannot be one of tokens is 0: the answer is good all the same.
        prompt_tokens=prompt if type(prompt) is int and 0 <= prompt < 2**31 else 0,
        completion_tokens=completion if type(completion) is int and 0 <= completion < 2**31 else 0,
    )


def whole(text: str) -> str:
    """Return the text with halves of surrogates replaced, which no file takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def message_of(body: bytes) -> str:
    """Return what an error's body says, in one printable line."""
    text = body.decode("utf-8", "replace")
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return shown(re.sub(r"<[^<>]{0,300}>", " ", text[: 64 * LONGEST]))
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return shown(said if isinstance(said, str) else json.dumps(said))


def shown(text: str) -> str:
    """Return a text of a server's in one printable line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * LONGEST]).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def root_of(error: BaseException) -> str:
    """Return what lies at the bottom of an error of the network, in words."""
    words = str(error) or type(error).__name__
    seen: BaseException | None = error
    while seen := seen.__cause__ or seen.__context__:
        if isinstance(seen, OSError):
            words = str(seen) or words
    return words
