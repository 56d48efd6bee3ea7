"""Read what the project's Dockerfiles say, as far as the tests look at it."""

import re
import shlex
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docker"
FILES = sorted(FOLDER.glob("Dockerfile*"))


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return each instruction with what follows it, in one line; comments are left out."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def pip_installs(file: Path) -> list[list[str]]:
    """Return the words behind ``pip install`` of each such command."""
    commands = [part for name, rest in instructions(file) if name == "RUN" for part in rest.split("&&")]
    words = [shlex.split(command) for command in commands if " pip install " in command]
    return [own[own.index("install") + 1 :] for own in words]
