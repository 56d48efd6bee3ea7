"""Who is let in, as far as that is no matter of the running server (see
``tests/flows/verbs/test_view_dataset.py``)."""

import socket
import time
from threading import Event

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.report.serve_pages import Guard, Keys, Opening, listen


def statuses(keys, url):
    """Return the answers when an address is opened twice."""
    host = (b"host", f"127.0.0.1:{keys.port}".encode())
    about = {"type": "http", "method": "GET", "path": "/", "headers": [host]}
    request = Request({**about, "query_string": url.partition("?")[2].encode()})
    guard = Guard(Starlette(), keys)
    return [guard._refuse(request).status_code for _ in range(2)]


def test_a_key_lets_in_once_and_the_entry_always():
    keys = Keys(1234)
    assert statuses(keys, keys.page_url(next(iter(keys.once)))) == [303, 401]
    assert statuses(keys, keys.page_url(keys.entry)) == [303, 303]


def test_secrets_are_long_and_of_one_start():
    starts = (Keys(1), Keys(1))
    secrets = [key for keys in starts for key in (keys.entry, keys.cookie, keys.page, *keys.once)]
    assert len(set(secrets)) == 8
    assert all(len(secret) >= 43 for secret in secrets)


def test_a_port_that_is_taken_is_named():
    with listen(0) as taken:
        host, port = taken.getsockname()
        assert host == "127.0.0.1"
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
    assert (answer.status_code, answer.headers["refresh"]) == (200, "1")
    assert opening.workshop.is_busy
    made.set()
    while opening.workshop.is_busy:
        time.sleep(0.01)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "the disk is full" in answer.text
