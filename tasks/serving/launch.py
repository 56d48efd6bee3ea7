"""Start vLLM on this machine for the stages that need it: `launch.enabled` in a profile.

Reads ``ChatConfig``, gives it back with the endpoint filled in. One server at a time: the next model's server starts
when the last one's has ended, since they share one GPU. vLLM runs in an environment or a container of its own, behind
a guard (``guard.py``) that ends it with the build, also when that is killed. Needs only the standard library here.
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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Self
from urllib.error import HTTPError

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving import guard
from pairwright.tasks.serving.memory import divide, gpu_memory, read_needs

LOOK_SECONDS = 0.1
ANSWER_SECONDS = 5
DRAIN_SECONDS = 15
"""How long vLLM goes on answering what it was asked when it is told to end."""
GRACE_SECONDS = DRAIN_SECONDS + 30
"""How long after it is told to end it is killed; it has drained by then, and let go of its GPU."""
VERSION_SECONDS = 120
"""vLLM imports PyTorch before it says its version."""
OLDEST = (0, 11)
"""Older ones take no notice of ``structured_outputs``, and answer in any form."""
LIMITS_OF_TEXT = (0, 12)
"""Older ones end at ``--limit-mm-per-prompt`` where a model sees no images."""
DRAINS = (0, 18)
"""Older ones do not know ``--shutdown-timeout``."""
NEWEST = (99, 0)
SOURCE = re.compile(r"^(?:\([^)]*\) ?)?(?:(?:ERROR|CRITICAL|WARNING|INFO) [\d :-]+\[[^\]]*\] ?)?")
"""What stands before a line of vLLM's log: "(EngineCore_0 pid=7) ERROR 11-23 12:00:00 [core.py:700]"."""
MATTERS = (
    re.compile(
        "No available memory for the cache|CUDA out of memory|KV cache is needed|unrecognized arg|^Value error, "
    ),
    re.compile(r"^(?:[\w.]*(?:Error|Exception)|[\w. ]+: error): (?!.*root cause above|WorkerProc init)"),
    re.compile(r"\S"),
)
"""Lines that say why vLLM ended, those that say most first; its processes say of each other only that one failed."""
QUIET = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_COLOR": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""What speaks of the project's own environment, not of vLLM's."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    chat: ChatConfig
    port: int
    log: Path
    guard: "subprocess.Popen[bytes]"


class Servers:
    """Servers of a build: at most one runs, and none is left when the build ends. Each model has a log in a folder."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ready(self, chat: ChatConfig, *, field: str) -> ChatConfig:
        """Return the configuration with the endpoint of a server that answers; without `launch`, as it is.

        What runs for another model is stopped first. ``field`` is the model's name in the profile. Raises
        ``ConfigError`` where it cannot be started, ``ServerError`` with what its log says where it does not answer.
        """
        if not chat.launch.enabled:
            return chat
        running = self._running
        if running is None or _started_as(running.chat) != _started_as(chat) or not _serves(running):
            check_launch(chat, field)
            version = ask_version(chat.launch.command)
            if version < OLDEST:
                raise ConfigError(
                    f"{field}.launch.command: this is vLLM {'.'.join(map(str, version))}, which cannot hold answers to "
                    f"a form as it is asked to; install {'.'.join(map(str, OLDEST))} or newer"
                )
            self.stop()
            running = self._running = _launch(chat, self._logs, version)
            if error := _wait(running):
                self.stop()
                raise ServerError(f"{field}: {error}")
        return chat.model_copy(update={"endpoint": (f"http://127.0.0.1:{running.port}/v1",)})

    def stop(self) -> None:
        """Stop the server that runs, if one does; what it is answering is answered first."""
        if self._running is None:
            return
        self._running.guard.terminate()
        self._running.guard.wait()
        _log.info("stopped vLLM of %s", self._running.chat.model)
        self._running = None


def _started_as(chat: ChatConfig) -> tuple[object, ...]:
    """Return what a server was started with: another one of these needs another server."""
    return chat.model, chat.revision, chat.max_pixels, chat.launch


def check_launch(chat: ChatConfig, field: str) -> None:
    """Raise ``ConfigError`` where the program or the model's name is missing, or there is an address, too."""
    program = chat.launch.command[0] if chat.launch.command else ""
    if not chat.model:
        raise ConfigError(f"{field}.model is empty: `launch` serves the model that it names")
    if chat.endpoint:
        raise ConfigError(
            f"{field}.endpoint {chat.endpoint[0]} and {field}.launch.enabled exclude each other: leave one out"
        )
    if not shutil.which(program):
        raise ConfigError(
            f"{field}.launch.command: {program!r} is no program here; name the vllm of the environment that it is "
            f"installed in (--set {field}.launch.command=/.../bin/vllm), which is never this one"
        )


