"""What a server may do to a request: every fault is named, and nothing is sent needlessly."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pairwright.schemas.errors import ConfigError, PairwrightError, ServerError
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.serving.chat import UnansweredError
from pairwright.tasks.serving.client import Client, client_of
from pairwright.tasks.serving.connection import read_retry_after
from pairwright.tasks.serving.faults import FaultError, message_of
from pairwright.tasks.serving.read_response import read_response
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import QUICK, ask_all, ask_now, ask_once, config_of, item, items
from tests.fixtures.asking import question as ask_for
from tests.fixtures.certificates import write_certificate
from tests.fixtures.chat_server import Close, Hang, Raw, Reply, Status, body_of, chat_server

GOOD = body_of(Reply("good", fingerprint="fp"), "tiny")
LATE = "0.5 s of models.*.timeout_seconds"


FAULTS = {
    "408": (Status(408), "no answer in time", "HTTP 408: scripted"),
    "429": (Status(429), "server busy", "HTTP 429: scripted"),
    "500": (Status(500), "server error", "HTTP 500: scripted"),
    "502 in HTML": (Status(502, body=b"<h1>Bad</h1>"), "server error", "HTTP 502: Bad"),
    "503 and nothing": (Status(503, body=b""), "server busy", "HTTP 503"),
    "closed": (Close(), "broken answer", "Server disconnected without"),
    "reset": (Close(reset=True), "broken answer", ""),
    "cut after the head": (Raw(GOOD, cut=0), "broken answer", "peer closed connection"),
    "aborted": (Reply("a", finish_reason="abort"), "server error", "finish reason abort"),
    "hangs": (Hang(), "no answer in time", LATE),
    "a byte now and then": (Hang(drip=0.05), "no answer in time", LATE),
}


@pytest.mark.parametrize(("fault", "reason", "detail"), FAULTS.values(), ids=FAULTS)
def test_a_fault_that_stays_fails_the_row_with_a_constant_reason(fault, reason, detail) -> None:
    """Another row goes on asking: what a server answers to nobody is not the row's fault."""
    with chat_server(lambda request: fault if request.text == "1" else "good") as server:
        ended = asyncio.Event()

        async def work(row, chat):
            try:
                while row.name != "1" and not ended.is_set():
                    await chat.ask(ask_for("0"))
                return await ask_once(row, chat)
            finally:
                ended.set()

        limit_s = 0.5 if isinstance(fault, Hang) else 30.0
        config = config_of(server, timeout_seconds=limit_s, max_attempts=2, patience_seconds=60)
        results = list(ask_all(items(2), config, work))
        tries = [request for request in server.asked if request.text == "1"]
    (failed,) = (result for result in results if not isinstance(result, ItemRow))
    assert isinstance(failed, Failed)
    assert failed.reason == reason
    assert failed.detail.startswith(detail)
    assert failed.detail.endswith(f" tries, last at {server.url})")
    assert len(tries) >= 2


MISFITS = {
    "key": (Status(401), r"HTTP 401: scripted: .*PAIRWRIGHT_TEST_KEY"),
    "moved": (Status(307, headers={"Location": "/v2"}), r"HTTP 307: .*models\.\*\.endpoint"),
    "method": (Status(405), r"HTTP 405: scripted: .*models\.\*\.endpoint"),
}


@pytest.mark.parametrize(("fault", "words"), MISFITS.values(), ids=MISFITS)
def test_a_server_that_does_not_fit_ends_the_shard_at_once(fault, words) -> None:
    with chat_server(lambda _: fault) as server:
        with pytest.raises(ServerError, match=f"^{server.url}: {words}"):
            list(ask_all(items(50), config_of(server)))
        assert len(server.asked) <= QUICK.start


def test_only_what_is_needed_is_sent(monkeypatch) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", "http://sk-ambient")
    ambient = "X-Ambient: sk-ambient\nAuthorization: Bearer sk-ambient"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", ambient)
    with chat_server(lambda _: Raw(GOOD)) as server:
        ask_now(config_of(server))
        monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", " sk-mine\n")
        ask_now(config_of(server, max_concurrency=7))
    without, with_key = (request.headers for request in server.asked)
    plain = "host accept accept-encoding connection content-type content-length user-agent"
    assert set(without) == set(plain.split())
    assert set(with_key) == {*plain.split(), "authorization"}
    assert with_key["authorization"] == "Bearer sk-mine"
    assert "sk-ambient" not in repr([without, with_key])


