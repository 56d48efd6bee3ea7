"""Turn a response of an OpenAI-compatible server into an answer, or a refusal with its true reason.

The envelope: content as a string or in parts, thoughts beside it, reasons to finish of many
servers. The text: what models write around an answer is taken off (``clean_text``), and what must
not be stored is refused. Each stage reads its answers here, and then checks its own form.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairwright.schemas.control_tokens import (
    CONTROL_CHARACTERS,
    CONTROL_TOKENS,
    refuse_control,
)
from pairwright.schemas.replies import CUT_OFF, RefusedText
from pairwright.schemas.rows import Served
from pairwright.tasks.serving.chat import Answer, RefusedQuestionError
from pairwright.tasks.serving.clean_text import clean_text
from pairwright.tasks.serving.faults import FaultError, message_of, printable, whole
from pairwright.tasks.texts.words import declines, in_another_language, repeats_itself

MAX_POSITIONS = 64  # tokens of an answer that are searched for one with a letter
THOUGHTS_ONLY = "thoughts without an answer"
EMPTY = "empty"
TOOL_CALL = "a tool call instead of an answer"
CURE = (
    "switch thinking off (models.*.request.extra_body, such as {chat_template_kwargs: "
    "{enable_thinking: false}}) or raise models.*.thinking_tokens"
)
DECLINED = "declined"
OTHER_LANGUAGE = "another language"
UNDECODED = "tokens that were not decoded"
REPEATS = "repeats itself"
REASONS = (
    CUT_OFF,
    THOUGHTS_ONLY,
    EMPTY,
    TOOL_CALL,
    DECLINED,
    CONTROL_TOKENS,
    CONTROL_CHARACTERS,
    OTHER_LANGUAGE,
    UNDECODED,
    REPEATS,
)
"""Reasons to refuse an answer, whatever its form."""
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "thoughts", "reasoning_details")
"""Fields of a message for thoughts: vLLM, DeepSeek, SGLang; newer vLLM, OpenRouter; Ollama."""
THINKING_PARTS = ("thinking", "reasoning", "redacted_thinking", "thought", "reasoning_text")
CUT = frozenset(
    (
        "length",
        "max_tokens",
        "max_length",
        "model_length",
        "max_output_tokens",
        "model_context_window_exceeded",
    )
)
"""Reasons to finish of an answer that was cut off."""
FILTERED = re.compile(
    r"filter|safety|recit|prohibit|block|refus|sensitive|moderat|spii|copyright|violat|guard|policy"
)
NORMAL = re.compile(r"stop|end|eos|eot|finish|complete|tool|function")
"""Words of reasons to finish that say nothing about why an answer is empty."""
_FIRST_ITEM = re.compile(r"(?:\u2192|1[.)])[ \t]+")
_SECOND_ITEM = re.compile(r"\s2[.)]\s")
_MARKS = re.compile(r"(?<=\w)[\u0120\u010a](?=\w)|\u2581")
"""Spaces and line ends in vocabularies, which a server forgot to turn back."""
FAILED = re.compile(r"error|abort|cancel|fail|interrupt|insufficient|overload|timeout|malformed")


@dataclass(frozen=True, slots=True)
class _Message:
    """Message of a response, in plain text."""

    text: str
    thoughts: str  # beside the text
    field: str  # name of the field that holds them
    calls_tool: bool
    refusal: str  # the model's own words, in a field or a part for them


def read_response(body: bytes) -> Answer:
    """Return the answer in a response body, without its question's name and seed.

    Raises ``FaultError`` for a body without an answer, ``RefusedQuestionError`` where the model or
    a filter of the server refused.
    """
    try:
        response: Any = _parse_body(body)
        blocked = _find_block(response)
        if blocked:
            raise RefusedQuestionError("the server ended the answer", blocked)
        choice = _find_choice(response)
        finish = choice.get("finish_reason")
        if isinstance(finish, dict):
            finish = finish.get("type")
        native = choice.get("native_finish_reason")
        message = _read_message(_message_of(choice), is_ended=isinstance(finish, str))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise FaultError("broken answer", f"no answer in it: {message_of(body)}") from None
    if message.refusal:
        raise RefusedQuestionError("the model refused", printable(message.refusal))
    is_empty = not message.text.strip()
    if is_empty and isinstance(native, str):
        _read_finish(native, body, is_empty=False)  # a gateway's provider says more
    reason = _read_finish(finish, body, is_empty=is_empty)
    cleaned = clean_text(whole(message.text))
    thoughts = bool(message.thoughts) or cleaned.thought
    return Answer(
        text=cleaned.text,
        served=_read_served(response, reason, message, cleaned.removed),
        # the first token is one of the thoughts
        first_token=() if thoughts else _read_first_token(choice.get("logprobs")),
        refused=_refuse_envelope(cleaned.text, reason, message, cleaned.removed),
    )


def read_text(answer: Answer, language: str = "") -> str | RefusedText:
    """Return an answer's text, or the reason why it must not be stored.

    ``language``: the one that was asked for; empty: English.
    """
    text = _unwrap(answer.text)
    return answer.refused or refuse_text(text, language) or text


def _unwrap(text: str) -> str:
    """Return the only value of a JSON object or the only item of a list, or else the text."""
    if _FIRST_ITEM.match(text) and "\n" not in text and not _SECOND_ITEM.search(text):
        return _FIRST_ITEM.sub("", text)
    if not text.startswith("{"):
        return text
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = list(content.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0].strip()
    return text


def refuse_text(text: str, language: str = "") -> RefusedText | None:
    """Return the first reason why a model's text must not be stored; ``None``: there is none.

    Checks that need English words are off for another language.
    """
    is_english = not language
    if not re.search(r"\w", text):
        return RefusedText(EMPTY, text[:60])
    if is_english and declines(text):
        return RefusedText(DECLINED, text[:80])
    control = refuse_control(text)
    if control:
        return control
    marks = _MARKS.search(text)
    if marks:
        return RefusedText(UNDECODED, text[:60])
    if repeats_itself(text):
        return RefusedText(REPEATS, text[-80:])
    if is_english and in_another_language(text):
        return RefusedText(OTHER_LANGUAGE, text[:60])
    return None


def _parse_body(body: bytes) -> Any:
    """Return the JSON of a body; the events of a stream are joined to one response."""
    if not body.lstrip().startswith(b"data:"):
        return json.loads(body)
    texts: list[str] = []
    response: dict[str, Any] = {}
    for line in body.decode("utf-8").splitlines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        event = json.loads(data)
        choices = event.get("choices") or response.get("choices")
        response = {**response, **event, "choices": choices}
        for choice in event.get("choices") or ():
            texts.append(_message_of(choice).get("content") or "")
    choice = response["choices"][0]
    if not any(texts) and not choice.get("finish_reason"):
        raise ValueError("no event has an answer")
    message = {**_message_of(choice), "content": "".join(texts)}
    return {**response, "choices": [{**choice, "message": message}]}


def _find_choice(response: Any) -> Mapping[str, Any]:
    """Return the first answer; ``FaultError`` for an error with the status of a success."""
    choices = response.get("choices")
    error = choices[0].get("error") if choices else response.get("error")
    if error:
        raise FaultError("server error", message_of(json.dumps(error).encode()))
    return choices[0]


def _message_of(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a choice's message; ``delta`` is a stream's, ``text`` that of the older interface."""
    if isinstance(choice.get("text"), str):
        return {"content": choice["text"]}
    return choice.get("message") or choice.get("delta") or {}


