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
FIELD = "models.chat"


@pytest.fixture
def diary(tmp_path):
    return tmp_path / "diary.jsonl"


@pytest.fixture
def servers(tmp_path):
    with Servers(tmp_path / "logs") as running:
        yield running


def local(
    diary: Path, *, model: str = "tiny", fault: str = "", start_seconds: float = 30
) -> ChatConfig:
    flags = ("--diary", str(diary), *(("--fault", fault) if fault else ()))
    command = (sys.executable, str(stand_in_vllm.__file__))
    return ChatConfig(
        model=model,
        launch=LaunchConfig(
            enabled=True, command=command, flags=flags, start_timeout_seconds=start_seconds
        ),
    )


def entries(diary: Path) -> list[dict]:
    return [json.loads(line) for line in diary.read_text().splitlines()]


def is_there(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def are_gone(entry: dict, within_s: float = 20) -> bool:
    """Wait until a server and its engine have ended."""
    until = time.monotonic() + within_s
    while is_there(entry["pid"]) or is_there(entry["engine"]):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def get(endpoint: str, path: str = "/models") -> dict:
    with urllib.request.urlopen(f"{endpoint}{path}", timeout=10) as answer:
        return json.load(answer)


def test_a_server_is_started_and_ends_with_the_build(tmp_path, diary) -> None:
    with Servers(tmp_path / "logs") as servers:
        chat = servers.ready(local(diary), field=FIELD)
        [endpoint] = chat.endpoint
        assert endpoint.startswith("http://127.0.0.1:")
        assert get(endpoint)["data"] == [{"id": "tiny"}]
        assert chat.model_copy(update={"endpoint": ()}) == local(diary)
    began, ended = entries(diary)
    assert ended == {"ended": "tiny"}
    assert are_gone(began, within_s=0)


def test_launched_server_follows_profile_offline(servers, diary, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert servers.ready(local(diary), field=FIELD) == servers.ready(local(diary), field=FIELD)
    (began,) = entries(diary)  # it is used again
    arguments, environment = began["arguments"], began["environment"]
    said = dict(pairwise(arguments))
    assert arguments[:2] == ["serve", "tiny"]
    plain = {
        "--max-model-len": "8192",
        "--gpu-memory-utilization": "0.9",
        "--generation-config": "vllm",
    }
    assert plain.items() <= said.items()
    assert json.loads(said["--limit-mm-per-prompt"]) == {"image": 2, "video": 0}
    assert json.loads(said["--mm-processor-kwargs"]) == {"max_pixels": 1_003_520}
    assert "--revision" not in said
    assert arguments[-2:] == ["--diary", str(diary)]
    quiet = ("DO_NOT_TRACK", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES")
    assert [environment[name] for name in quiet] == ["1", "1", "1", "1"]
    assert "PYTHONPATH" not in environment
    assert environment["PATH"].startswith(
        f"{Path(sys.executable).resolve().parent}:"
    )  # vLLM's own programs
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # the numbers are nvidia-smi's


def test_one_model_ends_before_the_next_begins(servers, diary) -> None:
    for model in ("one", "two", "one"):
        servers.ready(local(diary, model=model), field=FIELD)
    servers.stop()
    order = [
        next((key, entry[key]) for key in ("began", "ended") if key in entry)
        for entry in entries(diary)
    ]
    assert order == [
        (what, model) for model in ("one", "two", "one") for what in ("began", "ended")
    ]


def test_a_server_that_crashed_is_started_again_and_its_engine_is_not_left(servers, diary) -> None:
    [endpoint] = servers.ready(local(diary), field=FIELD).endpoint
    with pytest.raises(OSError, match=r"closed connection|reset"):
        get(endpoint.removesuffix("/v1"), "/crash")
    assert are_gone(entries(diary)[0])
    assert get(servers.ready(local(diary), field=FIELD).endpoint[0])["data"] == [{"id": "tiny"}]


def test_a_server_that_dies_shows_why_and_where_its_log_is(servers, diary) -> None:
    with pytest.raises(ServerError) as caught:
        servers.ready(local(diary, fault="dies"), field=FIELD)
    said = r"^models\.chat: .*\btiny\b.*exit code 3\b.*: ValueError: this checkpoint is no checkpoint \("
    assert re.search(said, str(caught.value))
    assert "vllm-tiny.log" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert are_gone(entries(diary)[0])


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
  Value error, User-specified max_model_len (8192) is greater than the derived max_model_len (4096) [type=value_error]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            TRACEBACK,
            (
                "ValueError: No available memory for the cache blocks. Try increasing "
                "`gpu_memory_utilization`."
            ),
        ),
        (
            TRACEBACK,
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 "
                "has "
                "23.5 GiB"
            ),
        ),
        (TRACEBACK, "OSError: no file named model.safetensors found in directory /models/x"),
        (
            "usage: vllm serve [model_tag] [options]\nCAUSE\n",
            "error: unrecognized arguments: --flag",
        ),
        ("usage: vllm serve\nCAUSE\n", "error: argument --max-model-len: invalid int value: 'x'"),
        (PYDANTIC, PYDANTIC.splitlines()[1].strip()),
        ("CAUSE\n", "bash: vllm: cannot execute: required file not found"),
        ("CAUSE", "its log is empty"),
    ],
)
def test_of_a_long_log_the_line_that_matters_is_found(log, cause) -> None:
    text = log.replace("CAUSE", "" if cause == "its log is empty" else cause)
    assert find_cause(f"$ vllm serve x\n{text}") == cause


@pytest.mark.parametrize("fault", ["never", "other"])
def test_a_server_that_does_not_answer_in_time_is_stopped(servers, diary, fault) -> None:
    with pytest.raises(ServerError, match=r"tiny .*1\.5 s .*launch\.start_timeout_seconds"):
        servers.ready(local(diary, fault=fault, start_seconds=1.5), field=FIELD)
    assert are_gone(entries(diary)[0], within_s=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "language.model"),
        ({"endpoint": ("http://h/v1",)}, "language.endpoint http://h/v1 .*language.launch.enabled"),
        (
            {"launch": LaunchConfig(enabled=True, command=("vllm-that-is-not-there",))},
            "language.launch.command: 'vllm-that-is-not",
        ),
    ],
)
def test_a_profile_that_cannot_be_started_names_the_field(servers, diary, changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        servers.ready(local(diary).model_copy(update=changes), field="language")
    assert not diary.exists()


BUILD = """
import signal, sys, time
from pathlib import Path
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.launch import Servers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it from the start
with Servers(Path(sys.argv[1])) as servers:
    print(*servers.ready(ChatConfig.model_validate_json(sys.argv[2]), field="models.chat").endpoint, flush=True)
    time.sleep(600)
"""


SLOW = [
    pytest.param(os.kill, how, marks=pytest.mark.slow)
    for how in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
]


@pytest.mark.parametrize(("kill", "how"), [*SLOW, (os.killpg, signal.SIGKILL)])
def test_a_build_that_is_killed_leaves_no_server(tmp_path, diary, kill, how) -> None:
    build = start_build(tmp_path, local(diary), start_new_session=kill is os.killpg)
    assert build.stdout.readline().startswith("http://127.0.0.1:")
    kill(build.pid, how)
    build.communicate()
    assert are_gone(entries(diary)[0])


def start_build(folder: Path, chat: ChatConfig, **more) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BUILD, str(folder / "logs"), chat.model_dump_json()]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )
