"""Builds that served models write: through faults, kills and lost servers no row is lost and
nothing is asked twice."""

import hashlib
import json
import shutil
import threading

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import Asked, Close, Hang, Raw, Status, chat_server
from tests.flows.conftest import WIDE
from tests.flows.test_report_served import answer as sound
from tests.flows.test_report_served import kind_of

SETTINGS = [
    *(
        "scenes.worlds=3",
        "scenes.width=64",
        "scenes.height=64",
        "scenes.samples_per_pixel=1",
        "run.workers=1",
        *WIDE,
    ),
    *("captions.writer=served", "differences.writer=served", "differences.candidates=2"),
    *(
        "controls.enabled=true",
        "controls.kinds=[same]",
        "judging.enabled=true",
        "comparisons.writer=served",
    ),
    *(
        "models.chat.model=tiny",
        'models.chat.structured_output="none"',
        "models.chat.timeout_seconds=2",
    ),
]
TABLES = (
    "captions",
    "described",
    "controlled",
    "judged",
    "differences",
    "comparisons",
    "preferences",
)
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


def name_of(asked: Asked) -> str:
    return hashlib.sha256(json.dumps(asked.body, sort_keys=True).encode()).hexdigest()


def names_of(server) -> list[str]:
    """Return what was asked for rows."""
    return [name_of(one) for one in server.asked if kind_of(one) != "probe"]


def build(out, server, *settings: str):
    return build_here(out, settings=[*SETTINGS, f"models.chat.endpoint={server.url}", *settings])


def rows_of(out) -> dict[str, list[tuple[str, str]]]:
    """Return key and words of all rows, by table."""
    words = {"captions": "text", "controlled": "check", "judged": "check", "preferences": "chosen"}
    return {
        table: sorted(
            (row.key, str(getattr(row, words.get(table, "text"))))
            for row in pw.open(out)[table].rows()
        )
        for table in TABLES
    }


@pytest.fixture(scope="module")
def unwritten(tmp_path_factory):
    """Return a dataset of which nobody has asked anything yet."""
    out = tmp_path_factory.mktemp("unwritten") / "out"
    assert build_here(
        out, settings=[*SETTINGS, "models.chat.endpoint=http://127.0.0.1:9"], until="mining"
    ).is_complete
    return out


@pytest.fixture
def out(tmp_path, unwritten):
    """Return a copy of it."""
    return shutil.copytree(unwritten, tmp_path / "out")


@pytest.fixture(scope="module")
def clean(tmp_path_factory, unwritten):
    """Return the rows of a build without faults, its counts, and what it asked."""
    out = shutil.copytree(unwritten, tmp_path_factory.mktemp("clean") / "out")
    with chat_server(sound) as server:
        report = build(out, server)
        asked = names_of(server)
    assert report.is_complete
    assert len(asked) == len(set(asked)) > 60
    rows = rows_of(out)
    assert all(rows.values())
    return rows, report.counts, asked


@pytest.mark.slow
def test_faults_of_every_kind_change_nothing(out, clean) -> None:
    rows, counts, _ = clean
    faulty = set(range(0, 60, 3))

    def answer(asked: Asked):
        if asked.number in faulty:
            faulty.remove(asked.number)
            return FAULTS[asked.number // 3 % len(FAULTS)]
        return sound(asked)

    with chat_server(answer) as server:
        report = build(out, server)
    assert not faulty
    assert report.is_complete
    assert rows_of(out) == rows
    assert report.counts == counts


def test_rows_that_fail_are_owed_and_made_at_the_next_run(out, clean) -> None:
    rows, counts, _ = clean
    down = [True]

    def answer(asked: Asked):
        fails = down[0] and kind_of(asked) != "probe" and int(name_of(asked), 16) % 5 == 0
        return Status(500) if fails else sound(asked)

    with chat_server(answer) as server:
        report = build(out, server, "models.chat.max_attempts=1")
        assert {"server error"} <= {
            reason for count in report.counts for reason in count.reasons if count.failed
        }
        assert all(
            count.of == count.ok + count.dropped + count.failed + count.pending
            for count in report.counts
        )
        down[0] = False
        report = build(out, server, "models.chat.max_attempts=1")
    assert report.is_complete
    assert rows_of(out) == rows
    assert report.counts == counts


def telling(gone: threading.Event):
    """Return who answers, and tells when the 20th question comes."""

    def answer(asked: Asked):
        if asked.number == 20:
            gone.set()
        return sound(asked)

    return answer


def test_a_server_that_is_gone_fails_its_shards_and_the_rest_is_done_later(out, clean) -> None:
    rows, *_ = clean
    gone = threading.Event()
    with chat_server(telling(gone)) as server:
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
def test_pairs_wait_for_captions_that_could_not_be_asked_for(out, clean) -> None:
    """Otherwise all would be asked about without captions now, and again with them later."""
    rows, _, asked = clean
    down = [True]

    def answer(one: Asked):
        return Status(500) if down[0] and kind_of(one) == "captions" else sound(one)

    with chat_server(answer) as server:
        report = build(out, server, "models.chat.patience_seconds=1")
        counts = {count.stage: count for count in report.counts}
        assert counts["captions"].pending == counts["captions"].of > 0
        assert counts["described"].pending == counts["described"].of > 0
        assert {kind_of(one) for one in server.asked} == {"probe", "captions"}
        down[0] = False
        server.asked.clear()
        assert build(out, server, "models.chat.patience_seconds=1").is_complete
        assert sorted(names_of(server)) == sorted(asked)
    assert rows_of(out) == rows
