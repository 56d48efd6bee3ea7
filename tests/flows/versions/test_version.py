"""Gates of real builds: a version is held back, the last one stays, status says why, a person may
publish it."""

import json
import re
from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.versions.version import open_version
from pairwright.tasks.store.files import Folder, seal
from pairwright.tasks.store.snapshot import snapshot_file
from tests.fixtures.command import run
from tests.fixtures.pictures import write_pictures

UNTIL = ("--until", "mining", "--set", "run.workers=1")
GATE = r"images: .*\b5\b.* 0\.6, .*0\.7 \(gates\.min_yield\)"


def versions(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "snapshots").glob("*.json"))


def test_a_build_that_yields_too_little_publishes_no_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photographs, out = write_pictures(tmp_path / "in", ["a", "b", "c"]), tmp_path / "out"
    gates = ("--set", "gates.min_yield={images: 0.7, pairs: 0}")
    words = ("build", photographs, "--out", out, *UNTIL, *gates)
    assert run(*words) == 0
    assert versions(out) == ["000001.json"]
    (photographs / "empty.png").write_bytes(b"")
    (photographs / "text.png").write_text("not a picture")
    capsys.readouterr()
    assert run(*words) == 1
    said = capsys.readouterr().err
    assert "version 1 " in said
    assert re.search(GATE, said)
    assert f"pairwright publish {out}" in said
    assert f"pairwright resume {out} --set gates.min_yield=" in said
    assert versions(out) == ["000001.json"]
    assert run("report", out) == 0
    page = (out / "report/index.html").read_text()
    assert re.search(f"<li>{GATE}</li>", page)
    capsys.readouterr()

    assert run("status", out) == 0
    assert re.search(GATE, capsys.readouterr().out)
    assert run("status", out, "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["snapshot"] == 1
    assert any("0.6" in line for line in status["held"])

    assert run("publish", out) == 0
    printed = capsys.readouterr().out
    assert re.search("images: .*0.6", printed)
    assert f"Version 2 of {out} " in printed
    assert versions(out) == ["000001.json", "000002.json"]
    assert run("status", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["held"] == []


def test_a_first_build_that_is_held_back_leaves_no_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photographs, out = write_pictures(tmp_path / "in", ["a", "b"]), tmp_path / "out"
    words = ("build", photographs, "--out", out, *UNTIL)
    assert run(*words, "--set", "gates.min_yield={pairs: 1}") == 1
    assert "no version" in capsys.readouterr().err
    assert versions(out) == []
    assert run("resume", out, "--set", "mining.min_similarity=0") == 2, "that would change rows"
    assert "--set mining.min_similarity=0: " in capsys.readouterr().err
    assert run("resume", out, "--set", "gates.min_yield={pairs: 0}") == 0, (
        "another bound lets it pass"
    )
    assert versions(out) == ["000001.json"]


def test_a_version_from_before_a_table_opens_while_the_table_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows and counts are as they were; without a table that is on, it is refused by name."""
    out = tmp_path / "out"
    photographs = write_pictures(tmp_path / "in", ["a", "b"])
    gates = ("--set", "gates.min_yield={pairs: 0}")
    assert run("build", photographs, "--out", out, *UNTIL, *gates) == 0
    version = open_version(Folder(str(out)))
    off = [planned.stage.name for planned in version.stages if not planned.is_on]
    assert off
    content = version.snapshot.content
    older = {name: stage for name, stage in content["stages"].items() if name not in off}
    file = out / snapshot_file(1)
    before = [row.key for row in pw.open(out)["images"].rows()]
    file.write_bytes(seal({**content, "stages": older}))
    opened = pw.open(out, version=1)
    assert [row.key for row in opened["images"].rows()] == before
    assert {count.stage for count in opened.status().counts} >= {"images", *off}
    assert run("versions", out) == 0
    del older["pairs"]
    file.write_bytes(seal({**content, "stages": older}))
    capsys.readouterr()
    assert run("export", out, "--table", "images", "--to", tmp_path / "export") != 0
    assert "one of the two has no table pairs" in capsys.readouterr().err
