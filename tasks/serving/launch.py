"""Start vLLM on this machine for stages that need it: `launch.enabled` in a profile.

Returns ``ChatConfig`` with the endpoint filled in. One server at a time, since they share one GPU:
the next model's starts when the last one's has ended. vLLM runs in its own environment or
container, behind a guard (``guard.py``) that ends it with the build, also when that is killed.
Needs only the standard library here.
"""

import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Self
from urllib.error import HTTPError

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving import guard
from pairwright.tasks.serving.gpu_memory import gpu_memory

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 5
DRAIN_SECONDS = 15  # time in which vLLM finishes its requests at the end
GRACE_SECONDS = DRAIN_SECONDS + 30
"""Time from SIGTERM to SIGKILL; vLLM has finished its requests and freed its GPU by then."""
CAUSE = re.compile(
    r"(?:[\w. ]*(?:Error|Exception|error): |Value error, )(?!.*(?:root cause above|WorkerProc "
    r"init)).*"
)
"""Cause of vLLM's end in its log; worker processes only report failures of others."""
LAST_LINES = 3  # of a log without a known cause
QUIET = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_COLOR": "1",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of the project's own environment, not for vLLM."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    chat: ChatConfig
    port: int
    log: Path
    guard: "subprocess.Popen[bytes]"


class Servers:
    """Servers of a build: at most one runs, and none outlives the build.

    Each model has a log in a folder.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_server()

    def serve(self, chat: ChatConfig, *, field: str) -> ChatConfig:
        """Return the configuration with a running server's endpoint; without `launch`, unchanged.

        Another model's server is stopped first. ``field`` is the model's name in the profile.
        Raises ``ConfigError`` where it cannot be started, ``ServerError`` with the cause in its log
        where it does not answer.
        """
        if not chat.launch.enabled:
            return chat
        running = self._running
        if running is None or not _is_usable(running, chat):
            check_launch(chat, field)
            self.stop_server()
            running = self._running = _launch(chat, self._logs)
            error = _wait(running)
            if error:
                self.stop_server()
                raise ServerError(f"{field}: {error}")
        return chat.model_copy(update={"endpoint": (f"http://127.0.0.1:{running.port}/v1",)})

    def describe_end(self) -> str:
        """Return how the server ended, which nobody stopped; empty: it runs, or there is none."""
        running = self._running
        if running is None or running.guard.poll() is None:
            return ""
        how = say_exit(running.guard.returncode)
        return _describe_failure(running, f"{how} while it was asked")

    def stop_server(self) -> None:
        """Stop the running server, if any, after its current requests."""
        if self._running is None:
            return
        self._running.guard.terminate()
        self._running.guard.wait()
        _log.info("stopped vLLM of %s", self._running.chat.model)
        self._running = None


def _is_usable(running: _Running, chat: ChatConfig) -> bool:
    """Return whether the server was started with these settings, and still answers."""
    return _started_as(running.chat) == _started_as(chat) and _serves(running)


def _started_as(chat: ChatConfig) -> tuple[object, ...]:
    """Return the settings that need another server when changed."""
    return chat.model, chat.revision, chat.max_pixels, chat.launch


def check_launch(chat: ChatConfig, field: str) -> None:
    """Raise ``ConfigError`` without a program or a model's name, or with an endpoint as well."""
    program = chat.launch.command[0] if chat.launch.command else ""
    if not chat.model:
        raise ConfigError(f"{field}.model: required with `launch`")
    if chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint {chat.endpoint[0]} and {field}.launch.enabled exclude each other: "
            "leave one out"
        )
    if not shutil.which(program):
        raise ConfigError(
            f"{field}.launch.command: {program!r} not found; give the path of vllm in its own "
            f"environment (--set {field}.launch.command=/.../bin/vllm)"
        )


