"""Start vLLM on this machine for the stages that need it: `launch: local` in a profile.

Reads ``ChatConfig``, gives it back with the endpoint filled in. One server at a time: the next model's server starts
when the last one's has ended, since they share one GPU. vLLM runs in an environment or a container of its own, behind
a guard (``guard.py``) that ends it with the build, also when that is killed. Needs only the standard library here.
"""

import http.client
import json
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving import guard
from pairwright.tasks.serving.vllm_command import DRAIN_SECONDS, vllm_command, vllm_environment

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 5
GRACE_SECONDS = DRAIN_SECONDS + 30
"""How long after it is told to end it is killed; it has drained by then, and let go of its GPU."""
PORTS = 3
"""Ports that are tried when another process takes one between its choice and the start."""
TAIL_LINES = 30
TAIL_BYTES = 16_384
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    chat: ChatConfig
    port: int
    log: Path
    log_begins: int
    guard: "subprocess.Popen[bytes]"

    @property
    def ended(self) -> bool:
        return self.guard.poll() is not None


class Servers:
    """Be the servers of a build: at most one runs, and none is left when the build ends.

    Log files go to the folder ``logs``, one per model.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        """Return these servers; nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what runs."""
        self.stop()

    def ready(self, chat: ChatConfig, *, field: str = "models.chat") -> ChatConfig:
        """Return the configuration with the endpoint of a server that answers; without `launch`, as it is.

        Args:
            chat: the served model; what runs for another one is stopped first.
            field: its name in the profile, for messages.

        Raises:
            ConfigError: the profile cannot be started.
            ServerError: the server ended, or did not answer in time; the message has the end of its log.
        """
        if not chat.launch.enabled:
            return chat
        running = self._running
        if running is None or _started_as(running.chat) != _started_as(chat) or not _serves(running):
            check_launch(chat, field)
            self.stop()
            running = self._start(chat)
        return chat.model_copy(update={"endpoint": (f"http://127.0.0.1:{running.port}/v1",)})

    def stop(self) -> None:
        """Stop the server that runs, if one does; what it is answering is answered first."""
        if self._running is None:
            return
        self._running.guard.terminate()
        self._running.guard.wait()
        _log.info("stopped vLLM of %s", self._running.chat.model)
        self._running = None

    def _start(self, chat: ChatConfig) -> _Running:
        for attempt in range(1, PORTS + 1):
            running = self._running = _launch(chat, self._logs)
            began = time.monotonic()
            if _wait(running):
                _log.info("vLLM serves %s after %.0f s", chat.model, time.monotonic() - began)
                return running
            error = _what_happened(running)
            self.stop()
            if attempt == PORTS or "address already in use" not in error.lower():
                raise ServerError(error)
        raise AssertionError("the last attempt returns or raises")


def _started_as(chat: ChatConfig) -> tuple[object, ...]:
    """Return what a server was started with: another one of these needs another server."""
    return chat.model, chat.revision, chat.max_pixels, chat.launch


def check_launch(chat: ChatConfig, field: str) -> None:
    """Refuse what could not be started, before anything else is done.

    Raises:
        ConfigError: the program or the model's name is missing, or there is an address, too.
    """
    program = chat.launch.command[0] if chat.launch.command else ""
    if not chat.model:
        raise ConfigError(f"{field}.model is empty: `launch: local` serves the model that it names")
    if chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint {chat.endpoint[0]} and {field}.launch.enabled exclude each other: leave one out"
        )
    if not shutil.which(program):
        raise ConfigError(
            f"{field}.launch.command: {program!r} is no program here; name the vllm of the environment that it is "
            f"installed in (--set {field}.launch.command=/.../bin/vllm), which is never this one"
        )


def _launch(chat: ChatConfig, logs: Path) -> _Running:
    port = free_port()
    command = vllm_command(chat, port)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"vllm-{re.sub(r'[^A-Za-z0-9._-]+', '-', chat.model).strip('-')}.log"
    _log.info("starting vLLM with %s; its log: %s", chat.model, log)
    with log.open("ab") as out:
        out.write(f"$ {shlex.join(command)}\n".encode())
        out.flush()
        begins = out.tell()
        guarded = subprocess.Popen(  # noqa: S603 - the command is the profile's
            [sys.executable, "-IS", str(guard.__file__), str(os.getpid()), str(GRACE_SECONDS), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=vllm_environment(chat),
            start_new_session=True,
        )
    return _Running(chat, port, log, begins, guarded)


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait(running: _Running) -> bool:
    """Wait until it answers; False: it ended, or its time is up."""
    until = time.monotonic() + running.chat.launch.start_timeout_seconds
    while not running.ended and time.monotonic() < until:
        if _serves(running):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _serves(running: _Running) -> bool:
    """Say whether the port answers, and serves the model: another process may have taken it."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        if answer.status == 401:
            return True  # it wants its key; whether the client has it is seen when it asks
        return any(model["id"] == running.chat.model for model in json.loads(answer.read())["data"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()


def _what_happened(running: _Running) -> str:
    if running.ended:
        what = f"ended with exit code {running.guard.returncode} before it answered"
    else:
        what = f"did not answer within {running.chat.launch.start_timeout_seconds:g} s (launch.start_timeout_seconds)"
    return f"vLLM of {running.chat.model} {what}; the end of its log, {running.log}:\n{_tail(running)}"


def _tail(running: _Running) -> str:
    with running.log.open("rb") as file:
        file.seek(max(running.log_begins, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(line[:500] for line in lines[-TAIL_LINES:])