def test_proxies_of_the_environment_are_not_used_on_this_machine(monkeypatch) -> None:
    with chat_server(lambda _: "good") as proxy, chat_server(lambda _: "good") as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        assert ask_now(config_of(server)).text == "good"
        assert proxy.paths == []
        with pytest.raises(UnansweredError):  # the proxy does not know what to do with it
            ask_now(config_of("http://models.example/v1", max_attempts=1))
        assert proxy.paths == ["http://models.example/v1/chat/completions"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "http://[::1/v1",
        "http://host:99999/v1",
        "http://user:hunter2@host/v1",
        "http://host/v1?key=hunter2",
        "http://host/v1#hunter2",
        "http://host/\nv1",
    ],
)
def test_what_is_no_address_is_named_without_its_secrets(url) -> None:
    with pytest.raises(ConfigError, match=r"^models\.\*\.endpoint: ") as caught:
        Client(config_of(url))
    assert "hunter2" not in str(caught.value)


def test_certificates_are_checked(tmp_path, monkeypatch) -> None:
    context, trusted = write_certificate(tmp_path)
    with chat_server(lambda _: "good", context=context) as server:
        with pytest.raises(ServerError, match="CERTIFICATE_VERIFY_FAILED"):
            ask_now(config_of(server, patience_seconds=0.1))
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert ask_now(config_of(server)).text == "good"


def answer_with(message=(), choice=(), **changes):
    """Return a good answer with some fields changed."""
    answer = json.loads(body_of(Reply("A red cup.", fingerprint="fp-1"), "tiny"))
    first = answer["choices"][0]
    for place, fields in ((first["message"], message), (first, choice), (answer, changes)):
        place.update(fields)
    return answer


def encoded(answer):
    return json.dumps(answer).encode()


BROKEN = {
    "HTML": b"<html><body>Bad gateway</body></html>",
    "deeply nested": b"[" * 100_000,
    "a huge number": b'{"choices": ' + b"9" * 10_000 + b"}",
    "no UTF-8": encoded(answer_with())[:-1] + b"\xff}",
    "null": b"null",
    "no choices": b'{"object": "list", "data": []}',
    "a list": b'{"choices": [{"message": ["content"], "finish_reason": "stop"}]}',
    "no content": b'{"choices": [{"message": {}}]}',
    "a text of numbers": encoded(answer_with({"content": 7})),
    "a wrong reason": encoded(answer_with(choice={"finish_reason": 3})),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_body_of_another_form_is_broken(data) -> None:
    with pytest.raises(FaultError) as caught:
        read_response(data)
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
    ids=str,
)
def test_wrong_counts_of_tokens_are_none(usage) -> None:
    served = read_response(encoded(answer_with(usage=usage, system_fingerprint=None))).served
    assert (served.prompt_tokens, served.completion_tokens, served.revision) == (0, 0, "")


def test_halves_of_surrogates_do_not_reach_a_file() -> None:
    halves = read_response(encoded(answer_with({"content": "a \ud800 \U0001f600 \udc00"})))
    assert halves.text == "a \ufffd \U0001f600 \ufffd"
    assert read_response(encoded(answer_with({"content": "\ud83d\ude00"}))).text == "\U0001f600"


