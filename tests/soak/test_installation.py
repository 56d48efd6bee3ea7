"""The package as a wheel and as an editable clone, each installed into an empty environment, used
from elsewhere.

The environments borrow the libraries of this one, so that nothing large is installed; the checkout
is not among them.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("flows", "pairwright", "prompts", "schemas", "tasks")
BUILD = ("--no-deps", "--no-build-isolation", "--no-index", "-q")
USES = {
    "version": ["-m", "pairwright", "--version"],
    "command line": ["-c", "import pairwright.flows.cli as cli; print(cli.app)"],
    "facade": ["-c", "import pairwright as pw; print(pw.Dataset, pw.__version__)"],
    "torchrun": [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "1",
        "-m",
        "pairwright",
        "--help",
    ],
    "profiles": ["-m", "pairwright", "profiles"],
    "prompts": [
        "-c",
        "from pairwright.prompts import load_prompt; print(load_prompt('describe_image').text)",
    ],
    "pages": [
        "-c",
        "from pathlib import Path; from pairwright.tasks.pages.environment import copy_looks; "
        "copy_looks(Path()); print(*Path().iterdir())",
    ],
    "Prefect": [
        "-c",
        "from prefect.flows import load_flow_from_entrypoint as load; "
        "print(load('pairwright.flows.prefect.build_dataset.build_dataset').name)",
    ],
}


def run(*words: object, cwd: Path) -> str:
    """Run a program that sees nothing of this checkout, and return what it prints."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False, env=own
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what Git knows of this checkout."""
    folder = tmp_path_factory.mktemp("clone")
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    if not any(names):
        pytest.skip("not a git checkout")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(clone, folder / "source")
    run(sys.executable, "-m", "pip", "wheel", *BUILD, "-w", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment that has the package, and borrows all else."""
    folder = tmp_path_factory.mktemp(request.param)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    found = folder / "env/bin/python"
    packages = Path(
        run(
            found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
        ).strip()
    )
    (packages / "borrowed.pth").write_text(
        sysconfig.get_path("purelib")
    )  # .pth files in there are not followed
    wanted = [request.getfixturevalue("wheel")]
    if request.param == "editable":
        wanted = ["-e", request.getfixturevalue("clone")]
    run(sys.executable, "-m", "pip", "--python", found, "install", *BUILD, *wanted, cwd=folder)
    return found


def test_a_wheel_adds_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pairwright"}
    assert len({name.split("/")[0] for name in names}) == 2


def test_a_wheel_has_every_file(clone: Path, wheel: Path) -> None:
    packed = {name.removeprefix("pairwright/") for name in zipfile.ZipFile(wheel).namelist()}
    files = [
        path.relative_to(clone)
        for top in FOLDERS
        for path in (clone / top).rglob("*")
        if path.is_file()
    ]
    missing = sorted({str(path).removeprefix("pairwright/") for path in files} - packed)
    assert not missing


@pytest.mark.parametrize("use", USES)
def test_it_is_used_from_elsewhere(python: Path, tmp_path: Path, use: str) -> None:
    where = run(
        python, "-c", "import pairwright.flows; print(pairwright.flows.__file__)", cwd=tmp_path
    )
    assert str(ROOT) not in where
    assert run(python, *USES[use], cwd=tmp_path).strip()
