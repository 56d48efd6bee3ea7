"""Look at the servers of a profile, and at Prefect's, without asking a model anything; a few seconds for each."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError, PairwrightError
from pairwright.schemas.health import Check, missing, ok, warning
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.connection import Connection, check_address, is_here
from pairwright.tasks.serving.faults import FaultError
from pairwright.tasks.serving.keys import load_key
from pairwright.tasks.serving.launch import check_launch
from pairwright.tasks.serving.loop import run
from pairwright.tasks.serving.pace import Pace

WAIT_SECONDS = 3.0
SKEW_SECONDS = 60.0
PROGRAM_SECONDS = 20.0
"""vLLM imports much before it says its version."""


def check_served(chat: ChatConfig, field: str) -> Iterator[Check]:
    """Yield whether each server of a model answers and has it, or whether vLLM can be started for it."""
    if chat.launch.enabled:
        yield _check_program(chat, field)
        return
    if not chat.endpoint:
        said, mend = "no server is named", f"--set {field}.endpoint=http://HOST:PORT/v1"
        yield missing("served", field, said, mend=f"{mend}, or --until mining")
        return
    for url in chat.endpoint:
        yield from _check_endpoint(chat, url, field)


def _check_program(chat: ChatConfig, field: str) -> Check:
    try:
        check_launch(chat, field)
    except ConfigError as error:
        return missing("served", field, str(error), mend=f"--set {field}.launch.command=/.../bin/vllm")
    program, *more = chat.launch.command
    said = f"the build starts {chat.model} with {shutil.which(program)}"
    if more:
        return ok("served", field, said)
    try:
        words = [program, "--version"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return warning("served", field, f"{said}, which does not say its version ({type(error).__name__})")
    if done.returncode:
        return warning("served", field, f"{said}, which ends with {done.returncode} when asked for its version")
    return ok("served", field, f"{said} ({done.stdout.strip().splitlines()[-1] if done.stdout.strip() else 'vLLM'})")


def _check_endpoint(chat: ChatConfig, url: str, field: str) -> Iterator[Check]:
    name = f"{field} at {url}"
    try:
        models = run(_models(chat, url, field))
    except FaultError as fault:
        mend = f"start the server, or --set {field}.endpoint=http://HOST:PORT/v1 (addresses often end in /v1)"
        yield missing("served", name, str(fault), mend=mend)
        return
    except PairwrightError as error:
        yield missing("served", name, str(error))
        return
    listed = ", ".join(models[:5])
    if chat.model and chat.model not in models:
        yield missing("served", name, f"it has no {chat.model}", mend=f"--set {field}.model=NAME, of: {listed}")
    elif not chat.model and len(models) != 1:
        yield missing("served", name, f"it has {len(models)} models", mend=f"--set {field}.model=NAME, of: {listed}")
    else:
        said, headers = _get(f"{url.rstrip('/').removesuffix('/v1')}/version")
        about = f", version {said['version']}" if isinstance(said, dict) and "version" in said else ""
        yield ok("served", name, f"{chat.model or models[0]}{about}")
        yield from _check_date(headers, url)


async def _models(chat: ChatConfig, url: str, field: str) -> tuple[str, ...]:
    check_address(url)
    key = load_key(chat.key, field=field)
    connection = Connection(url, key, timeout_s=WAIT_SECONDS, pace=Pace(connect_s=WAIT_SECONDS))
    try:
        return await connection.models()
    finally:
        await connection.close()


def _check_date(headers: Mapping[str, str], url: str) -> Iterator[Check]:
    """Yield a warning where a server's clock is another one."""
    try:
        skew = parsedate_to_datetime(headers["date"]).timestamp() - time.time()
    except (KeyError, ValueError, TypeError):
        return
    if abs(skew) > SKEW_SECONDS:
        yield warning("machine", "clock", f"{url} is {skew:+,.0f} s from this machine", mend="timedatectl set-ntp true")


def check_prefect(environment: Mapping[str, str]) -> Iterator[Check]:
    """Yield whether Prefect's server answers, where one is configured, in a version that fits."""
    url = environment.get("PREFECT_API_URL", "")
    if not url:
        yield ok("Prefect", "server", "none is configured (PREFECT_API_URL): builds run without one")
        return
    try:
        check_address(url)
    except ConfigError:
        yield missing("Prefect", "server", "PREFECT_API_URL is no address", mend="unset PREFECT_API_URL")
        return
    here = version("prefect")
    said, _ = _get(f"{url.rstrip('/')}/admin/version")
    if not isinstance(said, str):
        mend = "prefect server start --host 127.0.0.1, or unset PREFECT_API_URL"
        yield missing("Prefect", "server", f"{url}: no Prefect server answers", mend=mend)
    elif said.split(".")[:2] != here.split(".")[:2]:
        mend = f"python -m pip install -c constraints.txt prefect=={said}, or start a server of {here}"
        yield warning("Prefect", "server", f"{url}: version {said}, here is {here}", mend=mend)
    else:
        yield ok("Prefect", "server", f"{url}: version {said}")
    yield from _check_telemetry(environment)


def _check_telemetry(environment: Mapping[str, str]) -> Iterator[Check]:
    off = environment.get("PREFECT_SERVER_ANALYTICS_ENABLED", "").lower() in ("false", "0", "no", "off")
    if off or environment.get("DO_NOT_TRACK", "").lower() in ("1", "true", "yes", "on"):
        yield ok("Prefect", "telemetry", "off, as far as this environment says")
    else:
        mend = "export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1, where the server is started, too"
        yield warning("Prefect", "telemetry", "not switched off in this environment", mend=mend)


def _get(url: str) -> tuple[Any, dict[str, str]]:
    """Return a JSON answer and its headers; ``None``: there is none. Servers of this machine are asked directly."""
    handlers = [urllib.request.ProxyHandler({})] if is_here(urlsplit(url).hostname or "") else []
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(url, timeout=WAIT_SECONDS) as answer:
            return json.loads(answer.read(65_536)), {name.lower(): text for name, text in answer.headers.items()}
    except (URLError, OSError, ValueError):
        return None, {}
