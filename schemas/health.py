"""What `pairwright doctor` finds: one line per thing that was looked at."""

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Say how one thing stands, and what mends it."""

    area: str
    """"machine", "packages", "disk", ..."""
    name: str
    state: State
    """"warning": a build can go on; "missing": it cannot."""
    found: str
    """What was found, in words."""
    mend: str = ""
    """The command or setting that mends it; empty: nothing is to be mended, or no command does."""

    def as_json(self) -> dict[str, str]:
        """Return the form that scripts read."""
        return asdict(self)


def ok(area: str, name: str, found: str) -> Check:
    """Return that something is as it should be."""
    return Check(area=area, name=name, state="ok", found=found)


def warning(area: str, name: str, found: str, *, mend: str = "") -> Check:
    """Return that something may cost time or fail later."""
    return Check(area=area, name=name, state="warning", found=found, mend=mend)


def missing(area: str, name: str, found: str, *, mend: str = "") -> Check:
    """Return that a build cannot go on without something."""
    return Check(area=area, name=name, state="missing", found=found, mend=mend)
