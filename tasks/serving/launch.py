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
GRACE_SECONDS = (
    DRAIN_SECONDS + 30
)  # time from SIGTERM to SIGKILL; vLLM has drained and freed its GPU by then
CAUSE = re.compile(
    r"(?:[\w. ]*(?:Error|Exception|error): |Value error, )(?!.*(?:root cause above|WorkerProc "
    r"init)).*"
)
"""Cause of vLLM's end in its log; worker processes only report failures of others."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_COLOR": "1",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
OURS = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
)  # variables of the project's own environment, not for vLLM
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    chat: ChatConfig
    port: int
    log: Path
    guard: "subprocess.Popen[bytes]"


class Servers:
    """Servers of a build: at most one runs, and none outlives the build. Each model has a log in a folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ready(self, chat: ChatConfig, *, field: str) -> ChatConfig:
        """Return the configuration with the endpoint of a running server; without `launch`, unchanged.

        Another model's server is stopped first. ``field`` is the model's name in the profile.
        Raises ``ConfigError`` where it cannot be started, ``ServerError`` with the cause in its log
        where it does not answer.
        """
        if not chat.launch.enabled:
            return chat
        running = self._running
        if (
            running is None
            or _started_as(running.chat) != _started_as(chat)
            or not _serves(running)
        ):
            check_launch(chat, field)
            self.stop()
            running = self._running = _launch(chat, self._logs)
            if error := _wait(running):
                self.stop()
                raise ServerError(f"{field}: {error}")
        return chat.model_copy(update={"endpoint": (f"http://127.0.0.1:{running.port}/v1",)})

    def stop(self) -> None:
        """Stop the running server, if any, after its current requests."""
        if self._running is None:
            return
        self._running.guard.terminate()
        self._running.guard.wait()
        _log.info("stopped vLLM of %s", self._running.chat.model)
        self._running = None


def _started_as(chat: ChatConfig) -> tuple[object, ...]:
    """Return the settings that need another server when changed."""
    return chat.model, chat.revision, chat.max_pixels, chat.launch


def check_launch(chat: ChatConfig, field: str) -> None:
    """Raise ``ConfigError`` where the program or the model's name is missing, or an endpoint is set as well."""
    program = chat.launch.command[0] if chat.launch.command else ""
    if not chat.model:
        raise ConfigError(f"{field}.model: required with `launch`")
    if chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint {chat.endpoint[0]} and {field}.launch.enabled exclude each other: "
            f"leave one out"
        )
    if not shutil.which(program):
        raise ConfigError(
            f"{field}.launch.command: {program!r} not found; give the path of vllm in its own "
            f"environment (--set "
            f"{field}.launch.command=/.../bin/vllm)"
        )


def vllm_command(chat: ChatConfig, port: int) -> list[str]:
    """Return the command line of vLLM 0.18 or newer; the profile's own flags come last and win."""
    launch = chat.launch
    shared = launch.tensor_parallel
    copies = launch.data_parallel or max(1, len(gpu_memory()) // shared)
    return [
        *(*launch.command, "serve", chat.model, "--served-model-name", chat.model),
        *("--host", "127.0.0.1", "--port", str(port)),
        *(
            "--max-model-len",
            str(launch.max_model_len),
            "--gpu-memory-utilization",
            str(launch.gpu_memory_utilization),
        ),
        *(("--tensor-parallel-size", str(shared)) if shared > 1 else ()),
        *(("--data-parallel-size", str(copies)) if copies > 1 else ()),
        *("--limit-mm-per-prompt", json.dumps({"image": launch.max_images, "video": 0})),
        # vLLM reserves memory for the processor's largest image.
        *(
            ("--mm-processor-kwargs", json.dumps({"max_pixels": chat.max_pixels}))
            if launch.max_images
            else ()
        ),
        "--enable-prefix-caching",  # prompts share prefixes
        # A checkpoint's generation_config.json may have top_k 1 (Qwen2-VL's), which disables seed
        # and temperature.
        *(
            "--generation-config",
            "vllm",
            "--disable-uvicorn-access-log",
            "--shutdown-timeout",
            str(DRAIN_SECONDS),
        ),
        *(("--revision", chat.revision) if chat.revision and not Path(chat.model).exists() else ()),
        *launch.flags,
    ]


def _launch(chat: ChatConfig, logs: Path) -> _Running:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = vllm_command(chat, port)
    own = Path(shutil.which(command[0]) or "").resolve().parent  # with its own programs (ninja)
    environment = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # GPUs are numbered as by nvidia-smi
        **{name: value for name, value in os.environ.items() if name not in OURS},
        **QUIET,
        **({} if chat.launch.download else OFFLINE),
        "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"vllm-{re.sub(r'[^A-Za-z0-9._-]+', '-', chat.model).strip('-')}.log"
    _log.info("starting vLLM with %s; its log: %s", chat.model, log)
    with log.open("ab") as out:
        out.write(f"$ {shlex.join(command)}\n".encode())
        out.flush()
        guarded = subprocess.Popen(  # noqa: S603 - the command is the profile's
            [
                sys.executable,
                "-IS",
                str(guard.__file__),
                str(os.getpid()),
                str(GRACE_SECONDS),
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return _Running(chat, port, log, guarded)


def _wait(running: _Running) -> str:
    """Wait until the server answers; if it does not, return why, with the cause in its log."""
    began, limit = time.monotonic(), running.chat.launch.start_timeout_seconds
    what = f"did not answer within {limit:g} s (launch.start_timeout_seconds)"
    while time.monotonic() < began + limit:
        if running.guard.poll() is not None:
            what = f"ended with exit code {running.guard.returncode} before it answered"
            break
        if _serves(running):
            _log.info("vLLM serves %s after %.0f s", running.chat.model, time.monotonic() - began)
            return ""
        time.sleep(LOOK_SECONDS)
    log = running.log.read_bytes().rpartition(b"\n$ ")[2].decode(errors="replace")  # of this start
    return f"vLLM of {running.chat.model} {what}: {find_cause(log)} (its whole log: {running.log})"


def find_cause(log: str) -> str:
    """Return the last cause in vLLM's log, without the line's prefix, or else its last line."""
    lines = [line.strip() for line in log.splitlines()[1:] if line.strip()]  # without the command
    causes = [found[0].strip() for line in lines if (found := CAUSE.search(line))]
    return [*lines[-1:], *causes][-1][:500] if lines else "its log is empty"


def _serves(running: _Running) -> bool:
    """Return whether the port answers and serves the model: another process may have taken it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(
            f"http://127.0.0.1:{running.port}/v1/models", timeout=ANSWER_SECONDS
        ) as answer:
            return any(
                model["id"] == running.chat.model for model in json.loads(answer.read())["data"]
            )
    except HTTPError as error:
        return error.code == 401  # it requires a key, checked at the first request
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return False
