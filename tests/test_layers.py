"""Check the architecture: imports run one way, importing the command line is cheap, ``docker/`` has
no Python."""

import ast
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from pairwright.tasks.store.stage import Stage
from tests.fixtures.parsed import imports_in, parse

ROOT = Path(__file__).parent.parent
FOLDERS = ("schemas", "prompts", "tasks", "flows")
SHARED = {
    f"tasks.{name}"
    for name in (
        "images",
        "models",
        "pages",
        "perception",
        "planting",
        "scenes",
        "serving",
        "store",
        "texts",
    )
}
HEAVY = "torch faiss mitsuba cv2 sklearn scipy duckdb pyarrow prefect transformers spacy"
HEAVY_INSIDE = "drjit httpcore httpx httpx2 open_clip openai safetensors starlette uvicorn"
"""Too heavy for a start, too, but light beside what is done with them."""
LAZY = {
    "pairwright.flows.verbs": 35,
    "pairwright.flows.dataset": 8,
    "pairwright.flows.versions.table": 1,
}
"""The command line and the facade, with how many of our modules they load when one verb or method
needs them."""
SHOWING = ("say_", "show_", "progress", "list_")
"""Modules that print and draw, or look up what can be printed."""
OTHER_WORK = {
    # a wrong setting first; as a flow run; no dataset yet
    "build": {"load_profile", "build_dataset", "find_models"},
    "evaluate": {"evaluate_model"},  # of any model
    "export": {"export_dataset"},  # what an export is configured with
    "reproduce": {"plan_reproduction", "reproduce_paper", "run_in_prefect"},  # several datasets
    # what a recipe trains, first; all recipes
    "train": {"run_in_prefect", "load_profile", "make_train_config"},
    "versions": {"check_machine", "find_models", "load_profile", "schedule_dataset"},
}
"""What verbs import from ``flows`` beside ``flows.dataset``, by which all work on a dataset is
done."""
TASKS = {
    "audit": {"audit.write_audit"},
    "evaluate": {
        f"evaluation.{name}"
        for name in ("score_captions", "read_captions", "measured", "benchmark_list")
    },
    "export": {"export.formats"},
    "look": {"sources.readers"},
    "options": {"export.push_to_hub"},
}
"""What verbs import from ``tasks``: lists of what there is, configurations, and what has to do with
no dataset."""


@cache
def modules() -> dict[str, Path]:
    """Return our files by the names of their modules."""
    files: dict[str, Path] = {}
    for top in FOLDERS:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = ("pairwright", *path.relative_to(ROOT).with_suffix("").parts)
            files[".".join(parts).removesuffix(".__init__")] = path
    return files


