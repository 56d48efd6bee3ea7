"""Hold the README to the truth: its verbs, files, tree and make targets exist, and every table is explained."""

import re
from pathlib import Path

import pytest
import typer

from pairwright.flows.cli import app
from pairwright.flows.stages import GROUPS, TABLES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_its_verbs_are_there_and_explain_themselves() -> None:
    command = typer.main.get_command(app)
    verbs = command.list_commands(None)
    assert set(re.findall(r"(?<!import )pairwright ([a-z]+)", README)) <= set(verbs)
    for name in verbs:
        verb = command.get_command(None, name)
        assert verb.help, name
        assert "Example" in verb.epilog, name


def test_its_make_targets_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets | {"s", "it"}


def test_its_files_are_there() -> None:
    named = re.findall(r"`((?:flows|tasks|schemas|prompts|tests|docker)/[\w/.]+)`", README)
    named += re.findall(r"\]\(([\w/.]+)\)", README)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_its_tree_is_the_tree() -> None:
    tree = README.split("## The tree")[1].split("```")[1]
    tops = re.findall(r"^([a-z]+)/", tree, re.MULTILINE)
    assert not [name for name in tops if not (ROOT / name).is_dir()]
    told = set(re.findall(r"^  ([a-z]+)/", tree, re.MULTILINE))
    there = {path.name for path in (ROOT / "tasks").iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert told == there


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_explained(table: str) -> None:
    assert f"`{table}`" in README


@pytest.mark.parametrize("group", GROUPS)
def test_every_stage_is_named(group: str) -> None:
    assert re.search(rf"^\| {group} \|", README, re.MULTILINE)
