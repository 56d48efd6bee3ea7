"""Run the Java programs that pycocoevalcap brings: the tokeniser, METEOR, SPICE.

Each run ends: it has a time limit, gets all it reads at once, and is killed and waited for where it is too slow or
this process is interrupted. Nothing is fetched.
"""

import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

MODULES = tuple(
    f"java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "math", "util", "util.concurrent", "net", "text")
)
"""What programs of before Java 9 reach into."""


class UnavailableError(Exception):
    """Say, in one sentence, why a program cannot be run here or gave no result."""


def find_jar(place: str) -> Path:
    """Return a file of pycocoevalcap.

    Raises:
        UnavailableError: there is no Java, no such package, or no such file in it.
    """
    if not shutil.which("java"):
        raise UnavailableError("there is no Java on this machine (no `java` on the PATH)")
    found = find_spec("pycocoevalcap")
    folders = list(found.submodule_search_locations or ()) if found else []
    if not folders:
        raise UnavailableError(
            "pycocoevalcap is not installed: python -m pip install -c constraints.txt -e '.[evaluation]'"
        )
    path = Path(folders[0], place)
    if not path.is_file():
        raise UnavailableError(f"{path} is not there")
    return path


def run_java(words: Sequence[str], given: bytes, *, limit_s: float, folder: Path | None = None) -> bytes:
    """Return what a Java program prints.

    Args:
        words: the command line after ``java``.
        given: what the program reads from its standard input.
        limit_s: seconds that it may take.
        folder: where it runs.

    Raises:
        UnavailableError: it cannot be started, fails, or takes too long.
    """
    opened = [word for module in MODULES for word in ("--add-opens", module)] if "-jar" in words else []
    try:
        done = subprocess.run(  # noqa: S603  (our own words)
            [shutil.which("java") or "java", *opened, *words],
            input=given,
            capture_output=True,
            timeout=limit_s,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Java took longer than {limit_s:g} s, and was ended") from None
    except OSError as error:
        raise UnavailableError(f"Java cannot be started: {error}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing said"]
        raise UnavailableError(f"Java ended with {done.returncode}: {lines[0][:300]}")
    return done.stdout