@cache
def ask_version(command: tuple[str, ...]) -> tuple[int, int]:
    """Return the first two numbers of vLLM's version; one that says none is taken for the newest."""
    try:
        said = subprocess.run(  # noqa: S603 - the command is the profile's
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            env=_environment(command),
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        said = str(error)
    if found := re.search(r"^v?(\d+)\.(\d+)", said, re.MULTILINE):
        return int(found[1]), int(found[2])
    _log.warning("%s --version says no version: taken for a new one", shlex.join(command))
    return NEWEST


def _environment(command: Sequence[str]) -> dict[str, str]:
    """Return the variables for vLLM: its own programs (``ninja``) are found first, GPUs numbered as by nvidia-smi."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    own = Path(shutil.which(command[0]) or "").resolve().parent
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **kept,
        **QUIET,
        "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def vllm_command(chat: ChatConfig, port: int, version: tuple[int, int] = NEWEST) -> list[str]:
    """Return vLLM's command line; the profile's own flags come last, where they win."""
    launch = chat.launch
    limits = launch.max_images > 0 or version >= LIMITS_OF_TEXT
    return [
        *(*launch.command, "serve", chat.model, "--served-model-name", chat.model),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(launch.max_model_len), "--gpu-memory-utilization", str(launch.gpu_memory_utilization)),
        *_share_gpus(chat),
        *(("--limit-mm-per-prompt", json.dumps({"image": launch.max_images, "video": 0})) if limits else ()),
        # An image processor's own limit may be far above ours, and vLLM sets memory aside for the largest image.
        *(("--mm-processor-kwargs", json.dumps({"max_pixels": chat.max_pixels})) if launch.max_images else ()),
        "--enable-prefix-caching",  # prompts begin alike
        # A checkpoint's generation_config.json may say top_k 1 (Qwen2-VL's does): no seed, no temperature counts then.
        *("--generation-config", "vllm", "--disable-uvicorn-access-log"),
        *(("--shutdown-timeout", str(DRAIN_SECONDS)) if version >= DRAINS else ()),
        *(("--revision", chat.revision) if chat.revision and not Path(chat.model).exists() else ()),
        *launch.flags,
    ]


def _share_gpus(chat: ChatConfig) -> tuple[str, ...]:
    """Return the flags that divide a model among GPUs; on one, or where none is found, there is nothing to say."""
    try:
        needs = read_needs(chat)
    except ValueError:
        needs = None
    shared, copies = divide(chat.launch, needs, gpu_memory())
    return (
        *(("--tensor-parallel-size", str(shared)) if shared > 1 else ()),
        *(("--data-parallel-size", str(copies)) if copies > 1 else ()),
    )


def _launch(chat: ChatConfig, logs: Path, version: tuple[int, int]) -> _Running:
    port = free_port()
    command = vllm_command(chat, port, version)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"vllm-{re.sub(r'[^A-Za-z0-9._-]+', '-', chat.model).strip('-')}.log"
    _log.info("starting vLLM with %s; its log: %s", chat.model, log)
    with log.open("ab") as out:
        out.write(f"$ {shlex.join(command)}\n".encode())
        out.flush()
        guarded = subprocess.Popen(  # noqa: S603 - the command is the profile's
            [sys.executable, "-IS", str(guard.__file__), str(os.getpid()), str(GRACE_SECONDS), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**_environment(command), **({} if chat.launch.download else OFFLINE)},
            start_new_session=True,
        )
    return _Running(chat, port, log, guarded)


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait(running: _Running) -> str:
    """Wait until it answers; return why it does not, with the line of its log that says so."""
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
    """Return the last line of those that say most of why vLLM ended: an error, and not the traceback above it."""
    lines = [SOURCE.sub("", line).strip() for line in log.splitlines()[1:]]  # the first is the command
    told = next((told for pattern in MATTERS if (told := [line for line in lines if pattern.search(line)])), [""])
    return told[-1][:500] or "its log is empty"


def _serves(running: _Running) -> bool:
    """Say whether the port answers, and serves the model: another process may have taken it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{running.port}/v1/models", timeout=ANSWER_SECONDS) as answer:
            return any(model["id"] == running.chat.model for model in json.loads(answer.read())["data"])
    except HTTPError as error:
        return error.code == 401  # it wants its key; whether the client has it is seen when it asks
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return False