LARGE = "413 Request Entity Too Large"
LIST = '[{"loc": ["body"], "msg": "field required"}]'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"error": {"message": "too long", "code": 400}}', "too long"),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        (f'{{"detail": {LIST}}}', "body: field required"),
        (f'{{"message": {{"detail": {LIST}}}}}', "body: field required"),
        ('"too long"', "too long"),
        ('[{"error": {"message": "too long", "code": 400}}]', "too long"),
        ('{"errors": [{"message": "too long"}, {"message": "too wide"}]}', "too long; too wide"),
        ('{"error": {"message": "{\\"error\\": {\\"message\\": \\"too long\\"}}"}}', "too long"),
        ('{"error": {"message": "{too long}"}}', "{too long}"),
        ('{"error": {"type": "overloaded"}}', '{"type": "overloaded"}'),
        (f"<head><title>{LARGE}</title></head><h1>{LARGE}</h1>nginx", f"{LARGE} nginx"),
        ('{"error": "too\\nlong\\u0000\\u202e"}', "too long"),
        ("<html><title>502</title>\n<b>Bad</b> gateway</html>", "502 Bad gateway"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("", ""),
        ("[" * 5000, "[" * 297 + "..."),
        ("<" * 5000, "<" * 297 + "..."),
    ],
    ids=lambda value: value[:20],
)
def test_messages_are_one_printable_line(data, message) -> None:
    assert message_of(data if isinstance(data, bytes) else data.encode()) == message


@pytest.mark.parametrize("code", [400, 422])
def test_a_wrong_question_is_asked_once(code) -> None:
    with chat_server(lambda _: Status(code, "the prompt\nis too long" + "!" * 5000)) as server:
        (result,) = ask_all(items(1), config_of(server))
        assert len(server.asked) == 1
    assert isinstance(result, Dropped)
    assert result.reason == "the server refused the request"
    assert result.detail.startswith("the prompt is too long!!!")
    assert len(result.detail) == 300


def test_an_answer_that_ends_otherwise_drops_its_row() -> None:
    with chat_server(lambda _: Reply(None, finish_reason="content_filter")) as server:
        (result,) = ask_all(items(1), config_of(server))
        assert len(server.asked) == 1
    reason, detail = "the server ended the answer", "finish reason content_filter"
    assert result == Dropped(source_key=item(0).key, reason=reason, detail=detail)


def test_an_image_that_does_not_decode_drops_its_row() -> None:
    async def work(row, chat):
        await chat.ask(ask_for("", images=(b"\x89PNG\r\n\x1a\n",)))
        return row

    with chat_server(lambda _: "good") as server:
        (result,) = ask_all(items(1), config_of(server), work)
        assert server.asked == []
    assert isinstance(result, Dropped)
    assert result.reason == "damaged image"


def test_what_the_server_tells_of_an_answer_is_kept() -> None:
    reply = Reply("Red.", finish_reason="length", model="tiny-8bit", fingerprint="fp-7", after=0.05)
    with chat_server(lambda _: reply) as server:
        answer = ask_now(config_of(server, revision="abc"))
    served = answer.served
    assert (answer.text, answer.finish_reason) == ("Red.", "length")
    assert (served.model, served.revision) == ("tiny-8bit", "fp-7")
    assert (served.prompt, served.seed) == ("test", 1)
    assert (served.prompt_tokens, served.completion_tokens) == (7, 3)
    assert served.latency >= 0.05


def test_a_server_that_refuses_everything_from_the_start_is_wrong() -> None:
    with (
        chat_server(lambda _: Status(400, "one image at most")) as server,
        pytest.raises(ServerError, match=r"\b5 .*\(one image at most\)"),
    ):
        list(ask_all(items(100), config_of(server)))


def test_refusals_after_a_good_answer_drop_their_rows_only() -> None:
    with chat_server(lambda request: "good" if request.text == "0" else Status(400)) as server:
        config = config_of(server)
        assert ask_now(config).text == "good"
        assert sum(isinstance(result, Dropped) for result in ask_all(items(20), config)) == 19


@pytest.mark.parametrize("key", ["sk 123", "sk-\u00e9", "sk-\x01"])
def test_what_is_no_key_is_refused_without_being_shown(monkeypatch, key) -> None:
    monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", key)
    with pytest.raises(ConfigError, match=r"^models\.\*\.key: .*PAIRWRIGHT_TEST_KEY") as caught:
        Client(config_of("http://127.0.0.1:9/v1"))
    assert "sk" not in str(caught.value)


SECRET = "sk-Zq7/very+secret=="
REPEATS_KEY = {
    "in the answer": Reply(f"the key is {SECRET}", fingerprint=SECRET, model=SECRET),
    "as the end of an answer": Reply(None, finish_reason=SECRET),
    "in a whole body": Raw(GOOD.replace(b"good", SECRET.encode())),
    "as a body": Raw(SECRET.encode()),
    **{f"in an error {code}": Status(code, f"bad key {SECRET}") for code in (400, 429, 500)},
}


