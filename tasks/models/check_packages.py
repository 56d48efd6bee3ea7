"""Check packages and GPUs: what is installed, and the commands for the rest."""

import importlib.util
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
class MachineCheck:
    """Result of one check, with the command that fixes a problem."""

    area: str
    """"machine", "packages", "disk", ..."""
    name: str
    found: str
    """In words."""
    state: Literal["ok", "warning", "missing"]
    """``warning``: a build can run; ``missing``: it cannot."""
    mend: str = ""
    """Command or setting that fixes it; empty: nothing to fix, or no command does."""


ok = partial(MachineCheck, state="ok")
warning = partial(MachineCheck, state="warning")
missing = partial(MachineCheck, state="missing")

PROJECT = "pairwright"


def check_packages(extras: Sequence[str]) -> Iterator[MachineCheck]:
    """Yield whether the packages of the core and of each extra are installed as required."""
    from packaging.requirements import Requirement

    try:
        lines = requires(PROJECT) or []
    except PackageNotFoundError:
        detail = "the project is not installed, only imported"
        yield warning("packages", "core", detail, mend=_install(extras))
        return
    requirements = [Requirement(line) for line in lines]
    yield _check_group("core", "None", requirements, extras)
    for extra in extras:
        yield _check_group(extra, f'extra == "{extra}"', requirements, extras)


def _check_group(
    group: str,
    marker: str,
    requirements: "Sequence[Requirement]",
    extras: Sequence[str],
) -> MachineCheck:
    """Return whether the packages of the core or of an extra are installed as required."""
    required = [item for item in requirements if _is_of_extra(item, marker)]
    wrong = [item for item in required if not _is_satisfied(item)]
    detail = ", ".join(_describe_package(item.name) for item in wrong or required)
    if not wrong:
        return ok("packages", group, detail)
    needed = ", ".join(f"{item.name}{item.specifier}" for item in wrong)
    detail = f"{detail}; needed: {needed}"
    return missing("packages", group, detail, mend=_install(extras))


def _is_of_extra(requirement: "Requirement", marker: str) -> bool:
    return requirement.name != PROJECT and marker in str(requirement.marker)


def _is_satisfied(requirement: "Requirement") -> bool:
    """Return whether a package is installed in a suitable version."""
    installed = _find_version(requirement.name)
    return bool(installed) and requirement.specifier.contains(installed, prereleases=True)


def _describe_package(name: str) -> str:
    return f"{name} {_find_version(name) or 'is not installed'}"


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _install(extras: Sequence[str]) -> str:
    """Return the command that installs extras."""
    names = ",".join(dict.fromkeys(extras or ["cpu"]))
    return f"python -m pip install -c constraints.txt -e '.[{names}]'"


def require_faiss() -> None:
    """Raise ``ModelError`` if Faiss is not installed."""
    if importlib.util.find_spec("faiss") is None:
        raise ModelError(
            "searching neighbours needs Faiss, not installed here: "
            "python -m pip install -e '.[cpu]', or '.[gpu]' where there is an NVIDIA GPU"
        )


def faiss_extra() -> str:
    """Return the extra of the installed Faiss.

    Both builds share a folder, so only one can be installed.
    """
    return "gpu" if _find_version("faiss-gpu") else "cpu"


def check_gpus(*, needed: bool) -> Iterator[MachineCheck]:
    """Yield which GPUs exist and whether PyTorch can use them; ``needed``: a profile needs one."""
    driver = next((path for path in DRIVERS if Path(path).exists()), "")
    if not driver:
        check = warning if needed else ok
        yield check("machine", "GPU", "no GPU driver: models run on the CPU")
        return
    yield ok("machine", "GPU driver", f"{driver} found")
    mend = _install(["gpu", "models"])
    try:
        import torch
    except (ImportError, OSError) as error:
        yield warning("machine", "GPU", f"unused: PyTorch does not load: {error}", mend=mend)
        return
    platform = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
    build = f"PyTorch {torch.__version__} for {platform}"
    names: list[str] = []
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        names.append(f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB")
    if names:
        yield ok("machine", "GPU", f"{'; '.join(names)} ({build})")
    else:
        yield warning("machine", "GPU", f"{build} finds none despite the driver", mend=mend)
