"""What a profile says of served models: which one answers, where it is, and how it is asked."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pairwright.schemas.section import Names, Positive, Seconds, Section, Share

Structured = Literal["auto", "vllm", "json", "none"]


def _no_key_itself(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*|block:[\w.-]+", value):
        return value
    raise ValueError("must be the name of an environment variable, in capitals, or block:NAME; never the key itself")


KeyName = Annotated[str, BeforeValidator(_no_key_itself)]


class LaunchConfig(Section):
    """vLLM as the build starts it, in an environment or container of its own."""

    enabled: bool = False
    """Whether the build starts vLLM on this machine when a stage needs it, and stops it again."""
    command: Names = ("vllm",)
    """The vllm executable, or a container's command up to and including "vllm" that shares the machine's network and
    stops with it (`docker run --rm --init --network host ...`)."""
    max_model_len: Positive = 8192
    """Tokens of a prompt, its images and its answer together."""
    max_images: Annotated[int, Field(ge=0, le=16)] = 2
    """Maximum images of a prompt; 0 for models that see none."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the GPU's memory that vLLM may take."""
    flags: tuple[str, ...] = ()
    """Further arguments of its command line ("--quantization", "awq")."""
    download: bool = False
    """Whether it may fetch weights that are not on this machine from the Hub."""
    start_timeout_seconds: Seconds = 1800.0
    """Longest wait until it has loaded, and perhaps fetched, its weights."""


class ChatConfig(Section):
    """Served model: where it is, and how it is asked."""

    uncounted: ClassVar[frozenset[str]] = frozenset(
        {"endpoint", "key", "max_concurrency", "timeout_seconds", "max_attempts", "patience_seconds", "launch"}
    )
    endpoint: Names = ()
    """Addresses of OpenAI-compatible servers (`http://127.0.0.1:8000/v1`); several of them share the load."""
    model: str = ""
    """The model's name on the server; empty: the only one that it serves."""
    revision: str = ""
    """The model's commit, for the record: servers do not tell it."""
    key: KeyName = "PAIRWRIGHT_API_KEY"
    """Environment variable that holds the server's key, or `block:NAME` for a Prefect Secret block; never the key."""
    max_pixels: Annotated[int, Field(ge=784)] = 1_003_520
    """Images of more pixels are sent smaller (1,003,520 are 1,280 tokens of Qwen2-VL)."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Sampling temperature; at 0, a refused answer comes again."""
    top_p: Annotated[Share, Field(gt=0)] = 0.9
    """Nucleus sampling: tokens are drawn from the likeliest that together have this probability."""
    structured_output: Structured = "auto"
    """How the server is held to a grammar: vLLM's `structured_outputs`, a JSON schema in `response_format`, or not at
    all; auto: the first that works when a build starts."""
    max_concurrency: Annotated[int, Field(ge=1, le=4096)] = 256
    """Maximum concurrent requests of one worker; fewer while a server is full or late."""
    timeout_seconds: Seconds = 300.0
    """Longest wait for one answer."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 6
    """Maximum tries of a request before its row fails, for faults that may pass (busy, time-out, cut off)."""
    patience_seconds: Seconds = 120.0
    """How long no server may answer before the shard fails; its rows stay owed."""
    launch: LaunchConfig = LaunchConfig()
