"""Guard of a server started by a build: ends the server when the build ends, for any reason.

    python guard.py PARENT GRACE_SECONDS COMMAND...

PARENT is the build's process id. The command runs in its own process group, as vLLM has engine
processes. On SIGTERM, or when PARENT is no longer its parent (also after ``kill -9``), the guard
sends SIGTERM to the command, and after GRACE_SECONDS, or when it has ended, SIGKILL to the rest of
the group. It exits with the command's exit code when all have ended and the GPU is free. It is
started by its path, loads nothing of the project, and has its own session: Ctrl-C reaches the build
only. A command that a signal ended gives 128 and the signal's number, as in a shell.
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


def main(
    parent: int,
    grace_s: float,
    command: list[str],
) -> int:
    """Run the command and return its exit code.

    It ends by itself, or when the guard is terminated or the parent is gone.
    """
    is_terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_terminated.set())
    # Linux: orphans of the command become children here, and can be waited for.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = subprocess.Popen(  # noqa: S603 - the profile's own
        command, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        while not is_terminated.is_set() and os.getppid() == parent and not _has_ended(server):
            time.sleep(LOOK_SECONDS)
        _terminate(server, grace_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
    code = server.wait()
    _reap_group(server.pid)
    return 128 - code if code < 0 else code


def _terminate(server: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """Send SIGTERM, and wait until the server has ended or the time is over."""
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while not _has_ended(server) and time.monotonic() < until:
        time.sleep(min(LOOK_SECONDS, grace_s))


def _reap_group(group: int) -> None:
    """Wait until the killed processes of the group have ended."""
    until = time.monotonic() + GONE_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-group, os.WNOHANG) == (0, 0):
                time.sleep(LOOK_SECONDS / 5)


def _has_ended(server: "subprocess.Popen[bytes]") -> bool:
    """Return whether it has ended; without reaping it, so that its process group id stays."""
    return os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
