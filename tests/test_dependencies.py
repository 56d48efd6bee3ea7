"""Check dependencies against imports: each library is declared; the core starts without those of
the extras."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fixtures.parsed import imports_in

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("pairwright", "schemas", "prompts", "tasks", "flows")
FOR_OTHERS = {"fastapi", "sqlalchemy"}
"""Declared for a bound that others' releases need; nothing of ours imports them."""
START = """
import importlib, pkgutil
import pairwright.flows.prefect.build_dataset, pairwright.flows.pipeline.stages
from pairwright.flows import verbs
for module in pkgutil.iter_modules(verbs.__path__, 'pairwright.flows.verbs.'):
    importlib.import_module(module.name)
"""


def named(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines} - {"pairwright"}


CORE = named(PROJECT["dependencies"])
EXTRAS = {name: named(lines) for name, lines in PROJECT["optional-dependencies"].items()}
OF_USERS = CORE.union(*(names for extra, names in EXTRAS.items() if extra not in ("test", "lint")))


def imported(folder: str) -> dict[str, str]:
    """Return the libraries that files below a folder import, each with one such file."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in imports_in(path):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif node.module and not node.level:
                names = [node.module]
            found |= {name.split(".")[0]: str(path.relative_to(ROOT)) for name in names}
    own = {"pairwright", "tests", "__future__", "pairwright_example"}  # tests/example_plugin
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | own}


@cache
def owners() -> dict[str, set[str]]:
    """Return the distributions that each library is from."""
    return {
        name: set(map(canonicalize_name, found)) for name, found in packages_distributions().items()
    }


def distributions(name: str) -> set[str]:
    return owners().get(name, {canonicalize_name(name)})


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_each_library_is_declared(folder: str) -> None:
    declared = OF_USERS | EXTRAS["test"] if folder == "tests" else OF_USERS
    for name, path in imported(folder).items():
        assert distributions(name) & declared, f"{path} imports {name}"


def test_nothing_is_declared_that_nobody_imports() -> None:
    used = {one for folder in FOLDERS for name in imported(folder) for one in distributions(name)}
    assert sorted(CORE - used) == sorted(FOR_OTHERS)


def closure(names: set[str]) -> Iterator[str]:
    """Yield distributions and all that they need."""
    seen, unfinished = set[str](), list(names)
    while unfinished:
        name = unfinished.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        try:
            lines = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue
        unfinished += [
            canonicalize_name(one.name)
            for one in lines
            if not one.marker or one.marker.evaluate({"extra": ""})
        ]


def test_the_core_starts_without_the_extras() -> None:
    here = set(closure(CORE))
    kept = sys.stdlib_module_names | {"pairwright"}
    foreign = {name for name, found in owners().items() if not found & here}
    refused = sorted(name for name in foreign - kept if name.isidentifier())
    assert {"torch", "transformers", "faiss", "datasets", "pandas"} <= set(refused)
    code = f"import sys; sys.modules.update(dict.fromkeys({refused!r})){START}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
