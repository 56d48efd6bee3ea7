"""What the images install can be had, all of it together: pip finds each release; nothing is
installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.test_images import FILES, ROOT, pip_install

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_packages_resolve(file: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        *pip_install(file),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
