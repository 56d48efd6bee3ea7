"""Check packages and GPUs: what is installed, and the commands for the rest."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.devices import DRIVERS


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """Result of one check, with the command that fixes a problem."""

    area: str  # "machine", "packages", "disk", ...
    name: str
    found: str  # in words
    state: Literal["ok", "warning", "missing"]  # "warning": a build can run; "missing": it cannot
    mend: str = ""  # command or setting that fixes it; empty: nothing to fix, or no command does


ok = partial(MachineCheck, state="ok")
warning = partial(MachineCheck, state="warning")
missing = partial(MachineCheck, state="missing")

PROJECT = "pairwright"


def check_packages(extras: Sequence[str]) -> Iterator[MachineCheck]:
    """Yield for the core and each extra whether its packages are installed in suitable versions."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(line) for line in requires(PROJECT) or []]
    except PackageNotFoundError:
        yield warning(
            "packages", "core", "the project is not installed, only imported", mend=_install(extras)
        )
        return
    for extra in ("", *extras):
        marker = f'extra == "{extra}"' if extra else "None"
        own = [one for one in wanted if one.name != PROJECT and marker in str(one.marker)]
        here = {one.name: _find_version(one.name) for one in own}
        wrong = [
            one
            for one in own
            if not here[one.name] or not one.specifier.contains(here[one.name], prereleases=True)
        ]
        said = ", ".join(
            f"{one.name} {here[one.name] or 'is not installed'}" for one in wrong or own
        )
        if wrong:
            said = f"{said}; needed: {', '.join(f'{one.name}{one.specifier}' for one in wrong)}"
            yield missing("packages", extra or "core", said, mend=_install(extras))
        else:
            yield ok("packages", extra or "core", said)


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


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
    return "gpu" if _find_version("faiss-gpu") else "cpu"


def check_gpus(*, needed: bool) -> Iterator[MachineCheck]:
    """Yield which GPUs exist and whether PyTorch can use them; ``needed``: a profile needs one."""
    driver = next((path for path in DRIVERS if Path(path).exists()), "")
    if not driver:
        said = "no GPU driver: models run on the CPU"
        yield warning("machine", "GPU", said) if needed else ok("machine", "GPU", said)
        return
    yield ok("machine", "GPU driver", f"{driver} found")
    mend = _install(["gpu", "models"])
    try:
        import torch
    except (ImportError, OSError) as error:
        yield warning("machine", "GPU", f"unused: PyTorch does not load: {error}", mend=mend)
        return
    built = f"PyTorch {torch.__version__} for " + (
        f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
    )
    gpus = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    if not gpus:
        yield warning("machine", "GPU", f"{built} finds none despite the driver", mend=mend)
    else:
        names = "; ".join(f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB" for gpu in gpus)
        yield ok("machine", "GPU", f"{names} ({built})")
