"""Who is let in, as far as that is no matter of the running server (see
``tests/flows/test_view_dataset.py``)."""

import socket
import time
from threading import Event

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.report.serve_pages import Guard, Keys, Opening, listen


def asked(keys: Keys, query: str) -> Request:
    host = (b"host", f"127.0.0.1:{keys.port}".encode())
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": query.encode(),
            "headers": [host],
        }
    )


def test_secrets_are_of_one_start_and_one_lets_in_once():
    keys = Keys(1234)
    guard, (_, query) = Guard(Starlette(), keys), keys.url(next(iter(keys.once))).split("?")
    assert [guard._refuse(asked(keys, query)).status_code for _ in range(2)] == [303, 401]
    query = keys.url(keys.entry).partition("?")[2]
    assert [guard._refuse(asked(keys, query)).status_code for _ in range(2)] == [303, 303]
    secrets = [
        one
        for keys in (Keys(1), Keys(1))
        for one in (keys.entry, keys.cookie, keys.page, *keys.once)
    ]
    assert len(set(secrets)) == 8
    assert all(len(one) >= 43 for one in secrets)


def test_a_port_that_is_taken_is_named():
    with listen(0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ConfigError, match=f"--port {port}"), listen(port):
            pass
    with listen(port) as again:
        assert isinstance(again, socket.socket)


def test_pages_that_are_being_made_say_so_and_a_fault_is_told():
    made = Event()

    def make(workshop):
        made.wait(60)
        raise StoreError("cards.duckdb: the disk is full")

    opening = Opening(make, Keys(1))
    client = TestClient(opening)
    answer = client.get("/")
    assert (answer.status_code, answer.headers["refresh"], opening.workshop.is_busy) == (
        200,
        "1",
        True,
    )
    made.set()
    while opening.workshop.is_busy:
        time.sleep(0.01)
    answer = client.get("/")
    assert (answer.status_code, "the disk is full" in answer.text) == (500, True)
