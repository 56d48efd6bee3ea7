"""The command line's help, its completion, and how loud it is: what a user sees before any verb does its work."""

import logging
import os
import pkgutil
import re
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from pairwright.flows import verbs
from pairwright.flows.cli import app
from pairwright.flows.verbs import VERBS
from pairwright.flows.verbs.options import app as registered

COMMAND = typer.main.get_command(app)


def load(name: str):
    return COMMAND.get_command(typer.Context(COMMAND), name)


@pytest.fixture
def _levels(monkeypatch: pytest.MonkeyPatch) -> None:
    for logger in (logging.getLogger(), logging.getLogger("pairwright")):
        monkeypatch.setattr(logger, "level", logger.level)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_table_says_what_the_verb_says(verb) -> None:
    loaded = load(verb.name)
    assert loaded.help.startswith(verb.help.rstrip("."))
    module = getattr(loaded.callback, "__module__", f"pairwright.flows.verbs.{verb.name}")
    assert module == f"pairwright.flows.verbs.{verb.module}"


def test_no_verb_is_left_out_of_the_table() -> None:
    for found in pkgutil.iter_modules(verbs.__path__, f"{verbs.__name__}."):
        import_module(found.name)
    assert sorted(typer.main.get_group(registered).commands) == sorted(verb.name for verb in VERBS)


def test_help_has_a_panel_of_each_kind_and_every_verb() -> None:
    said = CliRunner().invoke(app, ["--help"]).output
    panels = re.split(r"^(Build|Look|Export and train|Operate):$", said, flags=re.MULTILINE)[1:]
    found = {
        panel: re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)
        for panel, listed in zip(panels[::2], panels[1::2], strict=True)
    }
    assert found == {panel: [verb.name for verb in VERBS if verb.panel == panel] for panel in found}


def test_help_loads_no_verb() -> None:
    code = "import sys; from pairwright.flows.cli import app; app(['--help'], standalone_mode=False)\n"
    code += "print([n for n in sys.modules if n.startswith('pairwright.flows.verbs.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rsplit(".", 1)[1] for name in eval(done.stdout.splitlines()[-1])}
    assert loaded == {"lazy_group", "options"}


@pytest.mark.parametrize("verb", [*(verb.name for verb in VERBS), "evaluate captions", "evaluate model"])
def test_values_are_named_in_words(verb: str) -> None:
    said = CliRunner().invoke(app, [*verb.split(), "--help"])
    assert said.exit_code == 0
    assert not re.search(r"<\w|\bTEXT\b|\bINTEGER\b|<class|\bstr\b|list\[", said.output)
    assert verb == "evaluate" or ("-q, --quiet" in said.output and "-v, --verbose" in said.output)


@pytest.mark.parametrize(
    ("words", "completed"), [("re", "refilter remove report resume"), ("build --pro", "--profile")]
)
def test_the_shell_completes_verbs_and_options(words: str, completed: str) -> None:
    asked = {"COMP_WORDS": f"pairwright {words}", "COMP_CWORD": str(len(words.split()))}
    asked["_PAIRWRIGHT_COMPLETE"] = "complete_bash"
    done = subprocess.run(
        [sys.executable, "-c", "from pairwright.flows.cli import app; app(prog_name='pairwright')"],
        capture_output=True, text=True, check=True, env=os.environ | asked,
    )  # fmt: skip
    assert sorted(done.stdout.split()) == completed.split()


@pytest.mark.parametrize("words", ["build --out", "plan --out", "doctor --out", "export demo --to", "status", "report"])
def test_a_place_without_a_name_is_refused(words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), ""])
    assert (done.exit_code, "empty" in done.output) == (2, True)


@pytest.mark.usefixtures("_levels")
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(("option", "level"), [("-q", logging.WARNING), ("-v", logging.DEBUG)])
def test_loudness_is_given_before_or_after_the_verb(place: str, option: str, level: int) -> None:
    words = [option, "formats"] if place == "before" else ["formats", option]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert logging.getLogger("pairwright.tasks").getEffectiveLevel() == level
