"""Failures of a request, by who is at fault, and a server's words on one line.

``FaultError``: temporary, worth another try. ``StatusError``: this request fails, though the server
answers others. ``chat.RefusedQuestionError``: the server rejects the request for good.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pairwright.schemas.errors import ServerError

LONGEST = 300  # characters kept of a server's message
DEEPEST = 6  # objects and lists around a message
SHOWN_ERRORS = 5  # errors of a list
TITLE = re.compile(r"<title>\s*([^<>]{1,200}?)\s*</title>", re.IGNORECASE)
"""Title of an error page of a proxy."""
TAG = re.compile(r"<[^<>]{0,300}>")
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


class StatusError(Exception):
    """Status by which a server declines one request, which may be accepted later."""

    def __init__(self, status: int, detail: str, *, advice: str, is_retried: bool) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.advice = advice
        """What to do where all requests fail alike; empty: only the server knows."""
        self.is_retried = is_retried  # whether another try at once may help


class MisfitError(ServerError):
    """Status of a server that is not the one that the profile means, or rejects its key."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def message_of(body: bytes) -> str:
    """Return an error body's message, in one printable line."""
    text = body.decode("utf-8", "replace")
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _read_page(text[: 64 * LONGEST])
    return printable(_find_message(content))


def _read_page(text: str) -> str:
    """Return the words of an error page, its title only if the page does not repeat it."""
    title = TITLE.search(text)
    if title and text.count(title[1]) > 1:
        text = text.replace(title[0], " ")
    return printable(TAG.sub(" ", text))


def _find_message(content: Any, depth: int = 0) -> str:
    """Return the message in the content of an error, which others may have wrapped."""
    if isinstance(content, str):
        return _unwrap(content, depth)
    if isinstance(content, list):
        messages = [_find_message(item, depth + 1) for item in content[:SHOWN_ERRORS]]
        return "; ".join(messages) if depth < DEEPEST else json.dumps(content)
    if not isinstance(content, dict) or depth > DEEPEST:
        return json.dumps(content)
    if "msg" in content:  # pydantic's
        place = ".".join(str(part) for part in content.get("loc") or ())
        return f"{place}: {content['msg']}" if place else str(content["msg"])
    for name in ("error", "errors", "message", "detail"):
        if content.get(name):
            words = _find_message(content[name], depth + 1)
            return f"{words}{_read_provider(content)}"
    return json.dumps(content)


def _read_provider(content: Mapping[str, Any]) -> str:
    """Return the words of the provider behind a router (OpenRouter's ``metadata.raw``)."""
    metadata = content.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        return f": {_unwrap(metadata['raw'], 0)}"
    return ""


def _unwrap(text: str, depth: int) -> str:
    """Return the message in a text that is JSON itself, as gateways pass errors on."""
    if not text.lstrip().startswith("{") or depth > DEEPEST:
        return text
    try:
        return _find_message(json.loads(text), depth + 1)
    except (ValueError, RecursionError):
        return text


def printable(text: str) -> str:
    """Return a server's text in one printable line of bounded length."""
    characters = [c if c.isprintable() else " " for c in text[: 8 * LONGEST]]
    line = " ".join("".join(characters).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def whole(text: str) -> str:
    """Return the text with lone surrogates replaced, which no file accepts."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
