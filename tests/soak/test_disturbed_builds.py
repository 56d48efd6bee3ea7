"""Disturb builds of photographs that served models write: by other commands, a second build, and
disks that fill.

Run with ``make soak``; half an hour on two cores. What is counted is printed (``make soak
ARGS=-s``). Small disks need root, which may mount them.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import pairwright as pw
from tests.fixtures.chat_server import ChatServer, chat_server
from tests.fixtures.photographs import write_photographs
from tests.soak.served_builds import Progress, command_of, read_parts, read_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
TIMES, DISKS = 20, 40
SPOKEN = ("Traceback", "Error:", "Exception")


@dataclass(frozen=True)
class Whole:
    """A finished build, the same up to its mining, and how much the stages after that do."""

    server: ChatServer
    progress: Progress
    source: Path
    out: Path
    mined: Path
    before: int
    work: int


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    root = tmp_path_factory.mktemp("disturbed")
    write_photographs(source := root / "photographs", variants=2)
    progress = Progress()
    with chat_server(progress.answer) as server:
        out, mined = root / "whole", root / "mined"
        assert (
            subprocess.run(
                command_of(server, source, mined, "--until", "mining"), check=False
            ).returncode
            == 0
        )
        progress.out = mined
        before = progress.done
        assert progress.run(server, source, out) == 0
        yield Whole(server, progress, source, out, mined, before, progress.done)


def call(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pairwright", *map(str, words)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


def is_plain(ended: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a command that failed says so in words of ours."""
    return not any(word in ended.stdout + ended.stderr for word in SPOKEN)


def disturb(
    whole: Whole, out: Path, target: int, command: list[str]
) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Build on from what is mined, and call a command when ``target`` is reached; return how both
    ended."""
    shutil.copytree(whole.mined, out)
    ended = list[subprocess.CompletedProcess[str]]()

    def act(_: int) -> None:
        threads.append(threading.Thread(target=lambda: ended.append(call(*command))))
        threads[0].start()

    threads = list[threading.Thread]()
    whole.progress.answers.clear()
    whole.progress.act = act
    code = whole.progress.run(whole.server, whole.source, out, target)
    assert threads, "the build ended before its target"
    threads[0].join()
    return code, ended[0]


def targets(whole: Whole) -> list[int]:
    return [
        whole.before + round((whole.work - whole.before) * (n + 0.5) / TIMES) for n in range(TIMES)
    ]


@pytest.mark.parametrize("verb", ["gc", "report", "export", "remove", "build"])
def test_a_command_beside_a_build_harms_neither(whole: Whole, tmp_path: Path, verb: str) -> None:
    parts, counts = read_parts(whole.out), pw.open(whole.out).status().counts
    victim = next(iter(pw.open(whole.mined)["images"].rows())).key
    seen = Counter[str]()
    for number, target in enumerate(targets(whole)):
        out = tmp_path / str(number)
        command = {
            "gc": ["gc", out],
            "report": ["report", out],
            "export": ["export", out, "--table", "pairs", "--to", tmp_path / f"export-{number}"],
            "remove": ["remove", out, victim],
            "build": command_of(whole.server, whole.source, out)[3:],
        }[verb]
        code, ended = disturb(whole, out, target, [str(word) for word in command])
        assert is_plain(ended), ended.stdout + ended.stderr
        seen[f"build {code}, {verb} {ended.returncode}"] += 1
        assert code in (0, 1)
        if code:
            seen["resumed"] += 1
        assert call("resume", out).returncode == 0
        assert call("status", out, "--verify").returncode == 0
        if verb == "remove" and not ended.returncode:
            for table in ("images", "pairs", "preferences"):
                assert victim not in str(list(pw.open(out)[table].rows(without=("data", "images"))))
        else:
            assert {name: rows for name, rows in read_parts(out).items() if name in parts} == parts
            assert pw.open(out).status().counts == counts
    print(verb, dict(seen))


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[None]:
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_full_disk_in_any_stage_is_reported_and_resumed(whole: Whole, tmp_path: Path) -> None:
    rows, counts = read_rows(whole.out), pw.open(whole.out).status().counts
    needs = sum(path.stat().st_blocks * 512 for path in whole.out.rglob("*") if path.is_file())
    seen, full = Counter[str](), Counter[str]()
    for number in range(DISKS):
        disk = tmp_path / str(number)
        with small_disk(disk, round(needs * (number + 0.5) / DISKS)):
            out = disk / "out"
            ended = call(*command_of(whole.server, whole.source, out)[3:])
            assert is_plain(ended), ended.stdout + ended.stderr
            if ended.returncode:
                last = max(
                    out.glob("tables/*/*/*.parquet"),
                    key=lambda path: path.stat().st_mtime_ns,
                    default=None,
                )
                full[
                    f"after a part of {last.parent.parent.name}" if last else "before any part"
                ] += 1
                assert "Free space" in ended.stdout + ended.stderr, ended.stdout + ended.stderr
                assert "pairwright publish" not in ended.stdout + ended.stderr
            subprocess.run(["mount", "-o", f"remount,size={4 * needs}", disk], check=True)
            seen[str(ended.returncode)] += 1
            assert call(*command_of(whole.server, whole.source, out)[3:]).returncode == 0
            assert read_rows(out) == rows, (
                number
            )  # in other parts, where shards of an earlier stage failed
            assert pw.open(out).status().counts == counts
    print("disk full", dict(seen), dict(full))


def test_a_full_folder_for_temporary_files_is_said_or_not_needed(
    whole: Whole, tmp_path: Path
) -> None:
    seen = Counter[str]()
    for number, size in enumerate((4096, 65536, 1 << 20)):
        with small_disk(tmp_path / f"tmp-{number}", size):
            place = tmp_path / f"tmp-{number}"
            (place / "fill").write_bytes(bytes(size - 4096))
            for verb in (
                command_of(whole.server, whole.source, tmp_path / f"out-{number}")[3:],
                ["report", whole.out],
            ):
                ended = call(*verb, TMPDIR=str(place))
                assert is_plain(ended), ended.stdout + ended.stderr
                if ended.returncode:
                    assert str(place) in ended.stdout + ended.stderr
                seen[f"{verb[0]} {ended.returncode}"] += 1
    print("TMPDIR full", dict(seen))
