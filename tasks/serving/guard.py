"""Guard of a server started by a build: ends the server when the build is gone, for whatever reason.

    python guard.py PARENT GRACE_SECONDS COMMAND...

PARENT is the build's process id. The command runs in its own process group, as vLLM has engine
processes. On SIGTERM, or when PARENT is no longer its parent (also after ``kill -9``), the guard
sends SIGTERM to the command, and after GRACE_SECONDS, or when it has ended, SIGKILL to the rest of
the group. It exits with the command's exit code when all are gone and the GPU is free. It is
started by its path, loads nothing of the project, and has its own session: Ctrl-C reaches the build
only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

LOOK_SECONDS = 0.1
GONE_SECONDS = 10.0  # killed processes end at once, unless a device holds them
PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, grace_s: float, command: list[str]) -> int:
    """Run the command until it ends, the guard is terminated, or the parent is gone; return its exit code."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    with suppress(
        OSError, AttributeError
    ):  # Linux: orphans of the command become children here, and can be waited for
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - the profile's own
    try:
        while not told.is_set() and os.getppid() == parent and not _ended(server):
            time.sleep(LOOK_SECONDS)
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while not _ended(server) and time.monotonic() < until:
            time.sleep(min(LOOK_SECONDS, grace_s))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
    code = server.wait()
    until = time.monotonic() + GONE_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-server.pid, os.WNOHANG) == (0, 0):
                time.sleep(LOOK_SECONDS / 5)
    return code


def _ended(server: "subprocess.Popen[bytes]") -> bool:
    """Return whether it has ended, without reaping it, which keeps its process group id reserved."""
    return os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
