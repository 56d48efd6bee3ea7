"""Stand between a build and a server that it started: end the server when the build is gone, however it went.

    python guard.py PARENT GRACE_SECONDS COMMAND...

PARENT is the build's process id. The command runs in a process group of its own, since vLLM has engine processes beside
the one that was started. When this guard is told to end (SIGTERM), or PARENT is no longer its parent (also after
``kill -9``), it sends SIGTERM to the command, and after GRACE_SECONDS, or as soon as that one has ended, SIGKILL to all
that is left of the group. It ends, with the command's exit code, when they are gone: their GPU is free then.

Needs nothing but the standard library, and is started by its path, so that nothing of the project is loaded, in a
session of its own, so that Ctrl-C reaches the build only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

LOOK_SECONDS = 0.1
GONE_SECONDS = 10.0
"""Killed processes are gone at once, unless a device holds them."""
PR_SET_CHILD_SUBREAPER = 36


class Guard:
    """Run one command until it ends, this guard is told to end it, or the parent is gone."""

    def __init__(self, parent: int, grace_s: float) -> None:
        self._parent = parent
        self._grace_s = grace_s
        self._told = False

    def tell(self, number: int, frame: FrameType | None) -> None:
        """Be the handler of SIGTERM."""
        del number, frame
        self._told = True

    def run(self, command: list[str]) -> int:
        """Run the command and return its exit code."""
        # The command is what the build's own profile says.
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as server:  # noqa: S603
            try:
                self._watch(server)
            finally:
                _kill_group(server.pid)
        _wait_for_group(server.pid)
        return server.returncode

    def _watch(self, server: "subprocess.Popen[bytes]") -> None:
        """Return when the server has ended, or has had its time to."""
        while not self._told and os.getppid() == self._parent:
            if _ended(server, LOOK_SECONDS):
                return
        with suppress(ProcessLookupError):
            server.terminate()
        _ended(server, self._grace_s)


def _ended(server: "subprocess.Popen[bytes]", timeout_s: float) -> bool:
    """Wait for the server's end without taking its exit code: until that is taken, its group's number stays its own."""
    until = time.monotonic() + timeout_s
    while os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(min(LOOK_SECONDS, timeout_s))
    return True


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _adopt_orphans() -> None:
    """Become the parent of what the server's end leaves behind, so that its end is seen; Linux can do that."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait_for_group(group: int) -> None:
    """Wait until the adopted ones of the group have ended."""
    until = time.monotonic() + GONE_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-group, os.WNOHANG) == (0, 0):
                time.sleep(LOOK_SECONDS / 5)


def main(arguments: list[str]) -> int:
    """Run what the command line says."""
    parent, grace_s, *command = arguments
    guard = Guard(int(parent), float(grace_s))
    signal.signal(signal.SIGTERM, guard.tell)
    _adopt_orphans()
    return guard.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
