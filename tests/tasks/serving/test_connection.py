"""What a server may do to a request: every fault is named, what is wrong with whom, and nothing is
sent needlessly."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError, PairwrightError, ServerError
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat
from pairwright.tasks.serving.client import Client, client_of
from pairwright.tasks.serving.connection import FaultError, message_of, read_answer, whole
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import QUICK, ask_now, ask_once, asked, config_of, item, items, question
from tests.fixtures.certificates import write_certificate
from tests.fixtures.chat_server import Close, Fault, Hang, Raw, Reply, Status, body_of, chat_server

GOOD = body_of(Reply("good", fingerprint="fp"), "tiny")
STATUSES = {408: "no answer in time", 429: "server busy", 500: "server error", 504: "server error"}
FAULTS: dict[str, tuple[Fault | Reply, str, str]] = {
    **{
        str(code): (Status(code), reason, f"HTTP {code}: scripted")
        for code, reason in STATUSES.items()
    },
    "502 in HTML": (Status(502, body=b"<h1>Bad</h1>"), "server error", "HTTP 502: Bad"),
    "503": (Status(503, body=b""), "server busy", "HTTP 503"),
    "closed": (Close(), "broken answer", "Server disconnected without sending a response."),
    "reset": (Close(reset=True), "broken answer", ""),
    "cut after the head": (Raw(GOOD, cut=0), "broken answer", "peer closed connection"),
    "aborted": (Reply("go", finish_reason="abort"), "server error", "finish reason abort"),
    "hang": (Hang(), "no answer in time", "0.5 s of models.*.timeout_seconds"),
    "a byte now and then": (
        Hang(drip=0.05),
        "no answer in time",
        "0.5 s of models.*.timeout_seconds",
    ),
}


def limit_of(fault: Fault | Reply) -> float:
    """Return the time limit: short where it is waited for."""
    return 0.5 if isinstance(fault, Hang) else 30.0


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_stays_fails_the_row_with_a_constant_reason(name: str) -> None:
    fault, reason, detail = FAULTS[name]
    with chat_server(lambda asked: fault if asked.text == "1" else "good") as server:
        config = config_of(
            server, timeout_seconds=limit_of(fault), max_attempts=2, patience_seconds=60
        )
        ended = asyncio.Event()

        async def work(row: ItemRow, chat: Chat) -> ItemRow:
            """Ask on and on beside the row that fails: what a server answers to nobody is not the
            row's fault."""
            try:
                while row.name != "1" and not ended.is_set():
                    await chat.ask(question("0"))
                return await ask_once(row, chat)
            finally:
                ended.set()

        (result,) = [
            each
            for each in ask_rows(items(2), work, config, pace=QUICK)
            if not isinstance(each, ItemRow)
        ]
        tries = [request for request in server.asked if request.text == "1"]
    assert isinstance(result, Failed)
    assert result.reason == reason
    assert result.detail.startswith(detail)
    assert result.detail.endswith(f" tries, last at {server.url})")
    assert len(tries) >= 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Status(401), r"HTTP 401: scripted: .*PAIRWRIGHT_TEST_KEY"),
        (Status(307, headers={"Location": "/v2"}), r"HTTP 307: .*models\.\*\.endpoint"),
        (Status(404, "no model tiny"), r"HTTP 404: no model tiny: .*models\.\*\.model"),
        (Status(405), r"HTTP 405: scripted: .*models\.\*\.endpoint"),
    ],
)
def test_a_server_that_does_not_fit_ends_the_shard_at_once(fault: Status, words: str) -> None:
    with chat_server(lambda _: fault) as server:
        with pytest.raises(ServerError, match=f"^{server.url}: {words}"):
            list(asked(items(50), config_of(server)))
        assert len(server.asked) <= QUICK.start


def test_only_what_is_needed_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.setenv(name, "http://sk-ambient")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Ambient: sk-ambient\nAuthorization: Bearer sk-ambient"
    )
    with chat_server(lambda _: Raw(GOOD)) as server:
        ask_now(config_of(server))
        monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", " sk-mine\n")
        ask_now(config_of(server, max_concurrency=7))
    without, with_key = (request.headers for request in server.asked)
    expected = {
        "host",
        "accept",
        "accept-encoding",
        "connection",
        "content-type",
        "content-length",
        "user-agent",
    }
    assert set(without) == expected
    assert set(with_key) == expected | {"authorization"}
    assert with_key["authorization"] == "Bearer sk-mine"
    assert "sk-ambient" not in repr([request.headers for request in server.asked])


