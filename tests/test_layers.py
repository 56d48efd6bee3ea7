"""Check the architecture: imports run one way, importing the command line is cheap, ``docker/`` has
no Python."""

import ast
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from pairwright.tasks.store.stage import Stage
from tests.fixtures.parsed import imports_in, parse

ROOT = Path(__file__).parent.parent
FOLDERS = ("schemas", "prompts", "tasks", "flows")
SHARED = (
    "tasks.images",
    "tasks.models",
    "tasks.pages",
    "tasks.scenes",
    "tasks.serving",
    "tasks.store",
    "tasks.texts",
)
HEAVY = (
    "torch",
    "faiss",
    "mitsuba",
    "cv2",
    "sklearn",
    "scipy",
    "duckdb",
    "pyarrow",
    "prefect",
    "transformers",
    "spacy",
)
HEAVY_INSIDE = (
    "drjit",
    "httpcore",
    "httpx",
    "httpx2",
    "open_clip",
    "openai",
    "safetensors",
    "starlette",
    "uvicorn",
)
"""Too heavy for a start, too, but light beside what is done with them."""
LAZY = {
    "pairwright.flows.verbs": 35,
    "pairwright.flows.dataset": 7,
    "pairwright.flows.versions.table": 1,
}
"""The command line and the facade, with how many of our modules they load when one verb or method
needs them."""
SHOWING = ("say_", "show_", "progress", "list_")
"""Modules that print and draw, or look up what can be printed."""
OTHER_WORK = {
    "build": {
        "load_profile",
        "build_dataset",
        "find_models",
    },  # a wrong setting first; as a flow run; no dataset yet
    "evaluate": {"evaluate_model"},  # of any model
    "export": {"export_dataset"},  # what an export is configured with
    "train": {
        "run_in_prefect",
        "load_profile",
        "make_train_config",
    },  # what a recipe trains, first; all recipes
    "versions": {"check_machine", "find_models", "load_profile", "schedule_dataset"},
}
"""What verbs import from ``flows`` beside ``flows.dataset``, by which all work on a dataset is
done."""
TASKS = {
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


def modules() -> list[Path]:
    return sorted(path for top in FOLDERS for path in (ROOT / top).rglob("*.py"))


def package_of(name: str) -> str:
    """Return "schemas", "prompts", "flows", "tasks.store", "tasks.mining", ... for a dotted module
    name."""
    parts = name.removeprefix("pairwright.").split(".")
    return ".".join(parts[:2]) if parts[0] == "tasks" and len(parts) > 1 else parts[0]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in imports_in(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not {name.split(".")[0] for name in found} & set(FOLDERS), (
        "modules are pairwright.flows, ..."
    )
    return {name for name in found if name.startswith("pairwright.") and name != "pairwright"}


def may_import(package: str, every: set[str]) -> set[str]:
    below = {"schemas": set[str](), "prompts": {"schemas"}}
    if package in below:
        return {package} | below[package]
    if package in SHARED:
        below = {"tasks.store": set[str](), "tasks.images": set[str]()}
        return {package, "schemas", "prompts"} | below.get(package, {"tasks.store", "tasks.images"})
    if package.startswith("tasks"):
        return {package, "schemas", "prompts", *SHARED}
    return every


def test_imports_run_one_way() -> None:
    paths = {path.relative_to(ROOT): path for path in modules()}
    packages = {name: package_of(".".join(name.with_suffix("").parts)) for name in paths}
    allowed = {
        package: may_import(package, set(packages.values())) for package in set(packages.values())
    }
    wrong = {
        str(name): [
            other for other in imports_of(path) if package_of(other) not in allowed[packages[name]]
        ]
        for name, path in paths.items()
    }
    assert not {name: others for name, others in wrong.items() if others}


def test_no_circle_of_files() -> None:
    """Imports within functions count, too: they would only hide one."""
    names = {
        ".".join(("pairwright", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in modules()
    }
    files = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {
        name: {other if other in files else other.rpartition(".")[0] for other in imports_of(path)}
        - {name}
        for name, path in files.items()
    }
    assert list(TopologicalSorter(graph).static_order()), "raises CycleError, which names the files"


def test_command_line_loads_no_heavy_library() -> None:
    code = (
        f"import sys, pairwright.flows.cli; print([name for name in {HEAVY!r} if name in "
        f"sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@dataclass(frozen=True)
class Imports:
    """Imports of one file: own modules at its top and in its functions, others at its top."""

    top: set[str]
    inner: set[str]
    others: set[str]


def read_imports(path: Path, own: Container[str]) -> Imports:
    """Return what a file imports, but for what it does so for type checkers only."""
    found = Imports(set(), set(), set())

    def walk(node: ast.AST, *, is_inner: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                module = f"{child.module}." if isinstance(child, ast.ImportFrom) else ""
                for name in (f"{module}{alias.name}" for alias in child.names):
                    target = name if name in own else name.rpartition(".")[0]
                    if target in own:
                        (found.inner if is_inner else found.top).add(target)
                    elif not is_inner:
                        found.others.add(name.split(".")[0])
            walk(
                child,
                is_inner=is_inner or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef),
            )

    walk(parse(path), is_inner=False)
    return found


@pytest.fixture(scope="module")
def graph() -> dict[str, Imports]:
    """Return each of our modules with what it imports."""
    own = {
        ".".join(("pairwright", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in modules()
    }
    own = {name.removesuffix(".__init__"): path for name, path in own.items()}
    return {name: read_imports(path, own) for name, path in own.items()}


def reached(name: str, graph: Mapping[str, Imports]) -> set[str]:
    """Return the modules that are loaded with one."""
    seen, unfinished = set[str](), [name]
    while unfinished:
        if (module := unfinished.pop()) not in seen:
            seen.add(module)
            unfinished += graph[module].top
    return seen


def heavy_of(name: str, graph: Mapping[str, Imports]) -> set[str]:
    return set().union(*(graph[module].others for module in reached(name, graph))) & {
        *HEAVY,
        *HEAVY_INSIDE,
    }


def test_functions_import_own_modules_for_heavy_libraries_only(graph: dict[str, Imports]) -> None:
    eager = {name: found for name, found in graph.items() if not name.startswith(tuple(LAZY))}
    light = {
        name: sorted(
            other for other in found.inner if not heavy_of(other, graph) - heavy_of(name, graph)
        )
        for name, found in eager.items()
    }
    assert not {name: others for name, others in light.items() if others}
    assert sum(len(found.inner) for found in eager.values()) <= 25
    for lazy, most in LAZY.items():
        assert (
            sum(len(found.inner) for name, found in graph.items() if name.startswith(lazy)) <= most
        ), lazy


def test_verbs_work_on_a_dataset_by_its_methods_alone(graph: dict[str, Imports]) -> None:
    for name, found in graph.items():
        verb = name.removeprefix("pairwright.flows.verbs.")
        if verb == name:
            continue
        flows = {
            one.rpartition(".")[2]
            for one in found.top | found.inner
            if ".flows." in one and ".verbs" not in one
        }
        flows = {one for one in flows if not one.startswith(SHOWING)}
        assert flows <= OTHER_WORK.get(verb, set()) | (
            {"dataset"} if verb == "options" else set()
        ), name
        tasks = {
            one.removeprefix("pairwright.tasks.")
            for one in found.top | found.inner
            if ".tasks." in one
        }
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
    paths = [path for path in modules() if "= Stage(" in path.read_text()]
    names = [
        ".".join(("pairwright", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths
    ]
    stages = {
        stage.name: stage
        for name in names
        for stage in vars(import_module(name)).values()
        if type(stage) is Stage
    }
    assert len(stages) > 35
    for stage in stages.values():
        pickle.dumps(stage)
