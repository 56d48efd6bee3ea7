"""Builds stop in order when their budget is used up, and go on when it is raised."""

import json
import re
import shutil
from pathlib import Path

import pytest

from pairwright.flows.building.make_request import resume_request
from pairwright.flows.building.run_build import Report
from pairwright.flows.versions.version import open_present
from pairwright.tasks.store import files
from pairwright.tasks.store.budget import count_asked
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import read_record
from tests.fixtures.builds import build_here, run_request
from tests.fixtures.chat_server import ChatServer, chat_server
from tests.fixtures.command import run, words_of
from tests.fixtures.pictures import write_pictures
from tests.fixtures.scripted_model import answer, kind_of
from tests.flows.conftest import SMALL, WIDE
from tests.tasks.store.faults import fault_of

SERVED = [
    *(*SMALL, *WIDE, "run.rows_per_shard=3", "captions.writer=served", "captions.max_tokens=40"),
    *("models.chat.model=tiny", "models.chat.max_pixels=784"),
    'models.chat.structured_output="none"',
]
CALLS = 9
WORKER = words_of(["run.workers=1"])


def build(out: Path, server: ChatServer, *settings: str) -> Report:
    profile = [*SERVED, f"models.chat.endpoint={server.url}", *settings]
    return build_here(out, settings=profile, until="captioning")


def resume(out: Path, *settings: str) -> Report:
    present = open_present(Folder(str(out)))
    return run_request(resume_request(present, stage="", reason="", settings=settings))


def questions(server: ChatServer) -> list[str]:
    """Return what was asked for rows."""
    requests = [each for each in server.asked if kind_of(each) != "probe"]
    return [json.dumps(each.body, sort_keys=True) for each in requests]


def asked_of(out: Path) -> tuple[int, int]:
    """Return the calls and the tokens that the parts of a dataset say."""
    counts = count_asked(Folder(str(out)))
    return counts["calls"], counts["prompt_tokens"] + counts["completion_tokens"]


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of which only the served part is unfinished."""
    out = tmp_path_factory.mktemp("mined") / "out"
    assert build_here(out, settings=SERVED, until="mining").is_complete
    return out


@pytest.fixture
def out(mined: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(mined, tmp_path / "out"))


def test_a_build_without_a_budget_counts_its_calls(out: Path) -> None:
    with chat_server(answer) as server:
        assert build(out, server).is_complete
        assert len(questions(server)) == CALLS
    assert asked_of(out) == (CALLS, 10 * CALLS)  # the scripted server counts 7 and 3 tokens


def test_calls_are_counted_between_rounds_and_none_is_asked_twice(out: Path) -> None:
    with chat_server(answer) as server:
        report = build(out, server, "run.budget.max_calls=2")  # a shard has three rows
        assert len(questions(server)) == 3, "seen when the first round is done"
        assert report.stopped.startswith("Stopped by run.budget.max_calls")
        assert report.stopped.endswith(f"pairwright resume {out} --set run.budget.max_calls=4")
        assert not report.is_complete
        assert not report.failures
        early, why = report.status(str(out)).held
        assert "ended early" in early
        assert why.strip() == report.stopped, "no word of gates and of publishing"
        assert asked_of(out) == (3, 30)
        assert resume(out).stopped
        assert len(questions(server)) == 3, "it is used up: nothing is asked"
        assert resume(out, "run.budget.max_calls=5").stopped
        assert len(questions(server)) == 6
        assert resume(out, "run.budget.max_calls=10").is_complete
        assert len(questions(server)) == len(set(questions(server))) == CALLS
    assert asked_of(out) == (CALLS, 10 * CALLS)
    assert read_record(Folder(str(out))).profile.run.budget.max_calls == 10, "it stands"


@pytest.fixture
def command(tmp_path: Path) -> tuple[object, ...]:
    """Return a command that builds the images of five pictures."""
    source = write_pictures(tmp_path / "in", "abcde")
    return ("build", source, "--out", tmp_path / "out", "--until", "sources", *WORKER)


def test_time_stops_a_build_between_rounds(
    command: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    hours = "run.budget.max_hours"
    settings = words_of(["run.rows_per_shard_of={images: 1}", f"{hours}=0.000000001"])
    assert run(*command, *settings) == 1
    message = capsys.readouterr().err
    assert re.search(r"Stopped by run\.budget\.max_hours: .* of 1e-09\b", message)
    assert f"pairwright resume {out}\n" in message
    unlimited = words_of([f"{hours}=0"])
    assert run("resume", out, *unlimited, "--stage", "embeddings") == 1, "nothing is made"
    assert f"pairwright resume {out} --stage images" in capsys.readouterr().err
    assert run("resume", out, *unlimited) == 0


def test_full_disk_asks_for_space_without_offering_to_publish(
    command: tuple[object, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_local = files._write_local  # pyright: ignore[reportPrivateUsage]  (the one seam of every write)

    def write(path: Path, data: files.Data) -> None:
        if "images" in path.parts:
            raise fault_of("ENOSPC")
        write_local(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_local", write)
        assert run(*command) == 1
    built = capsys.readouterr()
    assert run("status", tmp_path / "out") == 0
    status = capsys.readouterr()
    for text in (built.out + built.err, status.out + status.err):
        assert "Free space there" in text
        assert f"pairwright resume {tmp_path / 'out'}" in text
        assert "gates" not in text
        assert "publish " not in text
    assert run("resume", tmp_path / "out") == 0
