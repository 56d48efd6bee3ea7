"""Run toy builds in processes that can be killed.

Each is forked from one that has imported everything and done nothing, so that it starts at once,
and leads a process group of its own.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.tasks.store.toy import ToyConfig, build_toy, failures

ROOT = Path(__file__).parents[3]
ALL_DONE, SHARDS_FAILED, RAISED = 0, 1, 2


class Forge:
    """Start builds and wait for them; use as a context manager."""

    def __enter__(self) -> Self:
        command, pipe = [sys.executable, "-m", "tests.tasks.store.forge"], subprocess.PIPE
        self._server = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, bufsize=1
        )
        return self

    def __exit__(self, *ended: object) -> None:
        self._server.communicate()

    def start(self, root: Path, words: Sequence[str], config: ToyConfig, **options: Any) -> int:
        """Start a build; return its process, which leads its group."""
        return self._ask(root=str(root), words=list(words), config=config.model_dump(), **options)

    def wait(self, process: int) -> int:
        """Return the exit code, or the negative number of the signal that killed the process."""
        return self._ask(wait=process)

    def _ask(self, **question: Any) -> int:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(question) + "\n")
        return int(self._server.stdout.readline())


def _serve() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            answer = os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1])
        else:
            answer = _fork(question)
        print(answer, flush=True)


def _fork(options: dict[str, Any]) -> int:
    ready, leading = os.pipe()
    process = os.fork()
    if process == 0:
        os.setsid()
        os.write(leading, b"!")
        os._exit(_build(**options))
    os.close(leading)
    os.read(ready, 1)
    os.close(ready)
    return process


def _build(root: str, words: Sequence[str], config: dict[str, Any], **options: Any) -> int:
    try:
        _, outcomes = build_toy(root, words, ToyConfig(**config), **options)
    except BaseException:  # noqa: BLE001  (a fork must not go on where its parent was)
        traceback.print_exc()
        return RAISED
    return SHARDS_FAILED if failures(outcomes) else ALL_DONE


if __name__ == "__main__":
    _serve()
