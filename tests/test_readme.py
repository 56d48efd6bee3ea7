"""Check that the files, make targets, commands and settings named in README and documentation
exist."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer

from pairwright.flows.cli import app
from pairwright.flows.pipeline.list_settings import list_settings
from tests.fixtures.readme import typed_in

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")),
]
BESIDE = re.compile(r"^(torchrun|accelerate launch) .*?-m (?=pairwright )|(?<= )--plugin \S+")
"""What launches a command, and files that only its reader has."""


def commands_on(page: str) -> list[list[str]]:
    """Return the words of each `pairwright` command in a page's console blocks."""
    typed = (
        part.strip() for one in typed_in(page, sentences=False) for part in one.words.split("&&")
    )
    found = (BESIDE.sub("", words.removesuffix(" &")) for words in typed)
    return [shlex.split(words) for words in found if words.startswith("pairwright ")]


@cache
def settings() -> set[str]:
    return {one.name.removeprefix("train.") for one in list_settings()}


def is_setting(name: str) -> bool:
    name = re.sub(r"^models\.\w+\.", "models.chat.", name)
    is_section = any(setting.startswith(f"{name}.") for setting in settings())
    return is_section or name in settings() or name.startswith("stages.")


def test_verbs_explain_themselves() -> None:
    group = typer.main.get_command(app)
    for name in group.list_commands(None):
        verb = group.get_command(None, name)
        assert verb.help, name
        assert "Example" in verb.epilog, name


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page: str) -> None:
    group = typer.main.get_command(app)
    for _, verb, *words in commands_on(page):
        if verb.startswith("-"):
            continue
        command = group.get_command(None, verb)
        assert command, f"{page}: no verb {verb}"
        if hasattr(command, "commands") and words:
            command, words = command.commands[words[0]], words[1:]
        command.make_context(verb, list(words))


@pytest.mark.parametrize("page", PAGES)
def test_settings_are_there(page: str) -> None:
    asked = [
        words[place + 1]
        for words in commands_on(page)
        for place, word in enumerate(words)
        if word == "--set"
    ]
    assert not [one for one in asked if not is_setting(one.partition("=")[0])]


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_are_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = [command.words.split() for command in typed_in(page)]
    assert {words[1] for words in typed if words[0] == "make"} <= targets


@pytest.mark.parametrize("page", PAGES)
def test_files_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:flows|tasks|schemas|prompts|tests|docker)/[\w/.]+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]
    linked = re.findall(r"\]\((?!https?:)([\w/.-]+)", text)
    assert not [name for name in linked if not (ROOT / page).parent.joinpath(name).exists()]


def test_code_is_that_of_the_example() -> None:
    """``tests/flows/pipeline/test_plugins.py`` runs it."""
    example = ROOT / "tests/example_plugin"
    shown = {"python": example / "pairwright_example.py", "toml": example / "pyproject.toml"}
    text = "\n".join(
        (ROOT / page).read_text() for page in ("CONTRIBUTING.md", "docs/guides/extending.md")
    )
    blocks = re.findall(r"^```(python|toml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    assert not [block for kind, block in blocks if block not in shown[kind].read_text()]


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_tree_is_the_tree() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("## The tree")[1].split("```")[1]
    rooms: dict[str, set[str]] = {}
    top = ""
    for indent, name in re.findall(r"^( *)([a-z]+)/", tree, re.MULTILINE):
        if indent:
            rooms[top].add(name)
        else:
            top = name
            rooms[top] = set()
    assert not [name for name in rooms if not (ROOT / name).is_dir()]
    assert rooms["tasks"] == _packages(ROOT / "tasks")
    assert rooms["flows"] == _packages(ROOT / "flows")


def _packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}
