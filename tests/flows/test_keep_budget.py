"""Builds stop in order when their budget is used up, and go on when it is raised."""

import errno
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
from tests.fixtures.command import run
from tests.fixtures.pictures import write_pictures
from tests.fixtures.scripted_model import answer as sound
from tests.fixtures.scripted_model import kind_of
from tests.flows.conftest import SMALL, WIDE

SERVED = [
    *(*SMALL, *WIDE, "run.rows_per_shard=3", "captions.writer=served", "captions.max_tokens=40"),
    *(
        "models.chat.model=tiny",
        'models.chat.structured_output="none"',
        "models.chat.max_pixels=784",
    ),
]
STOPPED = "Stopped by run.budget."


def build(out: Path, server: ChatServer, *settings: str, workers: int = 1) -> Report:
    words = [*SERVED, f"models.chat.endpoint={server.url}", *settings]
    return build_here(out, settings=words, until="captioning", workers=workers)


def resume(out: Path, *settings: str) -> Report:
    return run_request(
        resume_request(open_present(Folder(str(out))), stage="", reason="", settings=settings)
    )


def questions(server: ChatServer) -> list[str]:
    """Return what was asked for rows."""
    return [json.dumps(one.body, sort_keys=True) for one in server.asked if kind_of(one) != "probe"]


def asked_of(out: Path) -> tuple[int, int]:
    found = count_asked(Folder(str(out)))
    return found["calls"], found["prompt_tokens"] + found["completion_tokens"]


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of which only the served part is owed."""
    out = tmp_path_factory.mktemp("mined") / "out"
    assert build_here(out, settings=SERVED, until="mining").is_complete
    return out


@pytest.fixture
def out(mined: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(mined, tmp_path / "out"))


@pytest.fixture(scope="module")
def whole(mined: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return how many calls a build without a budget makes; its parts say the same."""
    out = Path(shutil.copytree(mined, tmp_path_factory.mktemp("whole") / "out"))
    with chat_server(sound) as server:
        assert build(out, server).is_complete
        calls = len(questions(server))
    assert calls >= 8
    assert asked_of(out) == (calls, 10 * calls)  # the scripted server counts 7 and 3 tokens
    return calls


def test_calls_are_counted_between_rounds_and_none_is_asked_twice(out: Path, whole: int) -> None:
    assert whole == 9
    with chat_server(sound) as server:
        report = build(out, server, "run.budget.max_calls=2")  # a shard has three rows
        assert len(questions(server)) == 3, "seen when the first round is done"
        assert report.stopped.startswith(f"{STOPPED}max_calls")
        assert report.stopped.endswith(f"pairwright resume {out} --set run.budget.max_calls=4")
        assert not report.is_complete
        assert not report.failures
        early, why = report.status(str(out)).held
        assert "ended early" in early
        assert why.strip() == report.stopped, "no word of gates and of publishing"
        assert asked_of(out) == (3, 30)
        again = resume(out)
        assert len(questions(server)) == 3, "it is used up: nothing is asked"
        assert again.stopped
        assert resume(out, "run.budget.max_calls=5").stopped
        assert len(questions(server)) == 6
        more = resume(out, f"run.budget.max_calls={whole + 1}")
        assert more.is_complete, more.stopped
        assert len(questions(server)) == len(set(questions(server))) == whole
    assert asked_of(out) == (whole, 10 * whole)
    assert read_record(Folder(str(out))).profile.run.budget.max_calls == whole + 1, (
        "the raised budget stands"
    )


def test_time_stops_a_build_between_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    write_pictures(tmp_path / "in", "abcde")
    words = [
        "--until",
        "sources",
        "--set",
        "run.workers=1",
        "--set",
        "run.rows_per_shard_of={images: 1}",
    ]
    assert (
        run(
            "build",
            tmp_path / "in",
            "--out",
            out,
            *words,
            "--set",
            "run.budget.max_hours=0.000000001",
        )
        == 1
    )
    said = capsys.readouterr().err
    assert re.search(rf"{STOPPED}max_hours: .* of 1e-09\b", said)
    assert f"pairwright resume {out}\n" in said
    another = ["--set", "run.budget.max_hours=0", "--stage", "embeddings"]
    assert run("resume", out, *another) == 1, "of another stage, none is made"
    assert f"pairwright resume {out} --stage images" in capsys.readouterr().err
    assert run("resume", out, "--set", "run.budget.max_hours=0") == 0


def test_full_disk_asks_for_space_without_offering_to_publish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_pictures(tmp_path / "in", "abcde")

    def write(path: Path, data: files.Data) -> None:
        if "images" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(path, data)

    written = files._write_local  # pyright: ignore[reportPrivateUsage]  (the one seam of every write)
    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_local", write)
        assert (
            run(
                "build",
                tmp_path / "in",
                "--out",
                out,
                "--until",
                "sources",
                "--set",
                "run.workers=1",
            )
            == 1
        )
    for verb in ((), ("status", out)):
        if verb:
            assert run(*verb) == 0
        told = capsys.readouterr()
        said = told.out + told.err
        assert "Free space there" in said
        assert f"pairwright resume {out}" in said
        assert "gates" not in said
        assert "publish " not in said
    assert run("resume", out) == 0