def vllm_command(chat: ChatConfig, port: int) -> list[str]:
    """Return the command line of vLLM 0.18 or newer; the profile's own flags come last and win."""
    launch = chat.launch
    shards = launch.tensor_parallel
    copies = launch.data_parallel or max(1, len(gpu_memory()) // shards)
    command = [*launch.command, "serve", chat.model, "--served-model-name", chat.model]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", str(launch.max_model_len)]
    command += ["--gpu-memory-utilization", str(launch.gpu_memory_utilization)]
    if shards > 1:
        command += ["--tensor-parallel-size", str(shards)]
    if copies > 1:
        command += ["--data-parallel-size", str(copies)]
    command += ["--limit-mm-per-prompt", json.dumps({"image": launch.max_images, "video": 0})]
    if launch.max_images:
        # vLLM reserves memory for the processor's largest image.
        command += ["--mm-processor-kwargs", json.dumps({"max_pixels": chat.max_pixels})]
    command.append("--enable-prefix-caching")  # prompts share prefixes
    # A checkpoint's generation_config.json may have top_k 1 (Qwen2-VL's), which disables seed
    # and temperature.
    command += ["--generation-config", "vllm"]
    if launch.reasoning_parser:
        command += ["--reasoning-parser", launch.reasoning_parser]
    command.append("--disable-uvicorn-access-log")
    command += ["--shutdown-timeout", str(DRAIN_SECONDS)]
    if chat.revision and not Path(chat.model).exists():
        command += ["--revision", chat.revision]
    return [*command, *launch.flags]


def _launch(chat: ChatConfig, logs: Path) -> _Running:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = vllm_command(chat, port)
    guarded = [sys.executable, "-IS", str(guard.__file__), str(os.getpid()), str(GRACE_SECONDS)]
    logs.mkdir(parents=True, exist_ok=True)
    model_name = re.sub(r"[^A-Za-z0-9._-]+", "-", chat.model).strip("-")
    log = logs / f"vllm-{model_name}.log"
    _log.info("starting vLLM with %s; its log: %s", chat.model, log)
    with log.open("ab") as out:
        out.write(f"$ {shlex.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(  # noqa: S603 - the command is the profile's
            [*guarded, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_make_environment(command[0], download=chat.launch.download),
            start_new_session=True,
        )
    return _Running(chat, port, log, process)


def _make_environment(program: str, *, download: bool) -> dict[str, str]:
    """Return the variables of vLLM's process."""
    # The folder of the program has its other programs, too (ninja).
    folder = Path(shutil.which(program) or "").resolve().parent
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # GPUs are numbered as by nvidia-smi
    environment |= {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= QUIET
    if not download:
        environment |= OFFLINE
    environment["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return environment


def _wait(running: _Running) -> str:
    """Wait until the server answers; if it does not, return why, with the cause in its log."""
    began = time.monotonic()
    limit = running.chat.launch.start_timeout_seconds
    problem = f"did not answer within {limit:g} s (launch.start_timeout_seconds)"
    while time.monotonic() < began + limit:
        if running.guard.poll() is not None:
            problem = f"{say_exit(running.guard.returncode)} before it answered"
            break
        if _serves(running):
            _log.info("vLLM serves %s after %.0f s", running.chat.model, time.monotonic() - began)
            return ""
        time.sleep(LOOK_SECONDS)
    return _describe_failure(running, problem)


def _describe_failure(running: _Running, problem: str) -> str:
    """Return what went wrong with a server, with the cause in the log of this start."""
    log = running.log.read_bytes().rpartition(b"\n$ ")[2].decode(errors="replace")
    cause = find_cause(log)
    return f"vLLM of {running.chat.model} {problem}: {cause} (its whole log: {running.log})"


def say_exit(code: int) -> str:
    """Return in words how a process ended that gave an exit code, or 128 and a signal's number."""
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"ended with exit code {code}"
    advice = " (probably out of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{advice}"


def find_cause(log: str) -> str:
    """Return the last cause in vLLM's log, without the line's prefix, or else its last lines."""
    lines = [line.strip() for line in log.splitlines()[1:]]  # without the command
    lines = [line for line in lines if line]
    if not lines:
        return "its log is empty"
    for line in reversed(lines):
        cause = CAUSE.search(line)
        if cause:
            return cause[0].strip()[:500]
    return " | ".join(lines[-LAST_LINES:])[-500:]


def _serves(running: _Running) -> bool:
    """Return whether the port answers and serves the model: another process may have taken it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://127.0.0.1:{running.port}/v1/models"
    try:
        with opener.open(url, timeout=ANSWER_SECONDS) as answer:
            models = json.loads(answer.read())["data"]
        return any(model["id"] == running.chat.model for model in models)
    except HTTPError as error:
        return error.code == 401  # it requires a key, checked at the first request
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return False
