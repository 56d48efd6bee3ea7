"""Servers of models and of Prefect are looked at over real HTTP, without asking a model anything."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import pytest

from pairwright.schemas.health import Check
from pairwright.schemas.served import ChatConfig, LaunchConfig
from pairwright.tasks.serving import check_served as look
from pairwright.tasks.serving.check_served import check_prefect, check_served
from tests.fixtures.asking import config_of
from tests.fixtures.chat_server import chat_server


@contextmanager
def said(pages: dict[str, object], date: str = "") -> Generator[str]:
    """Serve JSON by path, with a date of one's own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            body = json.dumps(page).encode()
            self.send_response_only(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(body)))
            if date:
                self.send_header("Date", date)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def one(checks) -> Check:
    (check,) = checks
    return check


def test_a_server_with_the_model_is_right_and_asked_nothing() -> None:
    with chat_server(lambda _: "good") as server:
        check = one(check_served(config_of(server), "models.chat"))
        assert server.asked == []
    assert (check.state, check.found) == ("ok", "tiny")


def test_a_wrong_model_is_told_with_those_that_there_are() -> None:
    with chat_server(lambda _: "good") as server:
        server.models = ("large", "larger")
        wrong = one(check_served(config_of(server), "models.chat"))
        several = one(check_served(config_of(server, model=""), "models.chat"))
    assert (wrong.state, wrong.found) == ("missing", "it has no tiny")
    assert wrong.mend == several.mend == "--set models.chat.model=NAME, of: large, larger"
    assert "2 models" in several.found


def test_each_of_several_servers_is_looked_at() -> None:
    with chat_server(lambda _: "good") as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        here, away = check_served(config_of(server, gone), "models.language")
    assert (here.state, away.state) == ("ok", "missing")
    assert away.found.startswith("no connection")
    assert "--set models.language.endpoint=" in away.mend


def test_a_server_that_never_answers_is_waited_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "WAIT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        check = one(check_served(config_of(f"http://127.0.0.1:{silent.getsockname()[1]}/v1"), "models.chat"))
    assert (check.state, check.found) == ("missing", "no answer in time: 0.2 s")


def test_no_address_and_no_program_are_said_with_what_mends_them() -> None:
    nothing = one(check_served(ChatConfig(), "models.chat"))
    assert (nothing.state, nothing.mend) == (
        "missing",
        "--set models.chat.endpoint=http://HOST:PORT/v1, or --until mining",
    )
    chat = ChatConfig(model="m", launch=LaunchConfig(enabled=True, command=("no-such-program-here",)))
    gone = one(check_served(chat, "models.chat"))
    assert (gone.state, gone.mend) == ("missing", "--set models.chat.launch.command=/.../bin/vllm")


def test_a_servers_version_and_clock_are_told() -> None:
    pages = {"/v1/models": {"data": [{"id": "tiny"}]}, "/version": {"version": "0.32.0"}}
    with said(pages, date="Fri, 01 Jan 2010 00:00:00 GMT") as url:
        here, clock = check_served(config_of(f"{url}/v1"), "models.chat")
    assert here.found == "tiny, version 0.32.0"
    assert (clock.state, clock.name) == ("warning", "clock")


def test_prefect_is_needed_only_where_it_is_configured() -> None:
    assert one(check_prefect({})).state == "ok"
    quiet = {"DO_NOT_TRACK": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/api"
        away, _ = check_prefect({"PREFECT_API_URL": url, **quiet})
    assert (away.state, away.found) == ("missing", f"{url}: no Prefect server answers")
    bad, *_ = check_prefect({"PREFECT_API_URL": "nonsense"})
    assert (bad.state, bad.mend) == ("missing", "unset PREFECT_API_URL")


def test_prefects_version_has_to_fit_and_telemetry_is_told() -> None:
    here = version("prefect")
    with said({"/api/admin/version": here}) as url:
        right, loud = check_prefect({"PREFECT_API_URL": f"{url}/api"})
        assert (right.state, loud.state) == ("ok", "warning")
        _, quiet = check_prefect({"PREFECT_API_URL": f"{url}/api", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"})
        assert quiet.state == "ok"
    with said({"/api/admin/version": "2.20.3"}) as url:
        old, _ = check_prefect({"PREFECT_API_URL": f"{url}/api"})
    assert (old.state, old.found) == ("warning", f"{url}/api: version 2.20.3, here is {here}")
