"""Failures of a request, by who is at fault, and a server's words on one line.

``FaultError``: temporary, worth another try. ``StatusError``: this request fails, though the server
answers others. ``chat.RefusedQuestionError``: the server rejects the request for good.
"""

import json
import re
from typing import Any, Literal

from pairwright.schemas.errors import ServerError

MESSAGES = ("error", "errors", "message", "detail", "msg")
"""Fields that hold an error's message or lead to it."""
MOST_NESTED = 6  # levels of an error that are followed
LONGEST = 300  # characters kept of a server's message
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
        return printable(re.sub(r"<[^<>]{0,300}>", " ", text[: 64 * LONGEST]))
    words = _find_message(content)
    return printable(words if isinstance(words, str) else json.dumps(words))


def _find_message(content: Any) -> Any:
    """Return the innermost message of an error, with the field that it is about."""
    for _ in range(MOST_NESTED):
        if isinstance(content, list) and content:
            content = content[0]
        if not isinstance(content, dict):
            return content
        name = next((name for name in MESSAGES if content.get(name)), None)
        if name is None:
            return content
        words = content[name]
        if isinstance(words, str) and isinstance(content.get("loc"), list):
            return f"{'.'.join(map(str, content['loc']))}: {words}"  # FastAPI's
        raw = content.get("metadata")
        if isinstance(words, str) and isinstance(raw, dict) and raw.get("raw"):
            return f"{words}: {raw['raw']}"  # OpenRouter's: the provider's own words
        content = words
    return content


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
