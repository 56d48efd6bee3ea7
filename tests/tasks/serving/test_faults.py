"""Answers of any form are read or named; nothing that a server says can do harm."""

import json
import socket
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest

from pairwright.tasks.serving.chat import RefusedQuestionError
from pairwright.tasks.serving.faults import (
    FaultError,
    fault_of_status,
    message_of,
    read_answer,
    root_of,
    seconds_of,
    shown,
    whole,
)
from tests.fixtures.chat_server import Reply, body_of

GOOD = json.loads(body_of(Reply("A red cup.", fingerprint="fp-1"), "tiny"))


def body(said: Any = None, **changes: Any) -> bytes:
    """Return a good answer with its choice changed."""
    said = json.loads(json.dumps(GOOD)) if said is None else said
    for name, value in changes.items():
        place = said["choices"][0] if name == "finish_reason" else said["choices"][0]["message"]
        place[name] = value
    return json.dumps(said).encode()


def without(*path: Any) -> bytes:
    said = json.loads(json.dumps(GOOD))
    place = said
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return json.dumps(said).encode()


def test_a_good_answer_is_read() -> None:
    said = read_answer(body())
    assert (said.text, said.finish_reason, said.model, said.fingerprint) == ("A red cup.", "stop", "tiny", "fp-1")
    assert (said.prompt_tokens, said.completion_tokens) == (7, 3)


def test_an_answer_cut_at_any_byte_is_broken() -> None:
    whole_body = body()
    for length in range(len(whole_body)):
        with pytest.raises(FaultError, match="JSON"):
            read_answer(whole_body[:length])


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "not JSON (0 bytes)"),
        (b"<html><body>Bad gateway</body></html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON"),
        (b'{"choices": ' + b"9" * 10_000 + b"}", "not JSON"),
        (body()[:-1] + b"\xff}", "not UTF-8"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"null", "no answer in it: null"),
        (b'"text"', "no answer in it: text"),
        (b"{}", "no answer in it"),
        (b'{"error": {"message": "out of memory"}}', "no answer in it: out of memory"),
        (b'{"choices": []}', "no answer in it"),
        (b'{"choices": {"0": 1}}', "no answer in it"),
        (b'{"choices": "text"}', "no answer in it"),
        (b'{"choices": [null]}', "no answer in it"),
        (b'{"choices": [{"message": null, "finish_reason": "stop"}]}', "no answer in it"),
        (b'{"choices": [{"message": ["content"], "finish_reason": "stop"}]}', "no answer in it"),
        (without("choices", 0, "message"), "no answer in it"),
        (without("choices", 0, "message", "content"), "no answer in it"),
        (without("choices", 0, "finish_reason"), "no answer in it"),
        (body(content=None), "the content is NoneType, not text"),
        (body(content=7), "the content is int, not text"),
        (body(content=[{"type": "text", "text": "a"}]), "the content is list, not text"),
        (body(finish_reason=None), "no finish reason"),
        (body(finish_reason=3), "no finish reason"),
    ],
)
def test_a_body_of_another_form_is_broken(data: bytes, detail: str) -> None:
    with pytest.raises(FaultError) as caught:
        read_answer(data)
    assert caught.value.reason == "broken answer"
    assert detail in caught.value.detail
    assert len(caught.value.detail) < 400


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_server_gave_up_is_a_fault(reason: str) -> None:
    with pytest.raises(FaultError, match=reason):
        read_answer(body(finish_reason=reason))


@pytest.mark.parametrize("reason", ["content_filter", "tool_calls", "function_call", "banana\n"])
def test_an_answer_that_ends_otherwise_is_refused(reason: str) -> None:
    with pytest.raises(RefusedQuestionError) as caught:
        read_answer(body(finish_reason=reason, content=None))
    assert caught.value.reason == "the server ended the answer"
    assert caught.value.detail == f"finish reason {reason.strip()}"


def test_a_refusal_of_the_model_is_one() -> None:
    with pytest.raises(RefusedQuestionError, match="I cannot say that"):
        read_answer(body(refusal="I cannot\nsay that", content=None))


def test_an_answer_that_was_cut_off_says_so() -> None:
    assert read_answer(body(finish_reason="length")).finish_reason == "length"
    assert read_answer(body(finish_reason="length", content=None)).text == ""


