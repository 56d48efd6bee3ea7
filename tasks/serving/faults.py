"""Name what may go wrong with one request to a served model, and read the answers that went well.

What comes from a server is not trusted: it may be of any form and hold anything.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from tasks.serving.chat import RefusedQuestionError

LONGEST = 300
"""Characters that are kept of what a server says of a fault."""
Reason = Literal["server busy", "no answer in time", "broken answer", "server error", "no connection"]
REFUSALS = frozenset({400, 413, 422})
_REASONS: dict[int, Reason] = {408: "no answer in time", 429: "server busy", 503: "server busy"}
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_ENDS = frozenset({"stop", "length"})
_BROKEN_ENDS = frozenset({"abort", "error"})
"""vLLM says so where it gave a request up."""


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
        """Say whether fewer requests at once might have gone well."""
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


def read_answer(body: bytes) -> Said:
    """Return what the body of an answer says.

    Raises:
        FaultError: it has another form than it should have.
        RefusedQuestionError: the server or the model will not answer this.
    """
    try:
        said = json.loads(body)
        choice = said["choices"][0]
        reason, message = choice["finish_reason"], choice["message"]
        content = message["content"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise FaultError("broken answer", _describe(body, error)) from None
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        raise RefusedQuestionError("the model refused", shown(message["refusal"]))
    if not isinstance(reason, str):
        raise FaultError("broken answer", "no finish reason")
    if reason in _BROKEN_ENDS:
        raise FaultError("server error", f"finish reason {reason}")
    if reason not in _ENDS:
        raise RefusedQuestionError("the server ended the answer", f"finish reason {shown(reason)}")
    if content is None and reason == "length":
        content = ""  # all of it was spent on thoughts
    if not isinstance(content, str):
        raise FaultError("broken answer", f"the content is {type(content).__name__}")
    usage = said.get("usage")
    return Said(
        text=whole(content),
        finish_reason=reason,
        model=_name(said.get("model")),
        fingerprint=_name(said.get("system_fingerprint")),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def fault_of_status(status: int, message: str, retry_after: str) -> FaultError | None:
    """Return the fault that a status stands for; ``None``: it is none that may pass."""
    if status not in _PASSING:
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
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def message_of(body: bytes) -> str:
    """Return what an error's body says, in one printable line."""
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        return shown(re.sub(r"<[^>]*>", " ", body[: 8 * LONGEST].decode("utf-8", "replace")))
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return shown(said if isinstance(said, str) else json.dumps(said)[: 8 * LONGEST])


def shown(text: str) -> str:
    """Return a text of the server's in one printable line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * LONGEST]).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def whole(text: str) -> str:
    """Return the text with halves of surrogates replaced, which no file takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _describe(body: bytes, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, ValueError):
        return f"not JSON: {message_of(body[:LONGEST])}" if body else "empty"
    return f"no answer in it: {message_of(body)}"


def _name(value: object) -> str:
    return shown(value) if isinstance(value, str) else ""


def _count(usage: object, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0
