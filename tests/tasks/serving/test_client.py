"""A client and a scripted server: what becomes of questions, and what is kept of their answers."""

import logging
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError, PairwrightError, ServerError
from pairwright.schemas.rows import Dropped, ItemRow
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat
from pairwright.tasks.serving.client import Client, client_of
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import QUICK, ask_now, asked, config_of, item, items, question
from tests.fixtures.chat_server import Close, Hang, Raw, Reply, Status, body_of, chat_server

GOOD = body_of(Reply("good", fingerprint="fp"), "tiny")


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
    assert (served.model, served.revision, served.prompt, served.seed) == ("tiny-8bit", "fp-7", "test", 1)
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


def test_no_address_at_all_is_said() -> None:
    with pytest.raises(ConfigError, match=r"models\.\*\.endpoint"):
        Client(ChatConfig(model="tiny"))


def test_the_key_reaches_no_log_no_error_no_row_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The server is hostile: it repeats the key wherever it can."""
    secret = "sk-Zq7/very+secret=="
    monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", secret)
    escaped = secret.replace("/", "\\/").replace("Z", "\\u005a").encode()
    headers = ("X-Key", "Content-Encoding", "Content-Length", "Transfer-Encoding")
    bodies = (GOOD.replace(b'"refusal": null', b'"refusal": "no, ' + escaped + b'"'), secret.encode())
    kinds: list[Any] = [
        *(Reply(f"the key is {secret}", fingerprint=secret, model=secret), Reply("x", finish_reason=secret)),
        *(Reply(None, usage={"prompt_tokens": secret}), Close(), Hang()),
        *map(Raw, (GOOD.replace(b"good", escaped), b'{"error": "' + escaped + b'"}', *bodies)),
        *(Raw(GOOD, headers={name: secret}) for name in headers),
        Raw(GOOD, headers={secret: "x" * 250 + secret}),
        *(Status(code, f"bad key {secret}") for code in (400, 413, 422, 408, 429, 500, 502, 503, 504)),
        *(Status(code, body=f"<b>{'y' * 280}{secret}</b>".encode()) for code in (400, 500)),
        *(Status(500, body=b'"' + escaped + b'"'), Status(429, headers={"Retry-After": secret})),
    ]
    fatal: list[Any] = [Status(code, secret) for code in (401, 404, 418)]
    fatal += [Status(403, body=secret.encode()), Status(302, headers={"Location": f"http://{secret}/"})]
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
            assert {request.headers["authorization"] for request in server.asked} == {f"Bearer {secret}"}
        for kind in fatal:
            with chat_server(lambda _, kind=kind: kind) as server:
                server.models = ("tiny", secret)
                with pytest.raises(ServerError) as caught:
                    list(asked(items(1), config_of(server)))
                said.append(str(caught.value))
        assert len(memory) >= 3
    kept = (tmp_path / "x.answers").read_bytes()
    everything = "\n".join([*said, caplog.text, kept.decode("utf-8", "replace")])
    assert "***" in everything
    for part in (secret, secret.replace("/", "\\/"), "very+secret", "sk-Zq7"):
        assert part not in everything