def test_proxies_of_the_environment_are_not_used_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with chat_server(lambda _: "good") as proxy, chat_server(lambda _: "good") as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        assert ask_now(config_of(server)).text == "good"
        assert proxy.paths == []
        with pytest.raises(ServerError):  # the proxy does not know what to do with it
            ask_now(config_of("http://models.example/v1"))
        assert proxy.paths == ["http://models.example/v1/chat/completions"]


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/v1", "http://[::1/v1", "http://host:99999/v1", "http://user:hunter2@host/v1"),
        *("http://host/v1?key=hunter2", "http://host/v1#hunter2", "http://host/\nv1"),
    ],
)
def test_what_is_no_address_is_named_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^models\.\*\.endpoint: ") as caught:
        Client(config_of(url))
    assert "hunter2" not in str(caught.value)


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, trusted = write_certificate(tmp_path)
    with chat_server(lambda _: "good", context=context) as server:
        with pytest.raises(ServerError, match="CERTIFICATE_VERIFY_FAILED"):
            ask_now(config_of(server, patience_seconds=0.1))
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert ask_now(config_of(server)).text == "good"


ANSWER = json.loads(body_of(Reply("A red cup.", fingerprint="fp-1"), "tiny"))


def body(said: Any = None, **changes: Any) -> bytes:
    """Return a good answer with its choice changed."""
    said = json.loads(json.dumps(ANSWER)) if said is None else said
    for name, value in changes.items():
        place = said["choices"][0] if name == "finish_reason" else said["choices"][0]["message"]
        place[name] = value
    return json.dumps(said).encode()


def without(*path: Any) -> bytes:
    said = json.loads(json.dumps(ANSWER))
    place = said
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"<html><body>Bad gateway</body></html>",
        b"[" * 100_000,
        b'{"choices": ' + b"9" * 10_000 + b"}",
        body()[:-1] + b"\xff}",
        b"null",
        b'{"error": {"message": "out of memory"}}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": ["content"], "finish_reason": "stop"}]}',
        without("choices", 0, "message", "content"),
        without("choices", 0, "finish_reason"),
        body(content=[{"type": "text", "text": "a"}]),
        body(finish_reason=3),
    ],
)
def test_a_body_of_another_form_is_broken(data: bytes) -> None:
    with pytest.raises(FaultError) as caught:
        read_answer(data)
    assert caught.value.reason == "broken answer"
    assert len(caught.value.detail) < 400


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        {"prompt_tokens": -1, "completion_tokens": None},
        {"prompt_tokens": "7", "completion_tokens": True},
        {"prompt_tokens": 1e9, "completion_tokens": 2**40},
    ],
)
def test_wrong_counts_of_tokens_are_none(usage: Any) -> None:
    served = read_answer(
        json.dumps({**ANSWER, "usage": usage, "system_fingerprint": None}).encode()
    ).served
    assert (served.prompt_tokens, served.completion_tokens, served.revision) == (0, 0, "")


def test_halves_of_surrogates_do_not_reach_a_file() -> None:
    said = read_answer(body(content="a \ud800 \U0001f600 \udc00"))
    assert said.text == "a \ufffd \U0001f600 \ufffd"
    assert read_answer(body(content="\ud83d\ude00")).text == "\U0001f600"
    assert whole("plain") == "plain"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"error": {"message": "too long", "code": 400}}', "too long"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (
            b'{"detail": [{"loc": ["body"], "msg": "field required"}]}',
            '[{"loc": ["body"], "msg": "field required"}]',
        ),
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


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_wrong_question_is_asked_once(code: int) -> None:
    with chat_server(lambda _: Status(code, "the prompt\nis too long" + "!" * 5000)) as server:
        (result,) = asked(items(1), config_of(server))
        assert len(server.asked) == 1
    assert isinstance(result, Dropped)
    assert result.reason == "the server refused the request"
    assert result.detail.startswith("the prompt is too long!!!")
    assert len(result.detail) == 300


