"""Tests of the command line as a user meets it: exit codes, messages, status, interruption."""

import json
import logging
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from pairwright.flows import verbs
from pairwright.flows.cli import app
from pairwright.flows.verbs import VERBS
from pairwright.flows.verbs.options import app as registered
from tests.fixtures.command import run
from tests.fixtures.pictures import write_pictures

PAIRWRIGHT = str(Path(sys.executable).parent / "pairwright")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write eight pictures, two of them alike, and three files that are no pictures."""
    folder = tmp_path_factory.mktemp("in") / "photographs"
    write_pictures(folder, [f"picture-{number}" for number in range(8)], seed=7)
    (folder / "deeper").mkdir()
    alike = Image.open(folder / "picture-7.png")
    alike.paste((255, 255, 255), (0, 0, 32, 32))
    alike.save(folder / "deeper" / "alike.png")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("not a picture")
    (folder / "again.png").write_bytes((folder / "picture-0.png").read_bytes())
    return folder


BUILD = ("--until", "mining", "--set", "run.workers=1")


@pytest.fixture(scope="module")
def built(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Build a dataset of them; return it, and what was printed."""
    out = tmp_path_factory.mktemp("built") / "out"
    done = subprocess.run(
        [PAIRWRIGHT, "build", photographs, "--out", out, *BUILD], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.fixture
def out(built: tuple[Path, str], tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(built[0], tmp_path / "out"))


def test_a_build_ends_with_a_table_and_status_agrees(
    built: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, printed = built
    assert all(
        word in printed for word in ("stage", "dropped", "failed", "pending", "seconds", "pairs")
    )
    assert f"{out} as version 1" in printed
    assert run("status", out, "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["dataset"], status["snapshot"]) == (str(out), 1)
    filled = [stage["stage"] for stage in status["stages"] if stage["in"]]
    mined = [
        "images",
        "embeddings",
        "admitted",
        "neighbours",
        "keypoints",
        "similar_pairs",
        "matched_pairs",
        "pairs",
    ]
    assert filled == mined
    images = status["stages"][0]
    assert (images["in"], images["ok"], images["dropped"], images["rows"]) == (12, 9, 3, 9)
    assert images["reasons"] == {"duplicate of another row": 1, "empty file": 1, "not an image": 1}
    assert all(
        s["in"] == s["ok"] + s["dropped"] + s["failed"] + s["pending"] for s in status["stages"]
    )


def test_what_was_dropped_is_listed_by_name(
    photographs: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("status", out, "--refused", "images") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert sorted(line[:2] for line in lines) == [
        ["dropped", "duplicate of another row"],
        ["dropped", "empty file"],
        ["dropped", "not an image"],
    ]
    assert {line[2].split(":")[0] for line in lines if "duplicate" not in line[1]} == {
        "empty.jpg",
        "text.jpg",
    }
    (said,) = [line[2] for line in lines if "duplicate" in line[1]]
    one, other = said.split(": the same image as ")
    assert (photographs / one).read_bytes() == (photographs / other).read_bytes()
    assert one != other
    assert run("status", out, "--refused", "embeddings") == 0
    assert capsys.readouterr() == ("", "No input of embeddings was refused.\n")


@pytest.mark.parametrize("text", ["null", "{"])
def test_a_damaged_record_is_named_and_replaced_by_a_build(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "build.json").write_text(text)
    for verb in ("status", "resume", "report"):
        assert run(verb, out) == 1
        said = capsys.readouterr().err
        assert "build.json: " in said
        assert "`pairwright build`" in said
    assert run("build", photographs, "--out", out, "--until", "sources") == 0
    assert run("status", out) == 0


@pytest.mark.parametrize("name", ["file", "file/deeper", "photographs/inside"])
def test_a_place_that_can_hold_no_dataset_is_refused(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "file").write_text("")
    inside = name.startswith("photographs")
    assert (
        run("build", photographs, "--out", f"{photographs.parent if inside else tmp_path}/{name}")
        == 2
    )
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "NOWHERE", "--out", "OUT"], "NOWHERE"),
        (["build", "EMPTY", "--out", "OUT"], "EMPTY"),
        (["build", "ftp:somewhere", "--out", "OUT"], "`pairwright sources`"),
        (["build", "--out", "OUT", "--until", "dinner"], "dinner: "),
        (
            ["build", "--out", "OUT", "--set", "mining.seed=4294967296"],
            "--set mining.seed=4294967296: mining.seed",
        ),
        (["build", "--out", "OUT", "--set", "run.rows_per_shard_of.nosuch=3"], "nosuch: "),
        (["build", "--out", "OUT", "--set", "gates.min_yield={pears: 0.5}"], "pears: "),
        (["build", "--profile", "laptop", "--out", "OUT"], "profile laptop "),
        (["plan", "NOWHERE"], "NOWHERE"),
        (["plan", "--until", "nowhere"], "nowhere: "),
        (["build", "scenes:somewhere", "--out", "OUT"], "scenes"),
        (["build", "folder:", "--out", "OUT"], "folder:"),
        (["status", "OUT"], "`pairwright build"),
        (["report", "FILE"], "holds no dataset"),
        (["resume", "OUT"], "`pairwright build"),
        (["build"], "--out"),
        (["dance"], "dance"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "FILE").touch()
    places = {name: str(tmp_path / name) for name in ("NOWHERE", "EMPTY", "OUT", "FILE")}
    assert run(*[places.get(word, word) for word in words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists()


def test_a_damaged_part_is_named_and_made_again(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = (out / "tables" / "neighbours").rglob("*.parquet")
    good = part.read_bytes()
    part.write_bytes(good[:-20] + b"x" + good[-19:])
    capsys.readouterr()
    assert run("resume", out) == 1
    assert str(part) in capsys.readouterr().err
    part.unlink()
    assert run("resume", out) == 0
    assert part.read_bytes() == good


def test_a_source_that_gives_no_image_ends_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_text("no image")
    out = tmp_path / "out"
    assert run("build", tmp_path / "in", "--out", out, "--until", "mining") == 2
    assert "(1 x not an image)" in capsys.readouterr().err


COMMAND = typer.main.get_command(app)


@pytest.fixture
def _levels(monkeypatch: pytest.MonkeyPatch) -> None:
    for logger in (logging.getLogger(), logging.getLogger("pairwright")):
        monkeypatch.setattr(logger, "level", logger.level)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_table_says_what_the_verb_says(verb) -> None:
    loaded = COMMAND.get_command(typer.Context(COMMAND), verb.name)
    assert loaded.help.startswith(verb.help.rstrip("."))
    module = getattr(loaded.callback, "__module__", f"pairwright.flows.verbs.{verb.name}")
    assert module == f"pairwright.flows.verbs.{verb.module}"


def test_help_has_a_panel_of_each_kind_with_all_verbs() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    panels = re.split(r"^(Build|Look|Export and train|Operate):$", said, flags=re.MULTILINE)[1:]
    found = {
        panel: re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)
        for panel, listed in zip(panels[::2], panels[1::2], strict=True)
    }
    assert found == {panel: [verb.name for verb in VERBS if verb.panel == panel] for panel in found}
    for found in pkgutil.iter_modules(verbs.__path__, f"{verbs.__name__}."):
        import_module(found.name)
    assert sorted(typer.main.get_group(registered).commands) == sorted(verb.name for verb in VERBS)


@pytest.mark.parametrize(
    "verb", [*(verb.name for verb in VERBS), "evaluate captions", "evaluate model"]
)
def test_values_are_named_in_words(verb: str) -> None:
    said = CliRunner().invoke(app, [*verb.split(), "--help"])
    assert said.exit_code == 0
    assert not re.search(r"<\w|\bTEXT\b|\bINTEGER\b|\bstr\b|list\[", said.output)
    assert verb == "evaluate" or ("-q, --quiet" in said.output and "-v, --verbose" in said.output)


@pytest.mark.parametrize(
    "words", ["build --out", "plan --out", "doctor --out", "export demo --to", "status", "report"]
)
def test_a_place_without_a_name_is_refused(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), ""])
    assert (done.exit_code, "empty" in done.output) == (2, True)


@pytest.mark.usefixtures("_levels")
@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["-q", "formats"], logging.WARNING),
        (["formats", "-q"], logging.WARNING),
        (["formats", "-v"], logging.DEBUG),
    ],
)
def test_how_much_is_logged_is_said_before_or_after_the_verb(words: list[str], level: int) -> None:
    assert CliRunner().invoke(app, words).exit_code == 0
    assert logging.getLogger("pairwright.tasks").getEffectiveLevel() == level


def test_the_log_comes_as_json_objects_on_request(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("build", photographs, "--out", tmp_path / "out", "--until", "sources")
    assert run(*words, "--log-format", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(list(line) == ["time", "level", "logger", "message"] for line in lines)
    assert any(line["message"].startswith("images: in=") for line in lines)
    assert run(*words, "--log-format", "xml") == 2
