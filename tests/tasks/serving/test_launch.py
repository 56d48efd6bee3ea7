"""Launching, with real processes: a stand-in for the faults, and a real vLLM for the rest."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving.launch import Servers, find_cause
from tests.fixtures import stand_in_vllm

ROOT = Path(__file__).parents[3]


@pytest.fixture
def diary(tmp_path):
    return tmp_path / "diary.jsonl"


@pytest.fixture
def servers(tmp_path):
    with Servers(tmp_path / "logs") as running:
        yield running


def config_of(diary, *, model="tiny", fault="", start_seconds=30.0):
    """Return the settings of a stand-in that keeps a diary."""
    faults = ("--fault", fault) if fault else ()
    command = (sys.executable, str(stand_in_vllm.__file__))
    how = {"command": command, "flags": ("--diary", str(diary), *faults)}
    launch = LaunchConfig(enabled=True, start_timeout_seconds=start_seconds, **how)
    return ChatConfig(model=model, launch=launch)


def ready(servers, chat):
    return servers.serve(chat, field="models.chat")


def entries(diary):
    return [json.loads(line) for line in diary.read_text().splitlines()]


def is_there(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def are_gone(entry, within_s=20.0):
    """Wait until a server and its engine have ended."""
    until = time.monotonic() + within_s
    while is_there(entry["pid"]) or is_there(entry["engine"]):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def get(endpoint, path="/models"):
    with urllib.request.urlopen(f"{endpoint}{path}", timeout=10) as answer:
        return json.load(answer)


def test_a_server_is_started_and_ends_with_the_build(tmp_path, diary) -> None:
    with Servers(tmp_path / "logs") as servers:
        chat = ready(servers, config_of(diary))
        [endpoint] = chat.endpoint
        assert endpoint.startswith("http://127.0.0.1:")
        assert get(endpoint)["data"] == [{"id": "tiny"}]
        assert chat.model_copy(update={"endpoint": ()}) == config_of(diary)
    began, ended = entries(diary)
    assert ended == {"ended": "tiny"}
    assert are_gone(began, within_s=0)


def test_a_launched_server_follows_the_profile_offline_and_is_used_again(
    servers, diary, monkeypatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert ready(servers, config_of(diary)) == ready(servers, config_of(diary))
    (began,) = entries(diary)
    arguments, environment = began["arguments"], began["environment"]
    options = dict(pairwise(arguments))
    assert arguments[:2] == ["serve", "tiny"]
    assert arguments[-2:] == ["--diary", str(diary)]
    assert options["--max-model-len"] == "8192"
    assert options["--gpu-memory-utilization"] == "0.9"
    assert options["--generation-config"] == "vllm"
    assert json.loads(options["--limit-mm-per-prompt"]) == {"image": 2, "video": 0}
    assert json.loads(options["--mm-processor-kwargs"]) == {"max_pixels": 1_003_520}
    assert "--revision" not in options
    for name in ("DO_NOT_TRACK", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES"):
        assert environment[name] == "1"
    assert "PYTHONPATH" not in environment
    programs = Path(sys.executable).resolve().parent  # vLLM's own
    assert environment["PATH"].startswith(f"{programs}:")
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # the numbers are nvidia-smi's


def test_one_model_ends_before_the_next_begins(servers, diary) -> None:
    for model in ("one", "two", "one"):
        ready(servers, config_of(diary, model=model))
    servers.stop_server()
    order = [entry.get("began") or f"no more {entry['ended']}" for entry in entries(diary)]
    assert order == ["one", "no more one", "two", "no more two", "one", "no more one"]


def test_a_server_that_crashed_is_started_again_and_its_engine_is_not_left(servers, diary) -> None:
    [endpoint] = ready(servers, config_of(diary)).endpoint
    with pytest.raises(OSError, match=r"closed connection|reset"):
        get(endpoint.removesuffix("/v1"), "/crash")
    assert are_gone(entries(diary)[0])
    [endpoint] = ready(servers, config_of(diary)).endpoint
    assert get(endpoint)["data"] == [{"id": "tiny"}]


def test_a_server_that_dies_is_told_with_its_cause_and_its_log(servers, diary) -> None:
    with pytest.raises(ServerError) as caught:
        ready(servers, config_of(diary, fault="dies"))
    message = str(caught.value)
    cause = r": ValueError: this checkpoint is no checkpoint \("
    assert re.search(rf"^models\.chat: .*\btiny\b.*exit code 3\b.*{cause}", message)
    assert "vllm-tiny.log" in message
    assert len(message.splitlines()) == 1
    assert are_gone(entries(diary)[0])


def test_a_server_that_is_killed_is_told_with_the_signal_and_its_log(servers, diary) -> None:
    with pytest.raises(ServerError) as caught:
        ready(servers, config_of(diary, fault="killed"))
    message = str(caught.value)
    assert "was ended by SIGKILL (probably out of memory) before it answered" in message
    assert ": INFO Loading weights: 3 of 4 (" in message
    assert are_gone(entries(diary)[0])


def test_how_a_server_ended_while_it_was_asked_is_told(servers, diary) -> None:
    assert servers.describe_end() == ""
    ready(servers, config_of(diary))
    assert servers.describe_end() == ""
    [began] = entries(diary)
    os.kill(began["pid"], signal.SIGKILL)
    until = time.monotonic() + 20
    while not servers.describe_end() and time.monotonic() < until:
        time.sleep(0.05)
    assert "tiny was ended by SIGKILL (probably out of memory) while it was asked" in (
        servers.describe_end()
    )


ENGINE = "(EngineCore_DP0 pid=71) ERROR 11-23 10:00:02 [core.py:708] "
TRACEBACK = f"""\
INFO 11-23 10:00:00 [api_server.py:1839] vLLM API server version 0.32.0
{ENGINE}Traceback (most recent call last):
{ENGINE}  File "/v/core.py", line 699, in run_engine_core
{ENGINE}    raise ValueError("
{ENGINE}CAUSE
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/v/bin/vllm", line 8, in <module>
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
PYDANTIC = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  CAUSE
    For further information visit https://errors.pydantic.dev/2.12/v/value_error
"""
USAGE = "usage: vllm serve [model_tag] [options]\nCAUSE\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (TRACEBACK, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."),
        (TRACEBACK, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has 23.5 GiB"),
        (USAGE, "error: argument --max-model-len: invalid int value: 'x'"),
        (PYDANTIC, "Value error, User-specified max_model_len (8192) is greater than the derived max_model_len (4096) [type=value_error]"),
        ("INFO a\nINFO b\nINFO c\nINFO d\n", "INFO b | INFO c | INFO d"),
        ("CAUSE\n", "bash: vllm: cannot execute: required file not found"),
        ("", "its log is empty"),
    ],
    ids=["cache", "memory", "value", "setting", "lines", "program", "nothing"],
)  # fmt: skip
def test_of_a_long_log_the_line_that_matters_is_found(log, cause) -> None:
    text = log.replace("CAUSE", cause)
    assert find_cause(f"$ vllm serve x\n{text}") == cause


@pytest.mark.parametrize("fault", ["never", "other"])
def test_a_server_that_does_not_answer_in_time_is_stopped(servers, diary, fault) -> None:
    with pytest.raises(ServerError, match=r"tiny .*9\.5 s .*launch\.start_timeout_seconds"):
        ready(servers, config_of(diary, fault=fault, start_seconds=9.5))
    assert are_gone(entries(diary)[0], within_s=0)


def test_a_profile_that_cannot_be_started_names_the_field(servers, diary) -> None:
    absent = LaunchConfig(enabled=True, command=("vllm-that-is-not-there",))
    for changes, message in (
        ({"model": ""}, "language.model"),
        ({"endpoint": ("http://h/v1",)}, "language.endpoint http://h/v1 .*language.launch.enabled"),
        ({"launch": absent}, "language.launch.command: 'vllm-that-is-not"),
    ):
        with pytest.raises(ConfigError, match=message):
            servers.serve(config_of(diary).model_copy(update=changes), field="language")
    assert not diary.exists()


BUILD = """
import signal, sys, time
from pathlib import Path
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.launch import Servers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it from the start
with Servers(Path(sys.argv[1])) as servers:
    print(*servers.serve(ChatConfig.model_validate_json(sys.argv[2]), field="models.chat").endpoint, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("kill", "how"),
    [
        pytest.param(os.kill, signal.SIGKILL, marks=pytest.mark.slow, id="killed"),
        pytest.param(os.kill, signal.SIGINT, marks=pytest.mark.slow, id="interrupted"),
        pytest.param(os.kill, signal.SIGTERM, marks=pytest.mark.slow, id="terminated"),
        pytest.param(os.killpg, signal.SIGKILL, id="killed with its group"),
    ],
)
def test_a_build_that_is_ended_leaves_no_server(tmp_path, diary, kill, how) -> None:
    command = [sys.executable, "-c", BUILD, tmp_path / "logs", config_of(diary).model_dump_json()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own_group = kill is os.killpg
    build = subprocess.Popen(command, cwd=ROOT, start_new_session=own_group, **pipes)
    assert build.stdout.readline().startswith("http://127.0.0.1:")
    kill(build.pid, how)
    build.communicate()
    assert are_gone(entries(diary)[0])
