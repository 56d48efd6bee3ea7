"""CONTRIBUTING.md and the guide to plugins show tested code (``tests/flows/test_plugins.py``) and existing files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = "\n".join((ROOT / page).read_text() for page in ("CONTRIBUTING.md", "docs/guides/extending.md"))
EXAMPLE = ROOT / "tests/example_plugin"
SHOWN = {"python": EXAMPLE / "pairwright_example.py", "toml": EXAMPLE / "pyproject.toml"}


@pytest.mark.parametrize(
    ("kind", "block"), re.findall(r"^```(python|toml)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
)
def test_code_is_that_of_the_example(kind: str, block: str) -> None:
    assert block in SHOWN[kind].read_text()


def test_files_are_there() -> None:
    outside = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    names = re.findall(r"`((?:[\w.]+/)+[\w.]+)`", outside)
    assert len(names) > 15
    assert not [name for name in names if not (ROOT / name).exists()]


def test_targets_are_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"test", "lint"} <= set(re.findall(r"\bmake ([\w-]+)", TEXT)) <= set(targets)
