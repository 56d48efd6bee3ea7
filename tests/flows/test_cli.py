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
NAMES = [verb.name for verb in VERBS]
REASONS = ["duplicate of another row", "empty file", "not an image"]
MINED = [
    *("images", "embeddings", "admitted", "neighbours"),
    *("keypoints", "similar_pairs", "matched_pairs", "pairs"),
]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
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


@pytest.fixture(scope="module")
def built(photographs, tmp_path_factory):
    """Build a dataset of them, as a shell does; return it, and what was printed."""
    out = tmp_path_factory.mktemp("built") / "out"
    words = ["build", photographs, "--out", out, "--until", "mining", "--set", "run.workers=1"]
    done = subprocess.run([PAIRWRIGHT, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_status_counts_inputs_by_stage_and_reason(built, capsys) -> None:
    out, printed = built
    assert f"{out} as version 1" in printed
    assert run("status", out, "--json") == 0
    status = json.loads(capsys.readouterr().out)
    stages = status["stages"]
    assert (status["dataset"], status["snapshot"]) == (str(out), 1)
    assert [stage["stage"] for stage in stages if stage["in"]] == MINED
    images = stages[0]
    assert (images["in"], images["ok"], images["dropped"], images["rows"]) == (12, 9, 3, 9)
    assert images["reasons"] == dict.fromkeys(REASONS, 1)
    outcomes = ("ok", "dropped", "failed", "pending")
    assert all(stage["in"] == sum(map(stage.get, outcomes)) for stage in stages)


def test_what_was_dropped_is_listed_by_name(photographs, built, capsys) -> None:
    out, _ = built
    assert run("status", out, "--refused", "images") == 0
    lines = sorted(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert [line[:2] for line in lines] == [["dropped", reason] for reason in REASONS]
    duplicate, empty, text = (line[2] for line in lines)
    assert empty.startswith("empty.jpg")
    assert text.startswith("text.jpg")
    name, other = duplicate.split(": the same image as ")
    assert (photographs / name).read_bytes() == (photographs / other).read_bytes()
    assert name != other
    assert run("status", out, "--refused", "embeddings") == 0
    assert capsys.readouterr() == ("", "No input of embeddings was refused.\n")


@pytest.mark.parametrize("text", ["null", "{"])
@pytest.mark.parametrize("verb", ["status", "resume", "report"])
def test_a_damaged_record_is_named(tmp_path, capsys, text, verb) -> None:
    (tmp_path / "build.json").write_text(text)
    assert run(verb, tmp_path) == 1
    error = capsys.readouterr().err
    assert "build.json: " in error
    assert "`pairwright build`" in error


def test_a_damaged_record_is_replaced_by_a_build(photographs, tmp_path) -> None:
    (tmp_path / "build.json").write_text("{")
    assert run("build", photographs, "--out", tmp_path, "--until", "sources") == 0
    assert run("status", tmp_path) == 0


@pytest.mark.parametrize("name", ["FILE", "FILE/deeper", "IN/inside"])
def test_a_place_that_can_hold_no_dataset_is_refused(photographs, tmp_path, capsys, name) -> None:
    (tmp_path / "FILE").write_text("")
    (tmp_path / "IN").symlink_to(photographs)
    assert run("build", tmp_path / "IN", "--out", tmp_path / name) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("build NOWHERE --out OUT", "NOWHERE"),
        ("build EMPTY --out OUT", "EMPTY"),
        ("build ftp:somewhere --out OUT", "`pairwright sources`"),
        ("build --out OUT --until dinner", "dinner: "),
        ("build --out OUT --set mining.seed=4294967296", "mining.seed=4294967296: mining.seed"),
        ("build --out OUT --set run.rows_per_shard_of.nosuch=3", "nosuch: "),
        ('build --out OUT --set gates.min_yield={"pears":0.5}', "pears: "),
        ("build --profile laptop --out OUT", "profile laptop "),
        ("plan --until nowhere", "nowhere: "),
        ("build scenes:somewhere --out OUT", "scenes"),
        ("build folder: --out OUT", "folder:"),
        ("status OUT", "`pairwright build"),
        ("report FILE", "holds no dataset"),
        ("resume OUT", "`pairwright build"),
        ("build", "--out"),
        ("dance", "dance"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_why(tmp_path, capsys, words, message) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "FILE").touch()
    places = {name: str(tmp_path / name) for name in ("NOWHERE", "EMPTY", "OUT", "FILE")}
    assert run(*[places.get(word, word) for word in words.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists()


def test_a_damaged_part_is_named_and_made_again(built, tmp_path, capsys) -> None:
    out = shutil.copytree(built[0], tmp_path / "out")
    (part,) = (out / "tables" / "neighbours").rglob("*.parquet")
    good = part.read_bytes()
    part.write_bytes(good[:-20] + b"x" + good[-19:])
    assert run("resume", out) == 1
    assert str(part) in capsys.readouterr().err
    part.unlink()
    assert run("resume", out) == 0
    assert part.read_bytes() == good


def test_a_source_that_gives_no_image_ends_with_two(tmp_path, capsys) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_text("no image")
    assert run("build", tmp_path / "in", "--out", tmp_path / "out", "--until", "mining") == 2
    assert "(1 x not an image)" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS, ids=NAMES)
def test_the_table_says_what_the_verb_says(verb) -> None:
    command = typer.main.get_command(app)
    loaded = command.get_command(typer.Context(command), verb.name)
    assert loaded.help.startswith(verb.help.rstrip("."))
    module = getattr(loaded.callback, "__module__", f"pairwright.flows.verbs.{verb.name}")
    assert module == f"pairwright.flows.verbs.{verb.module}"


def test_help_has_a_panel_of_each_kind_with_all_verbs() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    _, *parts = re.split(r"^(Build|Look|Export and train|Operate):$", text, flags=re.MULTILINE)
    listed = 0
    for panel, lines in zip(parts[::2], parts[1::2], strict=True):
        names = re.findall(r"^  ([a-z]+) ", lines, re.MULTILINE)
        assert names == [verb.name for verb in VERBS if verb.panel == panel]
        listed += len(names)
    assert listed == len(NAMES)


def test_every_registered_command_is_in_the_table() -> None:
    for module in pkgutil.iter_modules(verbs.__path__, f"{verbs.__name__}."):
        import_module(module.name)
    assert sorted(typer.main.get_group(registered).commands) == sorted(NAMES)


@pytest.mark.parametrize("verb", [*NAMES, "evaluate captions", "evaluate model"])
def test_values_are_named_in_words(verb) -> None:
    shown = CliRunner().invoke(app, [*verb.split(), "--help"])
    assert shown.exit_code == 0
    assert not re.search(r"<\w|\bTEXT\b|\bINTEGER\b|\bstr\b|list\[", shown.output)
    if verb != "evaluate":
        assert "-q, --quiet" in shown.output
        assert "-v, --verbose" in shown.output


@pytest.mark.parametrize(
    "words", ["build --out", "plan --out", "doctor --out", "export demo --to", "status", "report"]
)
def test_a_place_without_a_name_is_refused(words) -> None:
    done = CliRunner().invoke(app, [*words.split(), ""])
    assert done.exit_code == 2
    assert "empty" in done.output


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("-q formats", logging.WARNING),
        ("formats -q", logging.WARNING),
        ("formats -v", logging.DEBUG),
    ],
)
def test_how_much_is_logged_is_said_before_or_after_the_verb(monkeypatch, words, level) -> None:
    for logger in (logging.getLogger(), logging.getLogger("pairwright")):
        monkeypatch.setattr(logger, "level", logger.level)
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    assert logging.getLogger("pairwright.tasks").getEffectiveLevel() == level


def test_the_log_comes_as_json_objects_on_request(photographs, tmp_path, capsys) -> None:
    words = ("build", photographs, "--out", tmp_path / "out", "--until", "sources")
    assert run(*words, "--log-format", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(list(line) == ["time", "level", "logger", "message"] for line in lines)
    assert any(line["message"].startswith("images: in=") for line in lines)
    assert run(*words, "--log-format", "xml") == 2