@pytest.mark.parametrize(
    "usage",
    [
        None,
        7,
        [],
        {},
        {"prompt_tokens": -1, "completion_tokens": None},
        {"prompt_tokens": "7", "completion_tokens": True},
        {"prompt_tokens": 1e9, "completion_tokens": 2**40},
    ],
)
def test_wrong_counts_of_tokens_are_none(usage: Any) -> None:
    said = read_answer(json.dumps({**GOOD, "usage": usage, "model": 7, "system_fingerprint": None}).encode())
    assert (said.prompt_tokens, said.completion_tokens, said.model, said.fingerprint) == (0, 0, "", "")


def test_halves_of_surrogates_do_not_reach_a_file() -> None:
    said = read_answer(body(content="a \ud800 \U0001f600 \udc00"))
    assert said.text == "a \ufffd \U0001f600 \ufffd"
    assert read_answer(body(content="\ud83d\ude00")).text == "\U0001f600"
    assert whole("plain") == "plain"


def test_what_must_not_be_repeated_is_taken_out() -> None:
    def hide(text: str) -> str:
        return text.replace("secret", "***")

    said = read_answer(json.dumps({**GOOD, "model": "secret", "system_fingerprint": "a secret"}).encode(), hide)
    assert (said.model, said.fingerprint) == ("***", "a ***")
    assert read_answer(body(content="the secret"), hide).text == "the ***"
    for data in (body(finish_reason="secret"), body(refusal="secret"), b'{"error": "secret"}'):
        with pytest.raises((FaultError, RefusedQuestionError)) as caught:
            read_answer(data, hide)
        assert "secret" not in str(caught.value)
        assert "***" in str(caught.value)
    long = b'{"error": {"message": "' + b"x" * 2398 + b'secret"}}'
    assert "sec" not in message_of(long, hide)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (408, "no answer in time"),
        (429, "server busy"),
        (500, "server error"),
        (502, "server error"),
        (503, "server busy"),
        (504, "server error"),
        (529, "server error"),
    ],
)
def test_statuses_that_may_pass_are_faults(status: int, reason: str) -> None:
    fault = fault_of_status(status, "wait", "2")
    assert fault is not None
    assert (fault.reason, fault.detail, fault.retry_after) == (reason, f"HTTP {status}: wait", 2.0)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 402, 403, 404, 405, 413, 422])
def test_other_statuses_are_none(status: int) -> None:
    assert fault_of_status(status, "", "") is None


NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("Mon, 04 May 2026 03:02:31 GMT", 30.0),
        ("Monday, 04-May-26 03:02:31 GMT", 30.0),
        ("Mon May  4 03:02:31 2026", 30.0),
        ("Mon, 04 May 2026 03:02:00 GMT", 0.0),
        ("Mon, 04 May 2026 05:02:31 +0200", 30.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("9" * 400, None),
        ("\u0665", None),
        ("Mon, 99 Foo 2026 03:02:31 GMT", None),
        ("Mon, 04 May 99999 03:02:31 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert seconds_of(header, NOW) == seconds


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"error": {"message": "too long", "code": 400}}', "too long"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', '[{"loc": ["body"], "msg": "field required"}]'),
        (b'{"error": "too\\nlong\\u0000\\u202e"}', "too long"),
        (b"<html><title>502</title>\n<b>Bad</b> gateway</html>", "502 Bad gateway"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"[" * 5000, "[" * 297 + "..."),
        (b'{"error": {"message": "' + b"x" * 5000 + b'"}}', "x" * 297 + "..."),
        (b"<" * 5000, "<" * 297 + "..."),
    ],
)
def test_messages_are_one_printable_line(data: bytes, message: str) -> None:
    assert message_of(data) == message


def test_what_is_shown_has_no_control_characters() -> None:
    assert shown("a\x1b[31mb\r\n\tc\u200bd\ud800") == "a [31mb c d"


def test_the_root_of_an_error_is_what_the_system_said() -> None:
    error = ValueError("All connection attempts failed")
    error.__cause__ = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")
    assert root_of(error) == "Connection refused"
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    assert root_of(error) == "Name or service not known"
    error.__cause__ = ssl.SSLError(1, "[SSL] certificate verify failed")
    assert root_of(error) == "[SSL] certificate verify failed"
    assert root_of(ValueError("Server disconnected")) == "Server disconnected"
    assert root_of(ValueError()) == "ValueError"
    assert "sec" not in root_of(ValueError("x" * 293 + "secret and more"), lambda text: text.replace("secret", "***"))
