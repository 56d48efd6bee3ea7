"""What `pairwright doctor` finds: one line per thing that was looked at."""

from dataclasses import dataclass
from functools import partial
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """Say how one thing stands, and what mends it."""

    area: str
    """"machine", "packages", "disk", ..."""
    name: str
    found: str
    """What was found, in words."""
    state: Literal["ok", "warning", "missing"]
    """"warning": a build can go on; "missing": it cannot."""
    mend: str = ""
    """The command or setting that mends it; empty: nothing is to be mended, or no command does."""


ok = partial(Check, state="ok")
warning = partial(Check, state="warning")
missing = partial(Check, state="missing")
