"""Word the command line and the environment that start vLLM from a profile."""

import json
import os
from pathlib import Path

from pairwright.schemas.served import ChatConfig

DRAIN_SECONDS = 15
"""How long vLLM goes on answering what it was asked when it is told to end."""
QUIET = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""What speaks of the project's own environment, not of vLLM's."""


def vllm_command(chat: ChatConfig, port: int) -> list[str]:
    """Return vLLM's command line; the profile's own flags come last, where they win."""
    launch = chat.launch
    return [
        *(*launch.command, "serve", chat.model, "--served-model-name", chat.model),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(launch.max_model_len), "--gpu-memory-utilization", str(launch.gpu_memory_utilization)),
        *("--limit-mm-per-prompt", json.dumps({"image": launch.max_images, "video": 0})),
        # An image processor's own limit may be far above ours, and vLLM sets memory aside for the largest image.
        *(("--mm-processor-kwargs", json.dumps({"max_pixels": chat.max_pixels})) if launch.max_images else ()),
        "--enable-prefix-caching",  # prompts begin alike
        # A checkpoint's generation_config.json may say top_k 1 (Qwen2-VL's does): no seed, no temperature counts then.
        *("--generation-config", "vllm"),
        *("--shutdown-timeout", str(DRAIN_SECONDS), "--disable-uvicorn-access-log"),
        *(("--revision", chat.revision) if chat.revision and not Path(chat.model).exists() else ()),
        *launch.flags,
    ]


def vllm_environment(chat: ChatConfig) -> dict[str, str]:
    """Return this process's environment for vLLM's: no telemetry, no download unless the profile says so."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, **QUIET, **({} if chat.launch.download else OFFLINE)}
