"""Builds that served models write: through faults, kills and lost servers no row is lost and
nothing is asked twice."""

import json
import shutil
import threading

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import Close, Hang, Raw, Reply, Status, body_of, chat_server
from tests.fixtures.scripted_model import answer, kind_of, name_of
from tests.flows.conftest import SMALL, WIDE, with_images_of

SETTINGS = [
    *SMALL,
    *WIDE,
    "captions.writer=served",
    "differences.writer=served",
    "differences.candidates=2",
    "controls.enabled=true",
    "controls.kinds=[same]",
    "judging.enabled=true",
    "comparisons.writer=served",
    "models.chat.model=tiny",
    'models.chat.structured_output="none"',
    "models.chat.timeout_seconds=2",
]
TEXTS = {
    "captions": "text",
    "described": "text",
    "controlled": "check",
    "judged": "check",
    "differences": "text",
    "comparisons": "text",
    "preferences": "chosen",
}
"""Tables that hold what was asked for, each with a field of its rows."""
FAULTS = (
    Status(500),
    Status(429, headers={"Retry-After": "0"}),
    Status(503),
    Close(),
    Close(reset=True),
    Raw(b"<html>no</html>"),
    Raw(b'{"choices": [{"message": {"content": "\xff"}, "finish_reason": "stop"}]}'),
    Raw(b'{"choices": [{"message":', headers={"Content-Length": "900"}, cut=24),
    Hang(),
)


def names_of(server):
    """Return what was asked for rows."""
    return [name_of(request) for request in server.asked if kind_of(request) != "probe"]


def build(out, server, *settings, until=""):
    endpoint = f"models.chat.endpoint={server.url}"
    return build_here(out, settings=[*SETTINGS, endpoint, *settings], until=until)


def rows_of(out):
    """Return key and text of all rows, by table."""
    dataset = pw.open(out)
    return {
        table: sorted((row.key, str(getattr(row, field))) for row in dataset[table].rows())
        for table, field in TEXTS.items()
    }


@pytest.fixture(scope="module")
def unwritten(rendered, tmp_path_factory):
    """Return a dataset of which nobody has asked anything yet."""
    out = with_images_of(rendered, tmp_path_factory.mktemp("unwritten") / "out")
    with chat_server(answer) as server:
        assert build(out, server, until="mining").is_complete
        assert server.asked == []
    return out


@pytest.fixture
def out(tmp_path, unwritten):
    """Return a copy of it."""
    return shutil.copytree(unwritten, tmp_path / "out")


@pytest.fixture(scope="module")
def clean(tmp_path_factory, unwritten):
    """Return the rows of a build without faults, its counts, and what it asked."""
    out = shutil.copytree(unwritten, tmp_path_factory.mktemp("clean") / "out")
    with chat_server(answer) as server:
        report = build(out, server)
        names = names_of(server)
    assert report.is_complete
    assert len(names) == len(set(names)) > 60
    rows = rows_of(out)
    assert all(rows.values())
    return rows, report.counts, names


