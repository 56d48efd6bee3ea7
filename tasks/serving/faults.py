"""Name what may go wrong with one request to a served model, and read the answers that went well.

Statuses that may pass are faults and are tried again; 400, 413 and 422 are the row's fault; any other status means that
this client and this server do not go together. What comes from a server may be of any form and hold anything.
"""

import errno
import json
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from pairwright.tasks.serving.chat import RefusedQuestionError

LONGEST = 300
"""Characters that are kept of what a server says."""
REFUSALS = frozenset({400, 413, 422})
Reason = Literal["server busy", "no answer in time", "broken answer", "server error", "no connection"]
Hide = Callable[[str], str]
_REASONS: dict[int, Reason] = {408: "no answer in time", 429: "server busy", 503: "server busy"}
_ENDS = frozenset({"stop", "length"})
_GIVEN_UP = frozenset({"abort", "error"})
"""vLLM says so when it ends before the answer does."""


class FaultError(Exception):
    """Say that a request failed in a way that may pass: it is worth another try."""

    def __init__(self, reason: Reason, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail
        self.retry_after = retry_after
        """Seconds that the server asks to wait."""

    @property
    def is_overload(self) -> bool:
        """Say whether it might have gone well with fewer requests at once."""
        return self.reason in ("server busy", "no answer in time")

    @property
    def is_servers(self) -> bool:
        """Say whether the request cannot be at fault."""
        return self.reason in ("server busy", "no connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Be what a server said: the answer, and of itself."""

    text: str
    finish_reason: str
    model: str
    fingerprint: str
    prompt_tokens: int
    completion_tokens: int


def read_answer(body: bytes, hide: Hide = str) -> Said:
    """Return what the body of an answer says; ``hide`` takes out of it what it must not repeat.

    Raises:
        FaultError: it has another form than it should have.
        RefusedQuestionError: the server or the model will not answer this.
    """
    said = _parse(body)
    try:
        choice: Any = said["choices"][0]
        message, reason = choice["message"], choice["finish_reason"]
        content, refusal = message["content"], message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        raise FaultError("broken answer", f"no answer in it: {message_of(body, hide)}") from None
    if refusal and isinstance(refusal, str):
        raise RefusedQuestionError("the model refused", shown(hide(refusal)))
    return Said(
        text=hide(whole(_content(content, _end(reason, hide)))),
        finish_reason=reason,
        model=_name(said.get("model"), hide),
        fingerprint=_name(said.get("system_fingerprint"), hide),
        prompt_tokens=_count(said.get("usage"), "prompt_tokens"),
        completion_tokens=_count(said.get("usage"), "completion_tokens"),
    )


def whole(text: str) -> str:
    """Return the text with halves of surrogates replaced, which no file takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fault_of_status(status: int, message: str, retry_after: str) -> FaultError | None:
    """Return the fault that a status stands for; ``None``: it is none that may pass."""
    if status not in _REASONS and status < 500:
        return None
    detail = f"HTTP {status}" + (f": {message}" if message else "")
    return FaultError(_REASONS.get(status, "server error"), detail, retry_after=seconds_of(retry_after))


def seconds_of(retry_after: str, now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date."""
    text = retry_after.strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def message_of(body: bytes, hide: Hide = str) -> str:
    """Return what an error's body says, in one printable line."""
    text = body.decode("utf-8", "replace")
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return shown(hide(re.sub(r"<[^<>]{0,300}>", " ", text[: 64 * LONGEST])))
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return shown(hide(said if isinstance(said, str) else json.dumps(said)))


def shown(text: str) -> str:
    """Return a text of a server's in one printable line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * LONGEST]).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def root_of(error: BaseException, hide: Hide = str) -> str:
    """Return what lies at the bottom of an error of the network, in words."""
    words = str(error) or type(error).__name__
    seen: BaseException | None = error
    while seen := seen.__cause__ or seen.__context__:
        if isinstance(seen, OSError):
            # asyncio puts the address in the place of the system's words; the numbers of TLS are others.
            known = seen.errno in errno.errorcode and not isinstance(seen, ssl.SSLError)
            words = os.strerror(seen.errno or 0) if known else seen.strerror or str(seen) or words
    return shown(hide(words))


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode())
    except UnicodeDecodeError:
        raise FaultError("broken answer", "not UTF-8") from None
    except (ValueError, RecursionError):
        raise FaultError("broken answer", f"not JSON ({len(body)} bytes)") from None


def _end(reason: object, hide: Hide) -> str:
    if not isinstance(reason, str):
        raise FaultError("broken answer", "no finish reason")
    if reason in _GIVEN_UP:
        raise FaultError("server error", f"finish reason {reason}")
    if reason not in _ENDS:
        raise RefusedQuestionError("the server ended the answer", f"finish reason {shown(hide(reason))}")
    return reason


def _content(content: object, reason: str) -> str:
    if content is None and reason == "length":
        return ""  # all tokens went into thoughts
    if not isinstance(content, str):
        raise FaultError("broken answer", f"the content is {type(content).__name__}, not text")
    return content


def _name(value: object, hide: Hide) -> str:
    return shown(hide(whole(value))) if isinstance(value, str) else ""


def _count(usage: object, name: str) -> int:
    """Return a number of tokens; what cannot be one is 0, since the answer is good all the same."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0