def _find_block(response: Mapping[str, Any]) -> str:
    """Return why a prompt was blocked, where a response has no choice for it; empty: it was not."""
    for name in ("promptFeedback", "prompt_feedback"):
        feedback = response.get(name)
        if not response.get("choices") and isinstance(feedback, dict):
            return printable(json.dumps(feedback))
    return ""


def _read_message(message: Mapping[str, Any], *, is_ended: bool) -> _Message:
    """Return a message's text and thoughts; ``TypeError`` for another form.

    Without any content, the server must have said why the answer ended.
    """
    text, thoughts, refusal = _read_content(message.get("content"))
    field = "content" if thoughts else ""
    for name in REASONING_FIELDS:
        value = message.get(name)
        if value and not thoughts:
            thoughts = value if isinstance(value, str) else json.dumps(value)
            field = name
    calls_tool = bool(message.get("tool_calls") or message.get("function_call"))
    is_empty = "content" not in message and not (thoughts or calls_tool)
    if is_empty and not is_ended:
        raise TypeError("no content")
    if isinstance(message.get("refusal"), str):
        refusal = message["refusal"]
    return _Message(text, thoughts, field, calls_tool, refusal)


def _read_content(content: Any) -> tuple[str, str, str]:
    """Return the text, the thoughts and the refusal in a content; ``TypeError``: another form."""
    if content is None:
        return "", "", ""
    if isinstance(content, str):
        return content, "", ""
    if isinstance(content, dict):
        content = content.get("parts") or [content]
    if not isinstance(content, list):
        raise TypeError("content is neither a text nor a list")
    text, thoughts = _read_parts(content)
    return text, thoughts, _join_refusals(content)