@pytest.mark.slow
def test_faults_of_every_kind_change_nothing(out, clean):
    rows, counts, _ = clean
    faults = {number: FAULTS[number // 3 % len(FAULTS)] for number in range(0, 60, 3)}

    def fail_at_times(request):
        return faults.pop(request.number, None) or answer(request)

    with chat_server(fail_at_times) as server:
        report = build(out, server)
    assert not faults
    assert report.is_complete
    assert rows_of(out) == rows
    assert report.counts == counts


def test_rows_that_fail_are_owed_and_made_at_the_next_run(out, clean):
    rows, counts, _ = clean
    down = True

    def fail_a_fifth(request):
        fails = down and kind_of(request) != "probe" and int(name_of(request), 16) % 5 == 0
        return Status(500) if fails else answer(request)

    with chat_server(fail_a_fifth) as server:
        failing = build(out, server, "models.chat.max_attempts=1")
        down = False
        report = build(out, server, "models.chat.max_attempts=1")
    reasons = {reason for count in failing.counts for reason in count.reasons if count.failed}
    assert "server error" in reasons
    for count in failing.counts:
        assert count.of == count.ok + count.dropped + count.failed + count.pending
    assert report.is_complete
    assert rows_of(out) == rows
    assert report.counts == counts


def test_a_server_that_is_gone_fails_its_shards_and_the_rest_is_done_later(out, clean):
    rows, *_ = clean
    gone = threading.Event()

    def leave_at_the_20th(request):
        if request.number == 20:
            gone.set()
        return answer(request)

    with chat_server(leave_at_the_20th) as server:
        thread = threading.Thread(target=lambda: gone.wait() and server.stop())
        thread.start()
        report = build(out, server, "models.chat.patience_seconds=1")
        thread.join()
        assert not report.is_complete
        assert server.url in report.failures[0].error
        server.start()
        assert build(out, server, "models.chat.patience_seconds=1").is_complete
    assert rows_of(out) == rows


@pytest.mark.slow
def test_pairs_wait_for_captions_that_could_not_be_asked_for(out, clean):
    """Otherwise all would be asked about without captions now, and again with them later."""
    rows, _, names = clean
    down = True

    def fail_captions(request):
        return Status(500) if down and kind_of(request) == "captions" else answer(request)

    with chat_server(fail_captions) as server:
        report = build(out, server, "models.chat.patience_seconds=1")
        counts = {count.stage: count for count in report.counts}
        assert counts["captions"].pending == counts["captions"].of > 0
        assert counts["described"].pending == counts["described"].of > 0
        assert {kind_of(request) for request in server.asked} == {"probe", "captions"}
        down = False
        server.asked.clear()
        assert build(out, server, "models.chat.patience_seconds=1").is_complete
        assert sorted(names_of(server)) == sorted(names)
    assert rows_of(out) == rows


THOUGHT = "Okay, let me look at the two images. The first one seems to show a ball."


def think_aloud(request):
    return f"<think>\n{THOUGHT}\n</think>\n\n{answer(request)}"


def think_apart(request):
    body = json.loads(body_of(Reply(answer(request)), "tiny"))
    body["choices"][0]["message"]["reasoning_content"] = THOUGHT
    return Raw(json.dumps(body).encode())


def thought_tokens(served):
    return served.thought_tokens


def take_parameters_of_openai(request):
    for name in ("max_tokens", "temperature", "top_p"):
        if name in request.body:
            return Status(400, f"Unsupported parameter: '{name}' is not supported with this model.")
    return answer(request)


SERVERS = {
    "thinks aloud": (think_aloud, ["models.chat.thinking_tokens=1000"]),
    "its thoughts are parsed": (think_apart, ["models.chat.thinking_tokens=1000"]),
    "OpenAI's parameters": (take_parameters_of_openai, []),
}


@pytest.mark.parametrize(("say", "settings"), SERVERS.values(), ids=SERVERS)
def test_servers_of_other_kinds_give_the_same_rows(out, clean, say, settings):
    rows, _, names = clean
    with chat_server(say) as server:
        report = build(out, server, *settings)
        assert len(names_of(server)) == len(names)
        limits = {"max_tokens", "max_completion_tokens"} & server.asked[-1].body.keys()
    assert limits == {"max_completion_tokens" if say is take_parameters_of_openai else "max_tokens"}
    assert report.is_complete
    assert rows_of(out) == rows
    written = [row.served[-1] for row in pw.open(out)["captions"].rows()]
    assert all(("thoughts" in served.removed) == (say is think_aloud) for served in written)
    assert all((served.thought_tokens > 0) == (say is think_apart) for served in written)
    counts = {count.stage: count for count in pw.open(out).status().answers}
    assert (set(counts) >= {"captions", "described"}) == (say is not take_parameters_of_openai)
    if say is think_aloud:
        assert counts["captions"].removed == {"thoughts": counts["captions"].answers}
        assert "captions: of " in str(counts["captions"])
        assert "taken off thoughts (" in str(counts["captions"])
    if say is think_apart:
        assert counts["captions"].thought_tokens >= sum(map(thought_tokens, written))
    assert report.answers == list(counts.values())