@pytest.fixture
def secret(monkeypatch, caplog):
    monkeypatch.setenv("PAIRWRIGHT_TEST_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    yield SECRET
    assert "very+secret" not in caplog.text


@pytest.mark.parametrize("reply", REPEATS_KEY.values(), ids=REPEATS_KEY)
def test_a_key_that_the_server_repeats_is_starred_everywhere(secret, tmp_path, reply) -> None:
    with Answers(tmp_path / "x.answers") as memory, chat_server(lambda _: reply) as server:
        config = config_of(server, timeout_seconds=0.3, max_attempts=2, patience_seconds=0.1)
        client = client_of(config, QUICK)
        try:
            outcome = repr(list(ask_all([item(0)], config, answers=memory)))
        except PairwrightError as error:
            outcome = repr(error)
        assert server.asked[0].headers["authorization"] == f"Bearer {secret}"
    assert "***" in outcome
    assert "very+secret" not in f"{outcome} {client!r} {vars(client)!r}"
    assert b"very+secret" not in (tmp_path / "x.answers").read_bytes()


@pytest.mark.parametrize("code", [401, 405])
def test_a_key_is_starred_in_what_ends_a_shard(secret, code) -> None:
    with chat_server(lambda _: Status(code, secret)) as server:
        server.models = ("tiny", secret)
        with pytest.raises(ServerError, match=r"\*\*\*") as caught:
            list(ask_all(items(1), config_of(server)))
    assert "very+secret" not in str(caught.value)


@pytest.mark.parametrize("code", [404, 409, 424, 403])
def test_a_declined_request_fails_its_row_only(code) -> None:
    def answer(request):
        return Status(code, "not now") if request.text == "3" else "good"

    with chat_server(answer) as server:
        results = list(ask_all(items(8), config_of(server, max_attempts=2)))
        tries = [request for request in server.asked if request.text == "3"]
    [failed] = [result for result in results if not isinstance(result, ItemRow)]
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.detail.partition(" (")[0]) == (f"HTTP {code}", "not now")
    assert len(tries) == (1 if code == 403 else 2)


@pytest.mark.parametrize("code", [404, 409, 424, 403])
def test_requests_that_keep_failing_alike_end_the_stage(code) -> None:
    words = rf"HTTP {code}: no route.*5 requests in turn"
    with (
        chat_server(lambda _: Status(code, "no route")) as server,
        pytest.raises(ServerError, match=words),
    ):
        list(ask_all(items(50), config_of(server, max_attempts=2)))


@pytest.mark.parametrize("code", [400, 403, 451])
def test_moderation_drops_rows_however_many_there_are(code) -> None:
    words = "Your input was flagged by moderation"
    with chat_server(lambda _: Status(code, words)) as server:
        results = list(ask_all(items(20), config_of(server)))
        assert len(server.asked) == 20
    assert all(isinstance(result, Dropped) for result in results)
    assert {result.detail for result in results} == {words}


WITHIN = {
    "a number": ({"message": "Rate limit", "code": 429}, "server busy", "HTTP 429: Rate limit"),
    "digits": ({"message": "Rate limit", "code": "429"}, "server busy", "HTTP 429: Rate limit"),
    "words": ("model is loading", "server error", "HTTP 500: model is loading"),
    "a kind": ({"message": "full", "type": "overloaded_error"}, "server error", "HTTP 500: full"),
}


@pytest.mark.parametrize(("error", "reason", "detail"), WITHIN.values(), ids=WITHIN)
def test_an_error_within_a_good_status_has_its_own_reason(error, reason, detail) -> None:
    """An overload counts once others are answered meanwhile."""
    body = Raw(json.dumps({"error": error}).encode())
    with chat_server(lambda asked: body if asked.text == "1" else "good") as server:
        config = config_of(server, max_attempts=1, patience_seconds=60)
        results = list(ask_all(items(40), config))
    [failed] = [result for result in results if isinstance(result, Failed)]
    assert failed.reason == reason
    assert failed.detail.startswith(detail)