def _join_refusals(parts: Sequence[Any]) -> str:
    """Return the texts of the parts in which a model refuses."""
    refusals: list[str] = []
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("refusal"), str):
            refusals.append(part["refusal"])
    return " ".join(refusals)


def _read_parts(parts: Sequence[Any]) -> tuple[str, str]:
    """Return the text and the thoughts of a content in parts."""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif part.get("type") in THINKING_PARTS:
            inner = next((part[name] for name in THINKING_PARTS if part.get(name)), "")
            inner = inner or part.get("text") or ""
            thoughts.append(inner if isinstance(inner, str) else _read_parts(inner)[0])
        else:
            texts.append(_read_part(part.get("text")))
    return "".join(texts), "".join(thoughts)


def _read_part(text: Any) -> str:
    """Return the text of a part, which may be an object with a value; empty: it has none."""
    if isinstance(text, dict):
        text = text.get("value")
    return text if isinstance(text, str) else ""


def _read_finish(
    finish: object,
    body: bytes,
    *,
    is_empty: bool,
) -> str:
    """Return "stop", "length", or "" where the server gives no reason to finish.

    Raises ``FaultError`` for an answer that an error ended, ``RefusedQuestionError`` for one that a
    filter ended, or that is empty for an unknown reason.
    """
    if isinstance(finish, dict):
        finish = finish.get("type")
    if finish is None or finish == "":
        return ""
    if not isinstance(finish, str):
        raise FaultError("broken answer", f"no reason to finish in it: {message_of(body)}")
    name = finish.lower().removeprefix("finish_reason_").strip("<|>/ ")
    if name in CUT:
        return "length"
    if FAILED.search(name):
        raise FaultError("server error", f"finish reason {printable(finish)}")
    is_unknown = is_empty and not NORMAL.search(name)
    if FILTERED.search(name) or is_unknown:
        detail = f"finish reason {printable(finish)}"
        raise RefusedQuestionError("the server ended the answer", detail)
    return "stop"


def _refuse_envelope(
    text: str,
    reason: str,
    message: _Message,
    removed: Sequence[str],
) -> RefusedText | None:
    """Return why a response has no whole answer; ``None``: it has one."""
    if text:
        return RefusedText(CUT_OFF, f"finish reason {reason}") if reason == "length" else None
    if message.thoughts:
        size = len(message.thoughts)
        where = f"{message.field} has {size:,} characters, the content none"
        return RefusedText(THOUGHTS_ONLY, f"{where}: {CURE}")
    if "thoughts" in removed:
        return RefusedText(THOUGHTS_ONLY, f"nothing follows them: {CURE}")
    if message.calls_tool:
        return RefusedText(TOOL_CALL, "the server has tools switched on")
    if reason == "length":
        return RefusedText(THOUGHTS_ONLY, f"no text before the limit of tokens: {CURE}")
    return RefusedText(EMPTY, f"finish reason {reason or 'none'}")


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


def _read_served(
    response: Mapping[str, Any],
    reason: str,
    message: _Message,
    removed: tuple[str, ...],
) -> Served:
    """Return the server's data about its answer."""
    usage = response.get("usage")
    counts: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
    completion_tokens = _read_count(counts.get("completion_tokens"))
    return Served(
        prompt="",
        model=printable(str(response.get("model") or "")),
        revision=printable(str(response.get("system_fingerprint") or "")),
        seed=0,
        prompt_tokens=_read_count(counts.get("prompt_tokens")),
        completion_tokens=completion_tokens,
        latency=0.0,
        finish_reason=reason,
        thought_tokens=_count_thoughts(counts, message, completion_tokens),
        removed=removed,
    )


def _count_thoughts(counts: Mapping[str, Any], message: _Message, completion_tokens: int) -> int:
    """Return the tokens of thoughts beside the text, estimated by length if the server counts none.

    Thoughts within the text are not counted.
    """
    details = counts.get("completion_tokens_details")
    if isinstance(details, dict) and details.get("reasoning_tokens"):
        return _read_count(details["reasoning_tokens"])
    size = len(message.thoughts)
    return round(completion_tokens * size / max(1, size + len(message.text)))


def _read_count(count: object) -> int:
    """Return a number of tokens; an implausible one is 0, since the answer is still valid."""
    if type(count) is int and 0 <= count < 2**31:
        return count
    return 0