def package_of(name: str) -> str:
    """Return "schemas", "prompts", "flows", "tasks.store", "tasks.mining", ... for a dotted module
    name."""
    parts = name.removeprefix("pairwright.").split(".")
    return ".".join(parts[:2]) if parts[0] == "tasks" and len(parts) > 1 else parts[0]


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in imports_in(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not {name.split(".")[0] for name in names} & set(FOLDERS), f"{path}: no pairwright."
    return {name for name in names if name.startswith("pairwright.")}


def may_import(package: str, every: set[str]) -> set[str]:
    below = {"schemas": set[str](), "prompts": {"schemas"}}
    if package in below:
        return {package} | below[package]
    if package in SHARED:
        below = {
            "tasks.store": set[str](),
            "tasks.images": set[str](),
            "tasks.perception": {
                "tasks.images",
                "tasks.models",
                "tasks.serving",
                "tasks.store",
                "tasks.texts",
            },
            "tasks.planting": {"tasks.images", "tasks.scenes"},
            "tasks.serving": {"tasks.images", "tasks.store", "tasks.texts"},
            "tasks.scenes": {"tasks.images", "tasks.serving", "tasks.store", "tasks.texts"},
        }
        return {package, "schemas", "prompts"} | below.get(package, {"tasks.store", "tasks.images"})
    if package.startswith("tasks"):
        return {package, "schemas", "prompts", *SHARED}
    return every


def test_imports_run_one_way() -> None:
    packages = {package_of(name) for name in modules()}
    for name, path in modules().items():
        imported = {package_of(other) for other in imports_of(path)}
        assert imported <= may_import(package_of(name), packages), name


def test_no_circle_of_files() -> None:
    """Imports within functions count, too: they would only hide one."""
    graph: dict[str, set[str]] = {}
    for name, path in modules().items():
        imported = imports_of(path)
        files = {other if other in modules() else other.rpartition(".")[0] for other in imported}
        graph[name] = files - {name}
    assert list(TopologicalSorter(graph).static_order()), "raises CycleError, which names the files"


def test_command_line_loads_no_heavy_library() -> None:
    code = "import sys, pairwright.flows.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {*HEAVY.split()} & {*done.stdout.split()}


@dataclass(frozen=True)
class Imports:
    """Imports of one file: own modules at its top and in its functions, others at its top."""

    top: set[str]
    inner: set[str]
    others: set[str]


def read_imports(path: Path) -> Imports:
    """Return what a file imports, but for what it does so for type checkers only."""
    imports = Imports(set(), set(), set())

    def walk(node: ast.AST, *, is_inner: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                add(child, is_inner=is_inner)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            walk(child, is_inner=is_inner or is_function)

    def add(node: ast.Import | ast.ImportFrom, *, is_inner: bool) -> None:
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = f"{module}{alias.name}"
            target = name if name in modules() else name.rpartition(".")[0]
            if target in modules():
                (imports.inner if is_inner else imports.top).add(target)
            elif not is_inner:
                imports.others.add(name.split(".")[0])

    walk(parse(path), is_inner=False)
    return imports


@pytest.fixture(scope="module")
def graph() -> dict[str, Imports]:
    """Return each of our modules with what it imports."""
    return {name: read_imports(path) for name, path in modules().items()}


def reached(name: str, graph: Mapping[str, Imports]) -> set[str]:
    """Return the modules that are loaded with one."""
    seen, unfinished = set[str](), [name]
    while unfinished:
        if (module := unfinished.pop()) not in seen:
            seen.add(module)
            unfinished += graph[module].top
    return seen


def heavy_of(name: str, graph: Mapping[str, Imports]) -> set[str]:
    libraries = set().union(*(graph[module].others for module in reached(name, graph)))
    return libraries & {*HEAVY.split(), *HEAVY_INSIDE.split()}


def test_functions_import_own_modules_for_heavy_libraries_only(graph: dict[str, Imports]) -> None:
    eager = {name: imports for name, imports in graph.items() if not name.startswith(tuple(LAZY))}
    for name, imports in eager.items():
        for other in imports.inner:
            assert heavy_of(other, graph) - heavy_of(name, graph), f"{name} imports {other}"
    assert sum(len(imports.inner) for imports in eager.values()) <= 25
    for lazy, most in LAZY.items():
        inner = [len(imports.inner) for name, imports in graph.items() if name.startswith(lazy)]
        assert sum(inner) <= most, lazy


VERBS = "pairwright.flows.verbs."


def test_verbs_work_on_a_dataset_by_its_methods_alone(graph: dict[str, Imports]) -> None:
    for name in graph:
        if not name.startswith(VERBS):
            continue
        verb = name.removeprefix(VERBS)
        own = graph[name].top | graph[name].inner
        flows = {
            other.rpartition(".")[2]
            for other in own
            if ".flows." in other and ".verbs" not in other
        }
        work = {other for other in flows if not other.startswith(SHOWING)}
        allowed = OTHER_WORK.get(verb, set())
        assert work <= (allowed | {"dataset"} if verb == "options" else allowed), name
        tasks = {other.partition(".tasks.")[2] for other in own if ".tasks." in other}
        assert tasks <= TASKS.get(verb, set()), name


def test_the_installation_has_every_package() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = [
        path.parent.relative_to(ROOT).parts
        for top in FOLDERS
        for path in (ROOT / top).rglob("__init__.py")
    ]
    assert listed == ["pairwright", *sorted(".".join(("pairwright", *parts)) for parts in there)]


def test_docker_folder_holds_no_python() -> None:
    assert not list((ROOT / "docker").rglob("*.py"))


def test_no_machine_paths_or_index_addresses_are_committed() -> None:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not names:
        pytest.skip("not a git checkout")
    words = ("--index-url", "--extra-index-url", "--find-links", "/ro" + "ot/", "/opt" + "/pypi")
    for name in names:
        path = ROOT / name
        if path.suffix in (".toml", ".txt", ".yaml", ".md", "") and path.is_file():
            text = path.read_text(errors="replace")
            assert not [word for word in words if word in text], name


def test_every_stage_can_be_sent_to_a_worker_process() -> None:
    names = [name for name, path in modules().items() if "= Stage(" in path.read_text()]
    values = [value for name in names for value in vars(import_module(name)).values()]
    stages = {stage.name: stage for stage in values if type(stage) is Stage}
    assert len(stages) > 35
    for stage in stages.values():
        pickle.dumps(stage)