LONG = "the request exceeds the available context size"
REFUSALS = {
    "too long, by llama.cpp": (Status(500, LONG), LONG),
    "too long, within a good status": (
        Raw(json.dumps({"error": {"message": LONG, "code": "context_length_exceeded"}}).encode()),
        LONG,
    ),
    "too large for a proxy": (
        Status(413, body=f"<title>{LARGE}</title><h1>{LARGE}</h1>".encode()),
        f"HTTP 413: {LARGE} (raise the limit of the server or its proxy, or lower "
        "models.*.max_pixels)",
    ),
    "by the model, in a part": (
        Raw(encoded(answer_with({"content": [{"type": "refusal", "refusal": "I cannot."}]}))),
        "I cannot.",
    ),
    "by a provider's filter": (
        Raw(encoded(answer_with({"content": ""}, {"native_finish_reason": "SAFETY"}))),
        "finish reason SAFETY",
    ),
    "before a choice": (
        Raw(b'{"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}'),
        '{"blockReason": "SAFETY"}',
    ),
}


@pytest.mark.parametrize(("fault", "detail"), REFUSALS.values(), ids=REFUSALS)
def test_a_request_that_is_refused_for_good_drops_its_row_in_the_servers_words(
    fault, detail
) -> None:
    with chat_server(lambda asked: fault if asked.text == "1" else "good") as server:
        results = list(ask_all(items(3), config_of(server)))
    [dropped] = [result for result in results if not isinstance(result, ItemRow)]
    assert isinstance(dropped, Dropped)
    assert dropped.detail == detail


@pytest.mark.parametrize("code", [400, 403])
def test_a_key_that_is_not_valid_is_named_under_any_status(code) -> None:
    words = "API key not valid. Please pass a valid API key."
    with (
        chat_server(lambda _: Status(code, words)) as server,
        pytest.raises(ServerError, match=rf"HTTP {code}: API key .*PAIRWRIGHT_TEST_KEY"),
    ):
        list(ask_all(items(20), config_of(server)))


def test_waiting_does_not_help_without_credit() -> None:
    body = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    with chat_server(
        lambda asked: Status(429, body=body) if asked.text == "1" else "good"
    ) as server:
        results = list(ask_all(items(3), config_of(server)))
        assert len(server.asked) == 3
    [failed] = [result for result in results if isinstance(result, Failed)]
    assert (failed.reason, failed.detail.partition(" (")[0]) == (
        "HTTP 429",
        "You exceeded your quota",
    )


def test_an_error_within_a_good_status_is_the_servers() -> None:
    body = b'{"error": {"message": "Provider returned error", "code": 502}}'
    replies = [Raw(body), Raw(body), "good"]
    with chat_server(lambda request: replies[request.number]) as server:
        assert ask_now(config_of(server)).text == "good"


WAITS = {
    "seconds": ({"Retry-After": "6"}, 6),
    "parts of a second": ({"Retry-After": " 0.25 "}, 0.25),
    "milliseconds": ({"Retry-After-Ms": "6000"}, 6),
    "both": ({"Retry-After-Ms": "500", "Retry-After": "1"}, 0.5),
    "with a unit": ({"Retry-After": "1500ms"}, 1.5),
    "words": ({"Retry-After": "soon"}, None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("headers", "seconds"), WAITS.values(), ids=WAITS)
def test_the_wait_that_a_server_asks_for(headers, seconds) -> None:
    wait = read_retry_after({name.lower(): value for name, value in headers.items()})
    assert wait == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"error": {"details": [{"retryDelay": "34.5s"}]}}', 34.5),
        (b'{"error": {"message": "Rate limit. Please try again in 250ms."}}', 0.25),
        (b'{"error": {"message": "Rate limit. Please try again in 6s."}}', 6),
        (b'{"error": {"message": "Try again later."}}', None),
    ],
)
def test_the_wait_in_a_servers_words(body, seconds) -> None:
    assert read_retry_after({}, body) == seconds
    assert read_retry_after({"retry-after": "2"}, body) == 2


@pytest.mark.parametrize(("hours", "seconds"), [(1, 3600), (-24, 0)])
def test_the_wait_until_a_date(hours: int, seconds: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)
    assert read_retry_after({"retry-after": date}) == pytest.approx(seconds, abs=30)
