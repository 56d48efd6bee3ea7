"""A server's error is shown in its own words, whatever the form of its body."""

import json

import pytest

from pairwright.tasks.serving.faults import message_of

WORDS = "the image is too large"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": WORDS, "type": "invalid_request_error"}},
        {"error": WORDS},
        {"object": "error", "message": WORDS, "code": 400},
        {"error": {"error": {"message": WORDS}}},
        {"errors": [{"message": WORDS}]},
        [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
        {"detail": WORDS},
        {"msg": WORDS},
        WORDS,
    ],
)
def test_the_message_alone_is_shown(body) -> None:
    assert message_of(json.dumps(body).encode()) == WORDS


def test_a_refused_field_is_named() -> None:
    body = {"detail": [{"loc": ["body", "seed"], "msg": "extra fields not permitted"}]}
    assert message_of(json.dumps(body).encode()) == "body.seed: extra fields not permitted"


def test_a_provider_behind_a_router_speaks_for_itself() -> None:
    error = {"message": "Provider returned error", "metadata": {"raw": WORDS}}
    shown = message_of(json.dumps({"error": error}).encode())
    assert shown == f"Provider returned error: {WORDS}"


def test_a_page_loses_its_tags() -> None:
    page = b"<html><head></head><body><h1>502 Bad Gateway</h1><hr></body></html>"
    assert message_of(page) == "502 Bad Gateway"


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"[" * 100_000, b"\xff\xfe"])
def test_any_bytes_give_one_line(body) -> None:
    assert "\n" not in message_of(body)
