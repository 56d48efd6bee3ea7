"""Find out, when a build starts, which model a server serves and whether it holds answers to a grammar.

What is found is written into the configuration, so that it is on record and the same until the build's end. Needs the
network, and ``httpx2``, which comes with ``openai``.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, TypeVar

from schemas.errors import ConfigError, ServerError
from schemas.served import ChatConfig, Structured
from tasks.serving.chat import RefusedQuestionError
from tasks.serving.faults import FaultError, fault_of_status, message_of, read_answer, shown
from tasks.serving.keys import load_key
from tasks.serving.pace import PACE

T = TypeVar("T")
CONNECT_SECONDS = 10.0
LIST_SECONDS = 30.0
WAIT_SECONDS = 1.0
"""Pause before a busy server is asked again, where it does not say how long; longer from time to time."""
SHOWN = 20
"""Models that a message lists."""
WORD = "zq7"
"""What no model says unless it is held to it."""
FORMS: Mapping[Structured, dict[str, Any]] = {
    "vllm": {"structured_outputs": {"choice": [WORD]}},
    "json": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"word": {"type": "string", "enum": [WORD]}},
                    "required": ["word"],
                    "additionalProperties": False,
                },
            },
        }
    },
}
"""How each kind of structured output is asked for, best first."""


def find_model(chat: ChatConfig, *, field: str = "chat") -> ChatConfig:
    """Return the configuration with the model's name and the kind of structured output filled in.

    With ``launch: local`` nothing is asked: the build starts vLLM itself, and knows what it can.

    Args:
        chat: what the profile says.
        field: what the profile calls it, for messages.

    Raises:
        ConfigError: no server is named, it takes no such key, or it does not serve this model.
        ServerError: it cannot be reached, or is no OpenAI-compatible server.
    """
    if chat.launch:
        if not chat.model:
            raise ConfigError(
                f"{field}.model: name the checkpoint that vLLM is to serve (a folder or ORGANISATION/NAME)"
            )
        return chat.model_copy(update={"structured": "vllm"}) if chat.structured == "auto" else chat
    if not chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint: name an OpenAI-compatible server (--set {field}.endpoint=http://HOST:PORT/v1), "
            "or stop before captions are written (--until mining)"
        )
    servers = [_Server(url, chat, field) for url in chat.endpoint]
    found = chat.model_copy(update={"model": _model(servers, chat, field)})
    if chat.structured != "auto":
        return found
    return found.model_copy(update={"structured": _structured(servers, found.model)})


def _model(servers: "list[_Server]", chat: ChatConfig, field: str) -> str:
    """Return the name of the model that every server serves."""
    served = {server.url: server.models() for server in servers}
    for url, names in served.items():
        if chat.model and chat.model not in names:
            raise ConfigError(f'{field}.model: {url} does not serve "{chat.model}"; it serves {_listed(names)}')
        if not chat.model and len(names) != 1:
            raise ConfigError(f"{field}.model: name one of those that {url} serves: {_listed(names)}")
    first, *others = {name for names in served.values() for name in names} if not chat.model else [chat.model]
    if others:
        each = "; ".join(f"{url}: {_listed(names)}" for url, names in served.items())
        raise ConfigError(f"{field}.endpoint: the servers serve different models ({each}): they must serve the same")
    return first


def _structured(servers: "list[_Server]", model: str) -> Structured:
    """Return the best kind of structured output to which every server holds."""
    for kind in FORMS:
        if all(server.obeys(kind, model) for server in servers):
            return kind
    return "off"


class _RefusedError(Exception):
    """Say that a server refuses a request, and would again."""


class _Server:
    """Be one server that is asked what it can."""

    def __init__(self, url: str, chat: ChatConfig, field: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{field}.endpoint: {url} is no address of a server (http://HOST:PORT/v1)")
        self.url = url
        self._chat = chat
        self._field = field
        self._key = load_key(chat.key)

    def models(self) -> tuple[str, ...]:
        """Return the names of what it serves."""
        try:
            return self._ask("/models", None, read=_names, timeout_s=LIST_SECONDS)
        except _RefusedError as error:
            raise ConfigError(
                f"{self._field}.endpoint: {self.url}/models answers {error}: "
                "is it the address of an OpenAI-compatible server, with /v1 at its end?"
            ) from None

    def obeys(self, kind: Structured, model: str) -> bool:
        """Say whether an answer has the form that is asked for; servers ignore what they do not know, or refuse it."""
        asked = [{"role": "user", "content": "Say hello."}]
        body = {"model": model, "messages": asked, "max_tokens": 64, "temperature": 0, **FORMS[kind]}
        try:
            text = self._ask("/chat/completions", body, read=_text, timeout_s=self._chat.timeout_seconds)
            return text == WORD if kind == "vllm" else json.loads(text) == {"word": WORD}
        except (_RefusedError, ValueError, RecursionError):
            return False

    def _ask(self, path: str, body: dict[str, Any] | None, *, read: Callable[[bytes], T], timeout_s: float) -> T:
        """Ask until there is an answer; a server that is busy may be so for a while."""
        until = time.monotonic() + self._chat.patience_seconds
        for attempt in count(1):
            try:
                return read(self._send(path, body, timeout_s))
            except FaultError as fault:
                pause = WAIT_SECONDS * 2 ** (attempt - 1) if fault.retry_after is None else fault.retry_after
                is_over = attempt >= self._chat.attempts or time.monotonic() + pause > until
                if is_over or fault.reason == "no connection":
                    raise ServerError(f"{self.url}: {fault}: is this the address, and is the server running?") from None
                time.sleep(pause)
        raise AssertionError("count() has no end")

    def _send(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> bytes:
        """Return what it answers: to a POST of the body, or to a GET where there is none."""
        import httpx2

        timeout = httpx2.Timeout(timeout_s, connect=CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        method, url = "GET" if body is None else "POST", self.url.rstrip("/") + path
        try:
            with (
                httpx2.Client(timeout=timeout, headers=headers, trust_env=False) as client,
                client.stream(method, url, json=body) as response,
            ):
                content = _read(response.iter_bytes(), timeout_s)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
            raise FaultError("no connection", str(error) or "no answer in time") from None
        except httpx2.TimeoutException:
            raise FaultError("no answer in time", f"{timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise FaultError("broken answer", str(error) or type(error).__name__) from None
        if response.status_code != 200:
            raise self._fault(response.status_code, message_of(content), response.headers.get("retry-after", ""))
        return content

    def _fault(self, status: int, message: str, retry_after: str) -> Exception:
        said = f"HTTP {status}" + (f" ({message})" if message else "")
        if status in (401, 403):
            what = "is not taken by" if self._key else "is not set, and one is wanted by"
            return ConfigError(f"{self._field}.key: {self._chat.key} {what} {self.url}: {said}")
        return fault_of_status(status, message, retry_after) or _RefusedError(said)


def _read(parts: Iterator[bytes], timeout_s: float) -> bytes:
    """Return a body that comes in time and has an end."""
    until = time.monotonic() + timeout_s
    body = bytearray()
    for part in parts:
        body += part
        if time.monotonic() > until:
            raise FaultError("no answer in time", f"{timeout_s:g} s")
        if len(body) > PACE.max_bytes:
            raise FaultError("broken answer", f"more than {PACE.max_bytes} bytes")
    return bytes(body)


def _names(body: bytes) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(str(one["id"]) for one in json.loads(body)["data"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _RefusedError(f"with no list of models, but with {message_of(body)[:80] or 'nothing'}") from None


def _text(body: bytes) -> str:
    try:
        return read_answer(body).text.strip()
    except RefusedQuestionError as refused:
        raise _RefusedError(refused.reason) from None


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(shown(name) for name in names[:SHOWN]) + more if names else "none"