def test_an_answer_that_ends_otherwise_drops_its_row() -> None:
    with chat_server(lambda _: Reply(None, finish_reason="content_filter")) as server:
        (result,) = asked(items(1), config_of(server))
        assert len(server.asked) == 1
    reason, detail = "the server ended the answer", "finish reason content_filter"
    assert result == Dropped(source_key=item(0).key, reason=reason, detail=detail)


def test_an_image_that_does_not_decode_drops_its_row() -> None:
    async def work(row: ItemRow, chat: Chat) -> ItemRow:
        await chat.ask(question("", images=(b"\x89PNG\r\n\x1a\n",)))
        return row

    with chat_server(lambda _: "good") as server:
        (result,) = ask_rows(items(1), work, config_of(server), pace=QUICK)
        assert server.asked == []
    assert isinstance(result, Dropped)
    assert result.reason == "damaged image"


def test_what_the_server_says_of_an_answer_is_kept() -> None:
    said = Reply("Red.", finish_reason="length", model="tiny-8bit", fingerprint="fp-7", after=0.05)
    with chat_server(lambda _: said) as server:
        answer = ask_now(config_of(server, revision="abc"))
    assert (answer.text, answer.finish_reason) == ("Red.", "length")
    served = answer.served
    assert (served.model, served.revision, served.prompt, served.seed) == (
        "tiny-8bit",
        "fp-7",
        "test",
        1,
    )
    assert (served.prompt_tokens, served.completion_tokens) == (7, 3)
    assert served.latency >= 0.05


def test_a_server_that_refuses_everything_from_the_start_is_wrong() -> None:
    with (
        chat_server(lambda asked: Status(400, "one image at most")) as server,
        pytest.raises(ServerError, match=r"\b5 .*\(one image at most\)"),
    ):
        list(asked(items(100), config_of(server)))
    good = {"0"}
    with chat_server(lambda asked: "good" if asked.text in good else Status(400)) as server:
        config = config_of(server)
        assert ask_now(config).text == "good"
        assert sum(isinstance(each, Dropped) for each in asked(items(60), config)) == 59


@pytest.mark.parametrize("value", ["sk 123", "sk-\u00e9", "sk-\x01"])
def test_what_is_no_key_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", value)
    with pytest.raises(ConfigError, match=r"^models\.\*\.key: .*PAIRWRIGHT_TEST_KEY") as caught:
        Client(config_of("http://127.0.0.1:9/v1"))
    assert "sk" not in str(caught.value)


def test_the_key_reaches_no_log_no_error_no_row_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The server repeats the key wherever it can."""
    secret = "sk-Zq7/very+secret=="
    monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", secret)
    kinds: list[Any] = [
        *(
            Reply(f"the key is {secret}", fingerprint=secret, model=secret),
            Reply("x", finish_reason=secret),
        ),
        *map(Raw, (GOOD.replace(b"good", secret.encode()), secret.encode())),
        *(Status(code, f"bad key {secret}") for code in (400, 429, 500)),
    ]
    said: list[str] = []
    with caplog.at_level(logging.DEBUG), Answers(tmp_path / "x.answers") as memory:
        with chat_server(lambda asked: kinds[int(asked.text)]) as server:
            config = config_of(server, timeout_seconds=0.3, max_attempts=2, patience_seconds=0.1)
            client = client_of(config, QUICK)
            said += [repr(client), repr(vars(client))]
            for number in range(len(kinds)):
                try:
                    said += map(repr, asked([item(number)], config, answers=memory))
                except PairwrightError as error:
                    said.append(repr(error))
            assert {request.headers["authorization"] for request in server.asked} == {
                f"Bearer {secret}"
            }
        for code in (401, 404):
            with chat_server(lambda _, code=code: Status(code, secret)) as server:
                server.models = ("tiny", secret)
                with pytest.raises(ServerError) as caught:
                    list(asked(items(1), config_of(server)))
                said.append(str(caught.value))
    kept = (tmp_path / "x.answers").read_bytes()
    everything = "\n".join([*said, caplog.text, kept.decode("utf-8", "replace")])
    assert "***" in everything
    assert "very+secret" not in everything
