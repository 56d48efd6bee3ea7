"""The benches run on the GPU, and what they print of it goes into the table."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
ARGUMENTS = {
    "embed": ((), ()),
    "search": ((), ("3000",)),
    "train": (("--turns", "2"), ("--turns", "1")),
    "namc": ((), ("--pairs", "1", "--tokens", "4", "--turns", "1")),
}
"""Of each bench, on a GPU and in a dry run."""
SIDE = re.compile(
    r"^ {2,}(?P<side>\S.*?) {2,}(?P<number>[\d,.]+)(?P<unit> \S+/s)?(?:.*? (?P<ratio>[\d.]+x))?"
)
"""A line that a bench prints of a side or a step: its name, a number, and perhaps how it is to
another side's."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bench(name: str, dry: bool, figure: Any):
    command = [sys.executable, "-m", f"tests.bench.bench_{name}", *ARGUMENTS[name][dry]]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout)
    for line in done.stdout.splitlines():
        if found := SIDE.match(line):
            shown = (found["number"] + (found["unit"] or ""), found["ratio"] or "")
            figure(f"{found['side']} {' '.join(shown).strip()}")
        elif line.strip() and not line.startswith("   "):
            figure(f"**{line.strip().partition(' (')[0]}**")
