"""Check packages, GPUs and weights: what is installed, and the commands for the rest.

PyTorch is loaded in a separate process: a mismatch of driver and build may end it.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.devices import DRIVERS

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check, with the command that fixes a problem."""

    area: str  # "machine", "packages", "disk", ...
    name: str
    found: str  # in words
    state: Literal["ok", "warning", "missing"]  # "warning": a build can run; "missing": it cannot
    mend: str = ""  # command or setting that fixes it; empty: nothing to fix, or no command does


ok = partial(Check, state="ok")
warning = partial(Check, state="warning")
missing = partial(Check, state="missing")

PROJECT = "pairwright"
LOAD_SECONDS = 30.0
LOOK = """
import json, torch
found = torch.cuda.device_count() if torch.cuda.is_available() else 0
names = [torch.cuda.get_device_properties(n) for n in range(found)]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or torch.version.hip or "",
                  "gpus": [{"name": p.name, "memory": p.total_memory} for p in names]}))
"""


def check_packages(extras: Sequence[str]) -> Iterator[Check]:
    """Yield for the core and each extra whether its packages are installed in suitable versions."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in requires(PROJECT) or []]
    except PackageNotFoundError:
        yield warning("packages", "core", "the project is not installed, only imported", mend=_install(extras))
        return
    for extra in ("", *extras):
        marker = f'extra == "{extra}"' if extra else "None"
        own = [one for one in wanted if one.name != PROJECT and marker in str(one.marker)]
        name = extra or "core"
        if wrong := "; ".join(filter(None, map(_fault, own))):
            yield missing("packages", name, wrong, mend=_install(extras))
        else:
            yield ok("packages", name, ", ".join(f"{one.name} {version(one.name)}" for one in own))


def _fault(wanted: "Requirement") -> str:
    try:
        here = version(wanted.name)
    except PackageNotFoundError:
        return f"{wanted.name} is not installed"
    fits = wanted.specifier.contains(here, prereleases=True)
    return "" if fits else f"{wanted.name} is {here}, not {wanted.specifier}"


def _install(extras: Sequence[str]) -> str:
    return f"python -m pip install -c constraints.txt -e '.[{','.join(dict.fromkeys(extras or ['cpu']))}]'"


def require_faiss() -> None:
    """Refuse to search without Faiss."""
    if importlib.util.find_spec("faiss") is None:
        raise ModelError(
            "searching neighbours needs Faiss, not installed here: python -m pip install -e '.[cpu]', "
            "or '.[gpu]' where there is an NVIDIA GPU"
        )


def faiss_extra() -> str:
    """Return the extra of the installed Faiss; both builds share a folder, so only one can be installed."""
    try:
        version("faiss-gpu")
    except PackageNotFoundError:
        return "cpu"
    return "gpu"


def check_gpus(*, needed: bool) -> Iterator[Check]:
    """Yield which GPUs exist and whether PyTorch can use them; ``needed``: a profile needs one."""
    driver = next((path for path in DRIVERS if Path(path).exists()), "")
    if not driver:
        said = "no GPU driver: models run on the CPU"
        yield warning("machine", "GPU", said) if needed else ok("machine", "GPU", said)
        return
    yield ok("machine", "GPU driver", f"{driver} found")
    if importlib.util.find_spec("torch") is None:
        said = "PyTorch is not installed: the GPU is unused"
        yield warning("machine", "GPU", said, mend=_install(["gpu", "models"]))
    else:
        yield _ask_torch()


def _ask_torch() -> Check:
    words, mend = [sys.executable, "-c", LOOK], _install(["gpu", "models"])
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return warning("machine", "GPU", f"PyTorch did not load in {LOAD_SECONDS:.0f} s")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return missing("machine", "GPU", f"PyTorch does not load: {last}", mend=mend)
    gpus = [f"{gpu['name']}, {gpu['memory'] / 1e9:.0f} GB" for gpu in found["gpus"]]
    built = f"PyTorch {found['version']}" + (f" for CUDA {found['cuda']}" if found["cuda"] else " for CPUs only")
    if not gpus:
        return warning("machine", "GPU", f"{built} finds none despite the driver", mend=mend)
    return ok("machine", "GPU", f"{'; '.join(gpus)} ({built})")
